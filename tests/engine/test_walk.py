"""The tuner's walk: what it asks for next, what it passes over for free, and when it has seen enough."""

import itertools
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from maxkernel_nb.agents.walk import MARGIN, Walk
from maxkernel_nb.authors.base import TuningSpace
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import Candidate

SPACE = TuningSpace(axes={"M": (1, 2, 4, 8, 16), "N": (1, 2, 4, 8), "K": (1, 2, 4)}, seeds=({"M": 2, "N": 2, "K": 1},))
POINTS = [dict(zip(SPACE.axes, values, strict=True)) for values in itertools.product(*SPACE.axes.values())]


def cost(p):
    """Best at M=8, N=4, K=4."""
    return 1 + abs(math.log2(p["M"] / 8)) + 0.5 * abs(math.log2(p["N"] / 4)) + 0.25 * math.log2(4 / p["K"])


def candidate(p, bound=None):
    return Candidate(source=f"{sorted(p.items())}", entry="f", author="test", params=p, bound_ms=bound)


def walked(estimate, evaluations, make=candidate, best=math.inf):
    walk = Walk(SPACE, make, candidate({}), best, estimate)
    told = []
    while len(told) < evaluations and (batch := walk.ask(2)):
        for asked in batch:
            walk.tell(asked, cost(asked.params))
            told.append(asked.params)
    return walk, told


@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_rough_estimate_finds_the_best_within_a_fifth_of_the_grid(random):
    noise = {str(p): random.uniform(0.85, 1.15) for p in POINTS}
    walk, told = walked(lambda p: cost(p) * noise[str(p)], len(POINTS) // 5)
    assert walk.best <= 1.3 * min(map(cost, POINTS)) and len(told) == len(POINTS) // 5


def test_an_estimate_that_is_wrong_in_one_axis_is_corrected_by_what_was_told():
    walk, _ = walked(lambda p: cost(p) * p["K"], 16)
    assert walk.best <= 1.3


def test_nothing_is_asked_twice_and_the_grid_ends():
    _, told = walked(cost, 1000)
    assert sorted(map(str, told)) == sorted(map(str, POINTS))


def test_a_good_estimate_ends_the_walk_when_nothing_left_promises_more():
    walk, _ = walked(cost, 4)
    assert walk.best == min(map(cost, POINTS)) and not walk.promising()
    assert walked(cost, 2)[0].promising() and walked(None, 10)[0].promising()


def test_an_estimate_that_says_the_same_of_all_is_none():
    _, told = walked(lambda p: 1.0 + 0.01 * p["K"], 10)
    assert told == walked(None, 10)[1]


def test_without_an_estimate_the_seeds_come_first_and_a_sampler_goes_on():
    _, told = walked(None, 10)
    assert told[0] == SPACE.seeds[0] and len(told) == 10


def test_points_that_cannot_work_or_cannot_win_cost_nothing():
    def make(p):
        if p["N"] == 8:
            raise Declined("too large")
        return candidate(p, bound=10.0 if p["M"] == 16 else 0.5)

    _, told = walked(cost, 1000, make, best=10.0 / MARGIN)
    assert told and all(p["N"] != 8 and p["M"] != 16 for p in told)


def test_a_bound_slightly_above_the_best_is_not_believed():
    _, told = walked(cost, 1000, lambda p: candidate(p, bound=1.05), best=1.0)
    assert len(told) == len(POINTS)


def test_the_study_is_journaled(tmp_path):
    file = tmp_path / "tuning.log"
    walk = Walk(SPACE, candidate, candidate({}), math.inf, cost, journal=file)
    for asked in walk.ask(2):
        walk.tell(asked, cost(asked.params))
    assert file.read_text().count("\n") > 4
