"""Workers killed at random during verdicts: python tests/bench/judge_faults.py [--verdicts 300] [--seed 0]

Right and wrong kernels alternate. Every verdict must come, be the right one, and none may blame a candidate for a kill;
``infrastructure`` verdicts are judged again, as a run does, and counted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import sys
from typing import Any

from judge_common import CHECKED, Bench, say, suite_honest

from maxkernel_nb.evaluate.pool import LocalPool
from maxkernel_nb.task import GateName, Outcome

HONEST = suite_honest.HONEST["double (64, 128)"][1]


def kernel(number: int) -> tuple[str, bool]:
    """Every third one is wrong; each text is new, so that none is known."""
    source = HONEST.replace("BM, BN = 64, 128", f"BM, BN, NUMBER = 64, 128, {number}")
    return (source.replace("* 2.0", "* 2.5"), False) if number % 3 == 2 else (source, True)


async def killer(pool: LocalPool, draw: random.Random, done: asyncio.Event, mean_s: float) -> int:
    kills = 0
    while not done.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), draw.expovariate(1 / mean_s))
        living = pool.pids()
        if living and not done.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(draw.choice(living), signal.SIGKILL)
                kills += 1
    return kills


async def course(bench: Bench, count: int, seed: int, mean_s: float) -> dict[str, int]:
    """Figures of one campaign: verdicts, kills, and what went wrong."""
    done, draw = asyncio.Event(), random.Random(seed)
    killing = asyncio.create_task(killer(bench.evaluator.executor, draw, done, mean_s))  # type: ignore[arg-type]
    told = {"verdicts": 0, "asked again": 0, "lost": 0, "wrong": 0, "blamed": 0, "kills": 0}
    for number in range(count):
        source, right = kernel(number)
        for _ in range(20):
            assessment = await bench.judge(bench.task("double"), source, CHECKED)
            if not any(v.outcome is Outcome.INFRASTRUCTURE for v in assessment.verdicts):
                break
            told["asked again"] += 1
        last: Any = assessment.verdicts[-1]
        told["verdicts"] += 1
        told["lost"] += last.outcome is Outcome.INFRASTRUCTURE
        told["blamed"] += last.outcome is Outcome.FAIL and last.diagnostics[0].kind in ("crash", "timeout")
        meant = assessment.correct if right else last.outcome is Outcome.FAIL and last.gate is GateName.CHECK
        told["wrong"] += not meant and last.outcome is not Outcome.INFRASTRUCTURE
        if number % 25 == 24:
            say(f"{number + 1}: {told}")
    done.set()
    told["kills"] = await killing
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--verdicts", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mean-s", type=float, default=20.0, help="seconds between kills, on average")
    options = parser.parse_args()
    bench = Bench()
    told = bench.run(course(bench, options.verdicts, options.seed, options.mean_s))
    say(str(told))
    sys.exit(bool(told["lost"] or told["wrong"] or told["blamed"]))


if __name__ == "__main__":
    main()
