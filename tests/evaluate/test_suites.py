"""A part of the suites of honest and of cheating kernels; all of both: ``python tests/bench/judge_suites.py``."""

import importlib.util
from pathlib import Path

import pytest

from maxkernel_nb.task import GateName, Outcome

CHECKED = (GateName.SCREEN, GateName.TRACE, GateName.CHECK)


def _module(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SUITE = {name: _module(f"suite_{name}") for name in ("tasks", "honest", "wrong")}
HONEST, WRONG, ATTACKS = SUITE["honest"].HONEST, SUITE["wrong"].WRONG, SUITE["wrong"].ATTACKS


@pytest.fixture(scope="module")
def tasks(bench):
    return SUITE["tasks"].build(bench.store)


def faint(task):
    def changed(case):
        *others, last = case.args
        draw = last.draw.model_copy(update={"std": 1e-5, "mean": 0.0})
        return case.model_copy(update={"args": (*others, last.model_copy(update={"draw": draw}))})

    return task.model_copy(update={"cases": tuple(map(changed, task.cases))})


def test_the_suites_are_as_large_as_they_claim():
    assert len(WRONG) + len(ATTACKS) >= 70 and len(HONEST) >= 60
    assert all(cheat.kinds for cheat in WRONG.values())
    assert len({source for _, source in HONEST.values()}) == len(HONEST)


QUICK_HONEST = ("double, in place", "double, two buffers", "update, in place", "layernorm, one pass", "gather",
                "double, custom_vjp")  # fmt: skip
QUICK_WRONG = ("a bias too small to be seen ignored", "variance taken as one", "bfloat16 products for float32",
               "tail not masked", "one buffer for two copies", "input overwritten before it is read",
               "zeros at full size", "no bias at full size", "an eighth of k at full size", "outputs swapped",
               "remembers by shape", "skips large values",
               "an eighth of k padded to a quarter", "copies of its own, far")  # fmt: skip


def refused_as_meant(bench, tasks, name):
    cheat = WRONG[name]
    task = faint(tasks[cheat.task]) if cheat.weak else tasks[cheat.task]
    gates = (GateName.SCREEN, GateName.TRACE, GateName.COMPILE) if cheat.gate == "compile" else CHECKED
    last = bench.judge(task, cheat.source, gates).verdicts[-1]
    assert (last.outcome, last.gate) == (Outcome.FAIL, cheat.gate), last
    assert cheat.words.lower() in last.summary.lower()


@pytest.mark.parametrize("name", QUICK_HONEST)
def test_an_honest_kernel_passes(bench, tasks, name):
    task, source = HONEST[name]
    assessment = bench.judge(tasks[task], source)
    assert assessment.correct, [v for v in assessment.verdicts if v.outcome is not Outcome.PASS]


@pytest.mark.parametrize("name", QUICK_WRONG)
def test_a_cheating_kernel_is_refused_by_the_gate_meant_for_it(bench, tasks, name):
    refused_as_meant(bench, tasks, name)


@pytest.mark.parametrize("name", [n for n, c in WRONG.items() if c.gate == "screen"])
def test_what_the_text_gives_away_is_refused_at_once(bench, tasks, name):
    refused_as_meant(bench, tasks, name)
