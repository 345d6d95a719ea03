"""Matmul epilogues nobody wrote down: drawn at test time, recognised, verified and compiled."""

import asyncio
import re

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from maxkernel_nb.authors.base import TaskView
from maxkernel_nb.authors.recipe_author import RecipeAuthor
from maxkernel_nb.evaluate.local import LocalEvaluator
from maxkernel_nb.store import Project
from maxkernel_nb.tasks.build import build_task

UNARY = ["jax.nn.gelu({})", "jax.nn.relu({})", "jax.nn.silu({})", "jnp.tanh({})", "jax.nn.sigmoid({})", "{} * 0.5",
         "jnp.clip({}, -2.0, 2.0)", "jnp.abs({}) + 1.0", "jnp.square({})", "jax.nn.leaky_relu({})"]
BINARY = ["{} + b", "{} * b", "{} + r", "r - {}", "{} * jax.nn.sigmoid(r)", "jnp.maximum({}, b)"]
REDUCE = ["{}", "{}", "jnp.sum({}, axis=-1)", "jnp.max({}, axis=-1)", "jnp.mean({}, axis=-1, keepdims=True)"]
SHAPES = "x: bf16[1024,512], w: bf16[512,1024], b: bf16[1024], r: bf16[1024,1024]"

epilogues = st.tuples(
    st.lists(st.sampled_from(UNARY + BINARY), min_size=2, max_size=4, unique=True), st.sampled_from(REDUCE),
).map(lambda drawn: [*drawn[0], drawn[1]])


def _source(steps):
    used = sorted({name for step in steps for name in re.findall(r"(?<![\w.])[br](?!\w)", step)})
    lines = "".join(f"    y = {step.format('y')}\n" for step in steps)
    return f"def drawn({', '.join(['x', 'w', *used])}):\n    y = x @ w\n{lines}    return y\n", used


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("epilogues")).prepare()
    evaluator = LocalEvaluator(project.objects)
    yield project, evaluator
    evaluator.close()


@pytest.mark.slow
@pytest.mark.tpu_compiler
@pytest.mark.timeout(900)
def test_six_drawn_epilogues_are_recognised_verified_and_compiled(bench):
    seen = []

    @settings(max_examples=6, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck),
              database=None)
    @given(epilogues)
    def judge_one(steps):
        seen.append(_judge(steps, *bench))

    judge_one()
    assert len(set(seen)) >= 5, seen


def _judge(steps, project, evaluator):
    import jax
    import jax.numpy as jnp

    source, used = _source(steps)
    space = {"jax": jax, "jnp": jnp}
    exec(source, space)
    shapes = ", ".join(part for part in SHAPES.split(", ") if part[0] in ("x", "w", *used))
    built = build_task(space["drawn"], source=source, shapes=shapes, store=project.objects)
    view = TaskView(task=built.task, trace=built.trace)

    async def course():
        author = RecipeAuthor()
        plan = await author.plan(view)
        candidate = await author.implement(view, plan)
        return candidate, (await evaluator.judge(built.task, candidate)).assessment

    candidate, assessment = asyncio.run(course())
    told = "\n".join(f"{v.gate} {v.case} {v.outcome}: {v.summary}" for v in assessment.verdicts)
    assert assessment.correct, f"{source}\n{told}\n{candidate.source}"
    assert assessment.modelled_ms, told
    return source
