"""The protocol and its statistics, on pretended devices: milliseconds drawn from a seed, no chip, no time."""

import asyncio

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxkernel_nb.tpu.chip.agreement import Clocks, ClocksDisagree, agree
from maxkernel_nb.tpu.chip.compare import Rules, TooNoisy, Window, compare
from maxkernel_nb.tpu.chip.statistics import Ratio, called, ratio


class Device:
    """Takes ``reference`` and ``candidate`` ms, with noise; ``spoil(n)`` may change window n."""

    def __init__(self, reference=1.0, candidate=1.0, noise=0.02, seed=0, spoil=lambda n, pairs: pairs):
        self.ms, self.noise, self.spoil = (reference, candidate), noise, spoil
        self.rng = np.random.default_rng(seed)
        self.windows, self.seeds, self.now = 0, [], 0.0

    async def window(self, pairs):
        self.windows += 1
        made = np.array(self.ms) * np.exp(self.noise * self.rng.standard_normal((pairs, 2)))
        made = self.spoil(self.windows, made)
        if isinstance(made, str):
            return Window(np.empty((0, 2)), made)
        seconds = float(made.sum()) / 1e3
        self.now += seconds
        return Window(made, "", seconds)

    async def fresh(self, seed):
        self.seeds.append(seed)

    def compare(self, **rules):
        return asyncio.run(compare(self, Rules(**rules), seed=7, clock=lambda: self.now))


@pytest.mark.parametrize(("candidate", "call"), [(1.3, "slower"), (1 / 1.3, "faster"), (1.0, "equal")])
def test_differences_are_called_right_twenty_times_of_twenty(candidate, call):
    for seed in range(20):
        found = Device(1.0, candidate, noise=0.1, seed=seed).compare()
        assert found.call == call
        assert found.ratio.low * 0.98 <= 1 / candidate <= found.ratio.high * 1.02


@settings(max_examples=30, deadline=None)
@given(st.floats(0.01, 100), st.floats(0.5, 2.0), st.integers(0, 1000))
def test_the_interval_holds_the_truth(ms, factor, seed):
    found = Device(ms, ms * factor, noise=0.03, seed=seed).compare(seconds=60)
    assert found.ratio.low * 0.97 <= 1 / factor <= found.ratio.high * 1.03
    assert found.call == called(Ratio(1 / factor, 1 / factor, 1 / factor), 0.03) or abs(np.log(factor)) < 0.08


def test_the_reported_figure_comes_from_fresh_inputs():
    device = Device(1.0, 0.5)
    found = device.compare()
    assert device.seeds == [7]
    assert found.ratio == found.final.ratio != found.first.ratio


def test_a_gain_that_fresh_inputs_do_not_show_is_no_gain():
    class Memo(Device):
        async def fresh(self, seed):
            self.ms = (1.0, 1.0)

    found = Memo(1.0, 0.5).compare()
    assert found.call == "equal" and "intervals do not meet" in found.notes[0]


def test_disturbed_windows_are_thrown_away_and_counted():
    found = Device(1.0, 0.7, spoil=lambda n, p: "a cell of the notebook began" if n % 3 == 0 else p).compare()
    assert found.call == "faster"
    assert set(found.first.thrown_away) == {"a cell of the notebook began"}


def test_windows_in_which_the_reference_drifts_do_not_count():
    slow = Device(1.0, 1.0, noise=0.002, spoil=lambda n, p: p * [2.0, 1.0] if n in (9, 10) else p)
    found = slow.compare(fewest=8, narrow=1e-4)
    assert "the reference itself ran at another speed" in found.first.thrown_away
    assert found.call == "equal"


def test_it_stops_when_the_interval_is_narrow_and_when_the_time_is_up():
    assert Device(noise=0.001).compare().first.stopped == "narrow enough"
    assert Device(1.0, 0.5, noise=0.05).compare().first.stopped in ("clear enough", "narrow enough")
    assert Device(noise=0.5).compare(seconds=0.5).first.stopped == "out of time"


def test_warming_up_goes_on_until_two_windows_agree():
    cold = Device(noise=0.01, spoil=lambda n, p: p * max(1.0, 4.0 - n))
    found = cold.compare()
    assert found.first.warm and found.first.warm_up >= 4


def test_nothing_to_count_is_said():
    with pytest.raises(TooNoisy, match="None of 60 windows"):
        Device(spoil=lambda n, p: "the profiler cannot be started").compare()


def test_a_ratio_of_nothing_is_an_error():
    with pytest.raises(ValueError, match="no pair"):
        ratio([])


# -- clocks --------------------------------------------------------------------------------------------------------


def clocks(**changed):
    told = {"device": 1.0, "fastest": 0.98, "wall": 1.05, "slope": 1.01, "overhead": 0.02}
    return Clocks(**{**told, **changed})


def test_clocks_that_agree():
    agree(clocks(), "it")
    agree(clocks(device=0.001, fastest=0.001, wall=0.05, slope=0.02), "it")  # a tiny kernel: sending takes longer


@pytest.mark.parametrize(("changed", "said"), [
    ({"wall": 0.5}, "the wall clock saw all of it"),
    ({"slope": 0.5}, "each further run takes only"),
    ({"slope": 2.0}, "not in the trace"),
    ({"fastest": 0.0}, "no duration"),
])
def test_clocks_that_contradict_each_other_are_refused(changed, said):
    with pytest.raises(ClocksDisagree, match=said):
        agree(clocks(**changed), "it")


def test_a_device_that_does_two_runs_abreast_may_be_twice_as_quick():
    agree(clocks(slope=0.55, abreast=2), "it")
