"""Verdicts per minute, warm workers against a new process a candidate: python tests/bench/judge_throughput.py

The same 40 candidates (tile choices of a matmul and of an attention) on small shapes, the gates screen, trace, check
and compile, both ways in one run. The cold way starts an evaluator, with its workers, for each candidate: what a tool
does that runs a script a candidate. ``--cold N`` measures N of them cold (they do not depend on each other); ``--full``
takes full shapes.
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


def candidates() -> list[tuple[str, str]]:
    tiles = [t for t in product((64, 128, 256), (128, 256), (64, 128, 256, 512)) if t[2] >= 128][:20]
    gemm = [("gemm", suite_honest.matmul(*t, bias=True)) for t in tiles]
    blocks = list(product((16, 32, 64, 128), (128, 64, 32, 16, 8)))[:20]
    return gemm + [("causal", suite_honest.attention(*b)) for b in blocks]


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
    say(asyncio.run(judge(bench, task, source)))
    bench.evaluator.close()


async def warm(
    bench: Bench, shapes: dict[str, str], wanted: list[tuple[str, str]], at_once: int
) -> tuple[float, float, list[str]]:
    made = tasks(bench, shapes)
    for name, source in (wanted[0], wanted[-1]):  # the warm-up: workers, oracles and probes
        await judge(bench, made[name], source + "\n# warm-up\nWARM = 1\n")
    gate = asyncio.Semaphore(at_once)

    async def bounded(name: str, source: str) -> str:
        async with gate:
            return await judge(bench, made[name], source)

    started, before = time.monotonic(), _workers(bench)
    told = await asyncio.gather(*(bounded(*c) for c in wanted))
    return time.monotonic() - started, _workers(bench) - before, list(told)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--cold", type=int, default=40)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--full", action="store_true")
    options: Any = parser.parse_args()
    if options.one:
        one(options.one)
        return
    shapes, wanted = FULL if options.full else SMALL, candidates()
    wanted = wanted[:: max(1, len(wanted) // options.count)]
    bench = Bench(workers=options.workers)
    took, used, told = bench.run(warm(bench, shapes, wanted, 2 * options.workers))
    fast = 60 * len(wanted) / took
    say(f"warm: {len(wanted)} verdicts, {fast:.1f} a minute, {used / len(wanted):.1f} CPU s each ({_counts(told)})")
    each = [cold(shapes, *c) for c in wanted[:: max(1, len(wanted) // options.cold)]]
    slow, dear = 60 * len(each) / sum(t for t, _, _ in each), sum(c for _, c, _ in each) / len(each)
    say(f"a new process each: {len(each)} verdicts, {slow:.1f} a minute, {dear:.1f} CPU s each "
        f"({_counts([t for _, _, t in each])})")  # fmt: skip
    say(f"ratio by the clock {fast / slow:.1f}, by CPU time {dear / (used / len(wanted)):.1f}")


def _counts(told: list[str]) -> str:
    return ", ".join(f"{told.count(t)} {t}" for t in dict.fromkeys(told))


if __name__ == "__main__":
    main()
