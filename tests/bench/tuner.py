"""How much of a full grid the tuner needs: five kernels, every point modelled, then the tuner's own walk through it.

    python -m tests.bench.tuner [--cache FOLDER] [KERNEL ...]

The full grid is compiled once and kept in the cache (a few minutes). The walk is the tuner's own, with its times read
from there; the first candidate counts as an evaluation, a refused compile does too. Modelled figures.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from maxkernel_nb import compat
from maxkernel_nb.agents.walk import Walk
from tests.bench.tuner_grids import KERNELS, Grid, fill, grid, text_of

NEAR = 1.05


def walked(made: Grid, evaluations: int) -> list[float]:
    """Best time after each evaluation of the tuner's walk; the first candidate is the first."""
    start = made.times.get(text_of(made.first.params)) or math.inf
    estimate = made.author.estimator(made.view, made.plan, made.first)
    walk = Walk(made.space, made.retune, made.first, start, estimate)
    best = [start]
    while len(best) < evaluations:
        batch = walk.ask(min(2, evaluations - len(best)))
        if not batch:
            break
        for asked in batch:
            walk.tell(asked, made.times[text_of(asked.params)])
            best.append(walk.best)
    return best


def line_of(made: Grid) -> tuple[str, bool]:
    known = {text_of(p): c for p, c in made.points()}
    times = {text: time for text in known if (time := made.times[text]) is not None}
    least = min(times.values())
    allowed = max(1, len(known) // 5)
    found = walked(made, allowed)
    needed = next((i + 1 for i, time in enumerate(found) if time <= NEAR * least), None)
    worst = max((known[text].bound_ms or 0.0) / time for text, time in times.items())
    reached = f"within 5 % after {needed}" if needed else "not within 5 %"
    return (
        f"{made.name:10} {len(known):4} points, best {least:.4f} ms; allowed {allowed:3}: {found[-1]:.4f} ms "
        f"({100 * (found[-1] / least - 1):.1f} % above), {reached}; bound over time at most {worst:.2f}"
    ), needed is not None


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="KERNEL", help=", ".join(KERNELS))
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "maxkernel-tuner")
    given = parser.parse_args(words)
    compat.prepare_host_backend()
    reached = 0
    names = given.names or list(KERNELS)
    for name in names:
        made = grid(name, given.cache)
        fill(made, lambda text: sys.stderr.write(text + "\n"))
        text, good = line_of(made)
        reached += good
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    sys.stdout.write(f"{reached} of {len(names)} within 5 % of the best modelled point in a fifth of the grid\n")
    return 0 if reached == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
