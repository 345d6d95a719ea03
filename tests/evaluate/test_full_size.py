"""The timed program run at full size: on rows where the reference is dear, and doubts where nothing can be run."""

import importlib.util
from pathlib import Path

import jax.numpy as jnp
import pytest

from maxkernel_nb.evaluate import apart
from maxkernel_nb.task import GateName, Outcome
from maxkernel_nb.tasks import rows
from maxkernel_nb.tasks.build import build_task

GATES = (GateName.SCREEN, GateName.TRACE, GateName.CHECK)
spec = importlib.util.spec_from_file_location("full_honest", Path(__file__).with_name("suite_honest.py"))
honest = importlib.util.module_from_spec(spec)
spec.loader.exec_module(honest)
DOT = honest.matmul(128, 128, 128)
HALF = DOT.replace(
    "    rows, columns =", "    if x.shape[0] > 1000:\n        x, w = x[:, :512], w[:512]\n    rows, columns ="
)
ONE_TILE = DOT.replace(
    "pl.num_programs(2) - 1)", "pl.num_programs(2) - 1 + (pl.program_id(0) == 5) * (pl.num_programs(0) > 7))"
)


def dot(x, w):
    return jnp.dot(x, w, preferred_element_type=jnp.float32).astype(x.dtype)


def mixed(x):
    return x - jnp.mean(x, axis=0)


def built(bench, function, shapes):
    return build_task(function, shapes=shapes, store=bench.store).task.model_copy(update={"seeds": (0,)})


@pytest.fixture(scope="module")
def on_rows(bench):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rows, "CHEAP", 1e8)
        return built(bench, dot, "x: bf16[1024,1024], w: bf16[1024,512]")


def full(assessment):
    (verdict,) = [v for v in assessment.verdicts if v.variant == apart.FULL]
    return verdict


def test_a_dear_reference_is_run_on_a_few_rows_and_every_row_is_compared(bench, on_rows):
    (part, *_) = on_rows.reference("timing").parts
    assert part.args == (0,) and 0 < part.rows <= 64 and part.work <= 2e9
    assert full(bench.judge(on_rows, DOT, GATES)).outcome is Outcome.PASS
    last = bench.judge(on_rows, ONE_TILE, GATES).verdicts[-1]
    assert (last.outcome, last.variant) == (Outcome.FAIL, apart.FULL) and "full size" in last.summary


def test_rows_that_depend_on_each_other_are_never_taken_apart(bench, monkeypatch):
    monkeypatch.setattr(rows, "CHEAP", 1e6)
    task = built(bench, mixed, "x: f32[1024,256]")
    assert [p.args for p in task.reference("timing").parts] == [(0,), ()]
    source = honest.HEAD + (
        "def _body(x_ref, o_ref):\n    o_ref[...] = x_ref[...] - jnp.mean(x_ref[...], axis=0, keepdims=True)\n"
        "def kernel(x):\n    return pl.pallas_call(_body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)\n"
    )
    assert full(bench.judge(task, source, GATES)).outcome is Outcome.PASS


def test_what_cannot_be_run_passes_only_without_a_doubt_and_says_so(bench, on_rows, monkeypatch):
    monkeypatch.setattr(apart, "LIMIT", 1e6)
    monkeypatch.setattr(apart, "DOUBTED", 1e6)
    assessment = bench.judge(on_rows, DOT + "\n# too large to run here\nTOO_LARGE = 1\n", GATES)
    told = full(assessment)
    assert assessment.correct and told.outcome is Outcome.DECLINED and "too many for a CPU" in told.summary
    assert assessment.verdicts[-1].variant == apart.APART and assessment.verdicts[-1].outcome is Outcome.PASS
    last = bench.judge(on_rows, HALF, GATES).verdicts[-1]
    assert (last.outcome, last.diagnostics[0].kind) == (Outcome.FAIL, "proportion")
    assert "could not be run there" in last.summary and "what is timed must be what was checked" in last.summary
