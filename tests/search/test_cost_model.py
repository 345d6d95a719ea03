"""What a cost model leans on before much is known, and what that saves on a recorded landscape."""

import math

import landscapes
import numpy as np

from maxkernel_nb.modes.search.choose import by_budget
from maxkernel_nb.modes.search.cost_model import CostModel

POINTS = [{"A": a, "B": b} for a in (64, 128, 256, 512) for b in (64, 128, 256, 512)]


def took(p):
    return 1 + abs(math.log2(p["A"] / 256)) + 0.5 * abs(math.log2(p["B"] / 128))


def priors(p, good=1):
    """A prior that is right up to a factor in one place, one that says nothing in the other."""
    found = [1.0 + p["A"] * p["B"] % 3, 1.0 + p["A"] * p["B"] % 5]
    found[good] = 7 * took(p)
    return tuple(found)


def test_one_kernel_and_an_estimate_are_enough_to_rank_all_points():
    model = CostModel(("A", "B"))
    model.fit([(POINTS[0], priors(POINTS[0]), took(POINTS[0]))])
    mean, _ = model.predict(POINTS, [priors(p) for p in POINTS])
    assert int(np.argmin(mean)) == int(np.argmin([took(p) for p in POINTS]))
    assert np.allclose(np.exp(mean), [took(p) for p in POINTS], rtol=1e-6)


def test_it_leans_on_the_prior_that_explains_the_times():
    for good in (0, 1):
        model = CostModel(("A", "B"))
        model.fit([(p, priors(p, good), took(p)) for p in POINTS[::3]])
        assert model._weights[good] > model._weights[1 - good]


def test_without_any_prior_it_still_learns():
    model = CostModel(("A", "B"))
    model.fit([(p, (None, None), took(p)) for p in POINTS[::2]])
    gains = model.improvement(POINTS, [(None, None)] * len(POINTS), 10.0)
    assert np.all(gains >= 0) and np.all(np.isfinite(gains))


def test_on_a_recorded_landscape_it_needs_at_most_half_of_what_either_baseline_does():
    """Three seeds only; thirty, all tasks and intervals: python tests/bench/search_compare.py."""
    landscape, most = landscapes.load("matmul_gelu"), 120
    limit, spent = landscape.best / 0.95, {"ours": 0, "parallel": 0, "beam": 0}
    for seed in range(3):
        starts = landscape.starts(seed, 4)
        ours = by_budget(landscapes.RecordedWorld(landscape, starts), 120, seed, roots=4)
        curves = {
            "ours": landscapes.search(ours, landscape, most, enough=limit),
            "parallel": landscapes.PlainParallel(landscape, seed).run(starts, most),
            "beam": landscapes.RandomBeam(landscape, seed).run(starts, most),
        }
        for name, curve in curves.items():
            spent[name] += landscapes.to_reach(curve, limit) or most
    assert spent["ours"] * 2 <= min(spent["parallel"], spent["beam"]), spent
