"""Twenty measurements each of a program that does 1.3x the reference's work, 1/1.3 of it, and as much: called right?

    python tests/bench/chip_ab.py [--repeats 20] [--keep FILE]

XLA's CPU backend is the device; the programs differ in real work only. Each measurement is the whole protocol (warm-up,
interleaved windows read from profiler traces, interval, once more on fresh inputs). ``--keep`` is a file of finished
measurements: an interrupted call goes on from there. Prints each, then how many of each kind were called right; the
exit code says whether all were.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from pathlib import Path

ALONE = {"JAX_PLATFORMS": "cpu", "NPROC": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
         "JAX_CPU_ENABLE_ASYNC_DISPATCH": "false"}  # as the worker of a rehearsal has it
os.environ.update(ALONE)
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import chip_programs as programs  # noqa: E402
import jax  # noqa: E402
import numpy as np  # noqa: E402

from maxkernel_nb.evaluate.chip_measure import Stand  # noqa: E402
from maxkernel_nb.evaluate.executor import Reply  # noqa: E402
from maxkernel_nb.tpu.chip.compare import Rules, compare  # noqa: E402
from maxkernel_nb.tpu.chip.quiet import Quiet  # noqa: E402
from maxkernel_nb.tpu.chip.session import CANDIDATE, REFERENCE, Place, Session  # noqa: E402

WORK = {"1.3x the work": (10, 13, "slower"), "1/1.3 of the work": (13, 10, "faster"), "equal work": (10, 10, "equal")}
RULES = Rules(seconds=60.0, window_s=0.015, most_pairs=20, warm_most=3, narrow=0.05, clear=0.1, most=8)


class InProcess:
    """A place without a worker: the session itself."""

    name = "cpu0"

    def __init__(self, session):
        self.session = session

    async def ask(self, op, args, buffers=(), seconds=60.0):
        if op == "fresh":
            return Reply(self.session.fresh(args["seed"]) or {})
        return Reply(self.session.window(args["pairs"]))


def draw(seed):
    return [np.random.default_rng([seed, n]).standard_normal(programs.SHAPE, np.float32) * 0.1 for n in range(2)]


def measured(reference, candidate, seed):
    session = Session(Place(jax.devices()[0], None, 1 << 20))
    try:
        exported = {REFERENCE: programs.exported(programs.products(reference)),
                    CANDIDATE: programs.exported(programs.products(candidate))}
        session.open(exported, draw, seed)
        stand = Stand(InProcess(session), lambda n: n, 60.0, Quiet(), [])
        return asyncio.run(compare(stand, RULES, seed + 500))
    finally:
        session.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    known = json.loads(options.keep.read_text()) if options.keep and options.keep.exists() else {}
    right = dict.fromkeys(WORK, 0)
    for repeat in range(options.repeats):
        for kind, (reference, candidate, expected) in WORK.items():
            key = f"{kind} {repeat} {jax.__version__}"
            if key not in known:
                began = time.monotonic()
                found = measured(reference, candidate, repeat + 1)
                r = found.ratio
                known[key] = [found.call, round(r.value, 4), round(r.low, 4), round(r.high, 4),
                              len(found.final.windows), found.final.pairs, round(time.monotonic() - began, 1)]
                if options.keep:
                    options.keep.write_text(json.dumps(known))
            call, value, low, high, windows, pairs, seconds = known[key]
            right[kind] += call == expected
            print(f"{kind:18} {repeat + 1:3}: {call:7} {value:.3f}x [{low:.3f}, {high:.3f}] from {pairs} pairs in "
                  f"{windows} windows, {seconds:.0f} s{'' if call == expected else '   WRONG'}", flush=True)
    print(f"jax {jax.__version__}, on the CPU backend: " + "; ".join(
        f"{kind} called {WORK[kind][2]} in {count} of {options.repeats}" for kind, count in right.items()))
    return 0 if all(count == options.repeats for count in right.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
