"""Verdicts per minute, warm workers against a new process a candidate: python tests/bench/judge_throughput.py

The same 40 candidates (tile choices of a matmul and of an attention) on small shapes, the gates screen, trace, check
and compile, both ways in one run. The cold way is the same code in a process of its own for each candidate: it builds
the task, starts workers, computes the oracle and finds the probes, and knows nothing; what a tool does that runs a
script a candidate. Warm and cold take turns, a block each, so that both meet the same machine. The reference is
compiled and profiled too, as a verdict's speedup needs: once by the warm judge, each time by the cold one. ``--block``:
candidates a block; ``--every N``: only each Nth of them is also judged cold (they do not depend on each other);
``--full``: full shapes; ``--workers``: warm workers of a kind.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from judge_common import Bench, say, suite_honest, suite_tasks

from maxkernel_nb.task import GateName, KernelTask
from maxkernel_nb.tasks.build import build_task

GATES = (GateName.SCREEN, GateName.TRACE, GateName.CHECK, GateName.COMPILE)
SMALL = {"gemm": "x: bf16[256,256], w: bf16[256,256], b: bf16[256]",
         "causal": "q: bf16[1,1,256,128], k: bf16[1,1,256,128], v: bf16[1,1,256,128]"}  # fmt: skip
FULL = {"gemm": "x: bf16[4096,4096], w: bf16[4096,4096], b: bf16[4096]",
        "causal": "q: bf16[4,16,2048,128], k: bf16[4,16,2048,128], v: bf16[4,16,2048,128]"}  # fmt: skip


TILES = list(product((32, 64, 128, 256), (128, 256), (128, 256, 512)))
BLOCKS = list(product((16, 32, 64, 128), (128, 64, 32, 16, 8)))


def written(tiles: list[tuple[int, int, int]], blocks: list[tuple[int, int]]) -> list[tuple[str, str]]:
    gemm = [("gemm", suite_honest.matmul(*t, bias=True)) for t in tiles]
    return gemm + [("causal", suite_honest.attention(*b)) for b in blocks]


def candidates() -> list[tuple[str, str]]:
    return written(TILES[-20:], BLOCKS)


def others() -> list[tuple[str, str]]:
    """To warm up with: none of the candidates, so that nothing of one is known beforehand."""
    return written(TILES[:4], [(8, 128), (8, 64), (256, 128), (256, 64)])


def tasks(bench: Bench, shapes: dict[str, str]) -> dict[str, KernelTask]:
    return {n: build_task(getattr(suite_tasks, n), shapes=s, store=bench.store).task for n, s in shapes.items()}


async def judge(bench: Bench, task: KernelTask, source: str) -> str:
    last = (await bench.judge(task, source, GATES)).verdicts[-1]
    return f"{last.gate} {last.outcome}"


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _workers(bench: Bench) -> float:
    """CPU seconds of this process and of its living workers."""
    ticks = os.sysconf("SC_CLK_TCK")
    stats = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in bench.evaluator.executor.pids()]
    return time.process_time() + sum((int(s[11]) + int(s[12])) / ticks for s in stats)


def cold(shapes: dict[str, str], name: str, source: str) -> tuple[float, float, str]:
    """One candidate in a process of its own, which starts its own workers and knows nothing."""
    started, before = time.monotonic(), _children()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([shapes, name, source], file)
        file.flush()
        code = [sys.executable, __file__, "--one", file.name]
        told = subprocess.run(code, capture_output=True, text=True, check=False, env=os.environ).stdout
    return time.monotonic() - started, _children() - before, told.strip()


def one(path: str) -> None:
    shapes, name, source = json.loads(Path(path).read_text())
    bench = Bench.__new__(Bench)
    from maxkernel_nb.evaluate.local import LocalEvaluator
    from maxkernel_nb.store import ObjectStore

    bench.store = ObjectStore(Path(tempfile.mkdtemp()))
    bench.evaluator = LocalEvaluator(bench.store)
    task = tasks(bench, {name: shapes[name]})[name]
    say(asyncio.run(_both(bench, task, source)))
    bench.evaluator.close()


async def _both(bench: Bench, task: KernelTask, source: str) -> str:
    return (await asyncio.gather(judge(bench, task, source), bench.evaluator.baseline(task)))[0]


class Warm:
    """The warm judge: built and warmed up once, then asked for blocks of candidates."""

    def __init__(self, bench: Bench, shapes: dict[str, str], at_once: int) -> None:
        self.bench, self.at_once, self.made = bench, at_once, tasks(bench, shapes)

    async def warm_up(self) -> None:
        """Workers, oracles and probes."""
        await asyncio.gather(self.judged(others()), *map(self.bench.evaluator.baseline, self.made.values()))

    async def judged(self, wanted: list[tuple[str, str]]) -> list[str]:
        gate = asyncio.Semaphore(self.at_once)

        async def bounded(name: str, source: str) -> str:
            async with gate:
                return await judge(self.bench, self.made[name], source)

        return list(await asyncio.gather(*(bounded(*c) for c in wanted)))

    async def block(self, wanted: list[tuple[str, str]], sum_: Sum) -> None:
        started, before = time.monotonic(), _workers(self.bench)
        sum_.told += await self.judged(wanted)
        sum_.seconds += time.monotonic() - started
        sum_.used += _workers(self.bench) - before


@dataclass
class Sum:
    told: list[str] = field(default_factory=list)
    seconds: float = 0.0
    used: float = 0.0

    @property
    def a_minute(self) -> float:
        return 60 * len(self.told) / self.seconds

    @property
    def each(self) -> float:
        return self.used / len(self.told)

    def __str__(self) -> str:
        counts = ", ".join(f"{self.told.count(t)} {t}" for t in dict.fromkeys(self.told))
        return f"{len(self.told)} verdicts, {self.a_minute:.1f} a minute, {self.each:.1f} CPU s each ({counts})"


async def compared(bench: Bench, shapes: dict[str, str], wanted: list[tuple[str, str]], options: Any) -> None:
    block, workers = options.block, options.workers
    judge_, warm, alone = Warm(bench, shapes, 2 * workers), Sum(), Sum()
    await judge_.warm_up()
    for at in range(0, len(wanted), block):
        some = wanted[at : at + block]
        await judge_.block(some, warm)
        for name, source in some[:: options.every]:
            seconds, used, told = await asyncio.to_thread(cold, shapes, name, source)
            alone.told.append(told)
            alone.seconds, alone.used = alone.seconds + seconds, alone.used + used
        say(f"so far {len(warm.told)} and {len(alone.told)}: {_ratios(warm, alone)}")
    say(f"warm: {warm}\na new process each: {alone}\nratio {_ratios(warm, alone)}")


def _ratios(warm: Sum, alone: Sum) -> str:
    return f"{warm.a_minute / alone.a_minute:.1f} by the clock, {alone.each / warm.each:.1f} by CPU time"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--block", type=int, default=8)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--full", action="store_true")
    options: Any = parser.parse_args()
    if options.one:
        one(options.one)
        return
    shapes, wanted = FULL if options.full else SMALL, candidates()
    wanted = wanted[:: max(1, len(wanted) // options.count)]
    wanted = [c for n in range(options.block) for c in wanted[n :: options.block]]  # every block has some of each kind
    bench = Bench(workers=options.workers)
    bench.run(compared(bench, shapes, wanted, options))


if __name__ == "__main__":
    main()
