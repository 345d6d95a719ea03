"""Runs where a chip measures: it decides between what the model cannot tell apart, within its seconds."""

import pytest
from engine_bench import TIMES, TunableAuthor

from maxkernel_nb.authors.fake import ScriptedAuthor
from maxkernel_nb.budget import Budget
from maxkernel_nb.document.build import document
from maxkernel_nb.evaluate.fake import CHIP_S, FakeEvaluator
from maxkernel_nb.task import GateName

PLAIN = "def f(x):\n    return x + 0\n# time=1.0\n"
POINTS = {"A": (1, 2, 3)}


class Surprising(ScriptedAuthor):
    """By the model all points are within its error; on the chip A=3 is the fastest."""

    def retune(self, view, plan, candidate, params):
        made = super().retune(view, plan, candidate, params)
        model, chip = {1: (0.99, 1.1), 2: (0.98, 0.9), 3: (1.02, 0.5)}[params["A"]]
        return made.model_copy(update={"source": f"# time={model}\n# measured={chip}\n{candidate.source}"})


def chips(run):
    return [c.candidate.params for c in run.state.candidates.values() if any(v.gate is GateName.CHIP
                                                                             for v in c.verdicts)]


def test_points_that_the_model_cannot_tell_apart_are_measured_and_the_chip_decides(bench):
    run = bench.run(Surprising([PLAIN], axes=POINTS), FakeEvaluator(chip=True)).wait(10)
    best = run.state.candidates[run.state.best].candidate
    assert best.params == {"A": 3} and run.state.speedup == pytest.approx(4.0)
    assert len(chips(run)) == 4 and run.state.spend.chip_seconds == 4 * CHIP_S
    assert "measured" in run.state.open_proposal.claim and "modelled" not in run.state.open_proposal.claim


def test_the_badge_and_the_times_say_measured(bench):
    run = bench.run(Surprising([PLAIN], axes=POINTS), FakeEvaluator(chip=True)).wait(10)
    seen = document(run.state)
    assert seen.header.evidence.kind == "measured" and seen.header.headline == "4.00× faster than XLA"
    assert "3.96–4.04×" in seen.header.evidence.error
    assert "2.00 ms → 500 µs" in str(seen.header)
    row = next(r for r in seen.candidates if r.best)
    assert row.speedup == "4.00× measured" and row.ms == 0.5


def test_chip_seconds_end_the_measuring_not_the_run(bench):
    budget = Budget(chip_seconds=2.5 * CHIP_S)
    run = bench.run(Surprising([PLAIN], axes=POINTS), FakeEvaluator(chip=True), budget=budget).wait(10)
    assert len(chips(run)) == 2 and run.state.open_proposal is not None
    [note] = [n.text for n in run.state.notes if "chip seconds are left" in n.text]
    assert "2 more kernels" in note and "--budget" in note


def test_a_measured_best_is_not_replaced_by_a_gain_within_its_interval(bench):
    class Tie(ScriptedAuthor):
        def retune(self, view, plan, candidate, params):
            made = super().retune(view, plan, candidate, params)
            return made.model_copy(update={"source": f"# time=0.9\n# measured=0.995\n{candidate.source}"})

    run = bench.run(Tie([PLAIN], axes={"A": (1,)}), FakeEvaluator(chip=True)).wait(10)
    assert run.state.candidates[run.state.best].candidate.source.startswith("def f")


def test_without_a_chip_nothing_changes(bench):
    run = bench.run(TunableAuthor([PLAIN], axes=TIMES)).wait(10)
    assert run.state.measured is None and not chips(run)
    assert document(run.state).header.evidence.kind == "modelled"
