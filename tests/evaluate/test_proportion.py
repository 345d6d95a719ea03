"""The timing case's program held against the checked ones; the physical floor; controls; what is known."""

from types import SimpleNamespace

import numpy as np
import pytest

from maxkernel_nb.errors import InfrastructureError
from maxkernel_nb.evaluate import compile_gates, controls
from maxkernel_nb.evaluate.compile_gates import physical_floor
from maxkernel_nb.evaluate.ground import Ground, Limits
from maxkernel_nb.evaluate.known import KnownChecks, normal
from maxkernel_nb.evaluate.numerics import Comparison, Standard
from maxkernel_nb.evaluate.proportion import difference, doubt
from maxkernel_nb.evaluate.records import Records
from maxkernel_nb.task import Candidate, Diagnostic, GateName, Outcome, Tolerance, Verdict

WORKS = {"small": 1e6, "wide": 2e6, "timing": 1e9}


def about(work, used=(0, 1), arithmetic=("add", "dot_general"), products=None):
    return {"work": work, "products": work if products is None else products, "used": list(used),
            "arithmetic": list(arithmetic), "kinds": list(arithmetic)}  # fmt: skip


CHECKED = {"small": about(1e6), "wide": about(4e6)}


def compared(timing, checked=CHECKED):
    return difference(timing, checked, ("x", "b"), "timing")


def doubted(timing, checked=CHECKED):
    return doubt(timing, checked, WORKS, "timing")


def test_a_program_that_grows_as_the_reference_does_raises_no_doubt():
    assert doubted(about(1e9)) == compared(about(1e9)) == ""
    assert doubted(about(1e6), {"small": about(1e3), "wide": about(2e3)}) == "", "algebra saves as much everywhere"
    assert doubted(about(1e9), {"small": about(9e6), "wide": about(20e6)}) == "", "padding to whole tiles, where small"
    assert compared(about(1e9, arithmetic=("add", "dot_general", "exp"))) == ""
    assert doubt(about(1e7), CHECKED, {}, "timing") == doubt(about(1e7), {}, WORKS, "timing") == ""


@pytest.mark.parametrize(("timing", "words"), [(about(1e9, used=(0,)), "reads b"),
                                               (about(1e9, arithmetic=("dot_general",)), "has a add")])  # fmt: skip
def test_a_program_that_reads_less_at_full_size_is_refused(timing, words):
    assert words in compared(timing) and "what is timed must be what was checked" in compared(timing)


def test_what_only_the_full_size_has_raises_a_doubt():
    assert "has a slice" in doubted(about(1e9, arithmetic=("add", "dot_general", "slice")))


@pytest.mark.parametrize("share", [0.01, 0.25, 0.5, 0.75])
def test_less_work_at_full_size_than_where_checked_raises_a_doubt(share):
    assert f"{share:.2g} of the reference's work" in doubted(about(1e9 * share))
    assert "in products" in doubted(about(2e9, products=1e9 * share)), "made up for by other work"


def test_the_floor_is_what_must_be_moved(bench):
    facts = {"outputs": {"leaves": [{"shape": [512, 1024], "dtype": "float32", "weak_type": False}]}}
    evaluator = bench.evaluator
    ground = evaluator._ground(bench.double, Candidate(source="", entry="", author=""), (GateName.MODEL,))
    ground.facts["timing"] = facts
    milliseconds = bench.run(physical_floor(ground))
    assert milliseconds == pytest.approx(512 * 1024 * 4 / 1640e9 * 1e3, rel=0.05)


class Lenient(Standard):
    """A comparison that is broken: everything passes."""

    def compare(self, candidate):
        return Comparison("", "fine", 0.0, 0.0, 0.0)


def test_controls_hold_for_a_right_comparison_and_void_a_broken_one():
    own = [np.linspace(-1, 1, 256, dtype=np.float32).reshape(2, 128)]
    oracle = [o.astype(np.float64) for o in own]
    controls.hold(own, Standard(own, oracle, Tolerance()))
    controls.hold(own, Standard(own, oracle, Tolerance(atol=1e9)))
    with pytest.raises(InfrastructureError, match="known wrong answer"):
        controls.hold(own, Lenient(own, oracle, Tolerance()))
    with pytest.raises(InfrastructureError, match="fails its own comparison"):
        controls.hold([own[0] + 1], Standard(own, oracle, Tolerance()))


def verdict(outcome=Outcome.PASS, kind=""):
    told = (Diagnostic(kind=kind, message="m"),) if kind else ()
    return Verdict(gate=GateName.CHECK, outcome=outcome, summary="s", case="small", diagnostics=told)


def ground(bench, source="def kernel(x):\n    return x\n", fingerprint="f", **changes):
    task = bench.double.model_copy(update=changes)
    candidate = Candidate(source=source, entry="kernel", author="t")
    made = Ground(task, candidate, (), None, bench.store, None, Limits())
    made.facts["small"] = {"fingerprint": fingerprint}
    return made


def test_a_check_is_known_again_by_program_task_and_salt_only(bench, tmp_path):
    from maxkernel_nb.store import ObjectStore

    records = Records(ObjectStore(tmp_path))
    KnownChecks(records).put(ground(bench), (verdict(),))
    known = KnownChecks(records)  # another process
    assert known.get(ground(bench)) == (verdict(),)
    assert known.get(ground(bench, "def kernel(x):  # a note\n\n    return x\n")) == (verdict(),)
    assert known.get(ground(bench, "def kernel(x):\n    return 2 * x\n")) is None
    assert known.get(ground(bench, fingerprint="g")) is None
    assert known.get(ground(bench, salt="other")) is None
    assert known.get(ground(bench, seeds=(0,))) is None
    assert known.get(ground(bench, tolerance=Tolerance(atol=1.0))) is None


@pytest.mark.parametrize("made", [verdict(Outcome.INFRASTRUCTURE), verdict(Outcome.FAIL, "timeout"),
                                  verdict(Outcome.FAIL, "crash")])  # fmt: skip
def test_what_says_more_about_the_machine_is_not_kept(bench, tmp_path, made):
    from maxkernel_nb.store import ObjectStore

    known = KnownChecks(Records(ObjectStore(tmp_path)))
    known.put(ground(bench), (verdict(), made))
    assert known.get(ground(bench)) is None


def test_comments_and_layout_do_not_make_another_kernel():
    assert normal("x = 1  # one\n") == normal("x   =  1") != normal("x = 2")
    assert normal("def (") == "def ("


@pytest.mark.parametrize(
    ("note", "kind", "found"),
    [("k: a loop whose trip count depends on data is counted as one trip", "pallas", "k"),
     ("k: a loop whose trip count depends on data is counted as 8 trips, enough to move what it reads", "pallas", "k"),
     ("k: a loop whose trip count depends on data is counted as one trip", "fusion", ""),
     ("k: regions whose condition depends on data are counted as always run", "pallas", "")],
)  # fmt: skip
def test_a_kernels_loop_that_ends_where_data_says_is_found(note, kind, found):
    op = SimpleNamespace(name="k", kind=kind)
    assert compile_gates.endless(SimpleNamespace(ops=(op,), notes=(note,))) == found
