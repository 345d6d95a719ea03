"""A kernel that will be differentiated must have the reference's gradient: asked for by the task, judged on values."""

import jax.numpy as jnp
import pytest

from maxkernel_nb.errors import TaskError
from maxkernel_nb.task import GateName, Outcome
from maxkernel_nb.tasks.build import build_task

GATES = (GateName.SCREEN, GateName.TRACE, GateName.CHECK)
SHAPES = "x: f32[64,128], g: f32[128], n: i32[64]"


def scaled(x, g, n):
    return x * x * g + n[:, None].astype(x.dtype)


KERNEL = '''
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

def _body(x_ref, g_ref, n_ref, o_ref):
    o_ref[...] = x_ref[...] * x_ref[...] * g_ref[...] + n_ref[...].astype(o_ref.dtype)

def _forward(x, g, n):
    return pl.pallas_call(_body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x, g[None, :], n[:, None])

@jax.custom_vjp
def _scaled(x, g, n):
    return _forward(x, g, n)

def _fwd(x, g, n):
    return _forward(x, g, n), (x, g)

def _bwd(kept, c):
    x, g = kept
    return 2.0 * x * g * c, jnp.sum(x * x * c, axis=0), None

_scaled.defvjp(_fwd, _bwd)

def kernel(x, g, n):
    return _scaled(x, g, n)
'''


@pytest.fixture(scope="module")
def task(bench):
    task = build_task(scaled, shapes=SHAPES, store=bench.store, gradient=True).task
    return task.model_copy(update={"seeds": (0,)})


def judged(bench, task, *changes):
    source = KERNEL
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    return bench.judge(task, source, GATES)


def test_a_kernel_with_the_references_gradient_passes(bench, task):
    assessment = judged(bench, task)
    gradients = [v for v in assessment.verdicts if v.gate is GateName.GRADIENT]
    assert assessment.correct and not assessment.failed
    assert {v.case for v in gradients} == {c.name for c in task.check_cases} and len(gradients) >= 3
    assert all(v.outcome is Outcome.PASS and v.numbers["worst_error_ratio"] <= 1 for v in gradients)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [("2.0 * x * g * c", "x * g * c", "wrong values"), ("jnp.sum(x * x * c", "jnp.sum(x * x", "wrong values"),
     ("    return _scaled(x, g, n)", "    return _forward(x, g, n)", "cannot be differentiated")],
)  # fmt: skip
def test_a_kernel_with_another_gradient_or_none_is_refused_in_a_sentence(bench, task, old, new, words):
    assessment = judged(bench, task, (old, new))
    last = assessment.verdicts[-1]
    assert assessment.correct is False and (last.gate, last.outcome) == (GateName.GRADIENT, Outcome.FAIL)
    assert words in last.summary.lower() and "\n" not in last.summary and "gradient" in last.summary.lower()


def test_the_gradient_is_nobodys_business_unless_asked_for(bench):
    plain = build_task(scaled, shapes=SHAPES, store=bench.store).task.model_copy(update={"seeds": (0,)})
    assessment = judged(bench, plain, ("2.0 * x * g * c", "x * g * c"))
    assert assessment.correct and all(v.gate is not GateName.GRADIENT for v in assessment.verdicts)


def test_a_reference_without_a_gradient_is_told_in_a_sentence(bench):
    def loop(x):
        import jax

        return jax.lax.while_loop(lambda c: jnp.sum(c) < 5, lambda c: c * 2, jnp.abs(x) + 1)

    with pytest.raises(TaskError, match=r"has no gradient .*--gradient off"):
        build_task(loop, shapes="x: f32[64,128]", store=bench.store, gradient=True)


@pytest.fixture(scope="module")
def seen(bench):
    """The notebook differentiates the function; nobody asked with an option."""
    task = build_task(scaled, shapes=SHAPES, store=bench.store, differentiated="jax.grad(loss)").task
    return task.model_copy(update={"seeds": (0,)})


def test_a_differentiated_function_has_the_gradient_in_its_checks(bench, seen):
    told = [v for v in judged(bench, seen).verdicts if v.gate is GateName.GRADIENT]
    assert len(told) >= 3 and all(v.outcome is Outcome.PASS for v in told)
    assert all("jax.grad(loss)" in v.summary for v in told)


def test_a_wrong_gradient_is_refused_where_the_notebook_differentiates(bench, seen):
    last = judged(bench, seen, ("2.0 * x * g * c", "x * g * c")).verdicts[-1]
    assert (last.gate, last.outcome) == (GateName.GRADIENT, Outcome.FAIL) and "jax.grad(loss)" in last.summary


def test_a_kernel_without_a_gradient_is_told_that_the_references_is_used(bench, seen):
    assessment = judged(bench, seen, ("    return _scaled(x, g, n)", "    return _forward(x, g, n)"))
    last = assessment.verdicts[-1]
    assert assessment.correct and not assessment.failed
    assert (last.gate, last.outcome) == (GateName.GRADIENT, Outcome.DECLINED) and "as the reference is" in last.summary


def test_a_notebook_that_differentiates_something_else_of_the_name_changes_nothing(bench):
    task = build_task(lambda n: n + 1, name="plus", source="plus = lambda n: n + 1", shapes="n: i32[64,128]",
                      store=bench.store, differentiated="jax.grad(plus)").task  # fmt: skip
    assert task.gradient is False
