"""Evaluations to reach 95 % of the best, on recorded landscapes: `python tests/bench/search_compare.py`.

Every strategy begins from the same random kernels, drawn anew for each of 30 seeds. The baselines are re-implemented
here as such systems are described: plain parallel climbers, and a beam, both with random strategies, no memory between
siblings, and the same kernel judged again when it is drawn again. They have the same moves and the same starts.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import landscapes

from maxkernel_nb.modes.search.bandit import Bandit
from maxkernel_nb.modes.search.beam import Beam
from maxkernel_nb.modes.search.choose import by_budget
from maxkernel_nb.modes.search.evolve import Evolve
from maxkernel_nb.modes.search.parallel import Parallel

STARTS = 4
OURS = {
    "parallel": lambda w, s: Parallel(w, s, lineages=STARTS),
    "beam": lambda w, s: Beam(w, s, roots=STARTS),
    "evolve": lambda w, s: Evolve(w, s, roots=STARTS),
    "bandit": lambda w, s: Bandit(w, s, roots=STARTS),
    "default": lambda w, s: by_budget(w, 120, s, roots=STARTS),
}
BASELINES = {"plain parallel": landscapes.PlainParallel, "random beam": landscapes.RandomBeam,
             "random sampling": landscapes.RandomSampling}


def evaluations(name, landscape, seed, most, width):
    """Evaluations needed, or ``most`` when it was not reached (which flatters who fails)."""
    starts = landscape.starts(seed, STARTS)
    if name in BASELINES:
        curve = BASELINES[name](landscape, seed).run(starts, most)
    else:
        strategy = OURS[name](landscapes.RecordedWorld(landscape, starts), seed)
        curve = landscapes.search(strategy, landscape, most, width, enough=landscape.best / 0.95)
    return landscapes.to_reach(curve, landscape.best / 0.95) or most


def interval(values, dice, rounds=2000):
    """Bootstrap 95 % interval of the mean."""
    means = dice.choice(values, (rounds, len(values))).mean(1)
    return np.quantile(means, [0.025, 0.975])


def compare(tasks, seeds, most, width):
    dice = np.random.default_rng(0)
    found = {}
    for task in tasks:
        landscape = landscapes.load(task)
        times = np.array([c["ms"] for c in landscape.points.values() if c["ms"]])
        near = int((times <= landscape.best / 0.95).sum())
        sys.stdout.write(f"\n{task}: {len(landscape.points)} candidates, {near} within 95 % of the best "
                         f"({landscape.best:.4g} ms modelled), slowest {times.max() / landscape.best:.1f}x\n")
        for name in (*BASELINES, *OURS):
            values = np.array([evaluations(name, landscape, seed, most, width) for seed in range(seeds)], float)
            found[task, name] = values
            low, high = interval(values, dice)
            sys.stdout.write(f"  {name:15} mean {values.mean():6.1f} [{low:.1f}, {high:.1f}]  median "
                             f"{np.median(values):5.1f}  not reached in {int((values >= most).sum())} of {seeds}\n")
            sys.stdout.flush()
    return found


def ratios(found, tasks, dice=None, rounds=4000):
    """Ours (default) over the better baseline, with bootstrap intervals; the worse of the two ratios counts."""
    dice = dice or np.random.default_rng(1)
    sys.stdout.write("\nDefault strategy's evaluations over each baseline's, mean of each (95 % interval)\n")
    for task in tasks:
        ours = found[task, "default"]
        for name in BASELINES:
            theirs = found[task, name]
            draws = dice.integers(0, len(ours), (rounds, len(ours)))
            spread = np.quantile(ours[draws].mean(1) / theirs[draws].mean(1), [0.025, 0.975])
            sys.stdout.write(f"  {task:12} over {name:15} {ours.mean() / theirs.mean():.2f} "
                             f"[{spread[0]:.2f}, {spread[1]:.2f}]\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", default=list(landscapes.NAMES))
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--most", type=int, default=300)
    parser.add_argument("--width", type=int, default=1, help="draws in flight at a time (ours; baselines have one)")
    chosen = parser.parse_args()
    ratios(compare(chosen.tasks, chosen.seeds, chosen.most, chosen.width), chosen.tasks)
