"""The embedded author over the contract: plan once, then work from the plan's text alone."""

import asyncio
import inspect
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from maxkernel_nb.authors.base import TaskView
from maxkernel_nb.authors.recipe_author import RecipeAuthor
from maxkernel_nb.errors import Declined, TaskError
from maxkernel_nb.task import Assessment, GateName, Outcome, Plan, Verdict
from maxkernel_nb.tpu import aot
from maxkernel_nb.tpu.availability import compiler_available

GEMM = {"x": ((1024, 512), "bfloat16"), "w": ((512, 1024), "bfloat16"), "b": ((1024,), "bfloat16")}
ATTENTION = dict.fromkeys("qkv", ((2, 4, 1024, 128), "bfloat16"))


def gemm(x, w, b, *, power=2):
    return (x @ w + b) ** power


def attention(q, k, v):
    s = jnp.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
    s = jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool)), s, -jnp.inf)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(s, axis=-1), v)


def gone(name):
    raise TaskError("the live function is gone")


def view_of(bench, function, shapes, **options):
    task = bench.task(function, shapes, **options)
    traces = bench.traces(function, task)
    return TaskView(task=task, trace=traces.__getitem__)


def planned(bench, function=gemm, shapes=GEMM, **options):
    view = view_of(bench, function, shapes, **options)
    plan = asyncio.run(RecipeAuthor().plan(view))
    return TaskView(task=view.task, trace=gone), Plan.from_dict(plan.to_dict())


def test_implements_and_retunes_from_the_plan_alone(bench):
    view, plan = planned(bench)
    author = RecipeAuthor()
    first = asyncio.run(author.implement(view, plan))
    assert first.params == plan.tiling and f"BLOCK_M = {first.params['BLOCK_M']}\n" in first.source
    second = author.retune(view, plan, first, {"BLOCK_M": 256})
    assert second.params["BLOCK_M"] == 256 and second.parent == first.id and second.id != first.id
    space = author.tuning_space(view, plan, first)
    assert set(space.axes) == set(first.params) and space.seeds
    with pytest.raises(Declined):
        author.retune(view, plan, first, {"BLOCK_M": 100})


def test_header_is_the_users_and_other_statics_are_refused(bench):
    view, plan = planned(bench, static={"power": 2})
    source = asyncio.run(RecipeAuthor().implement(view, plan)).source
    assert "def gemm(x, w, b, *, power=2):" in source
    space = {}
    exec(source, space)
    with pytest.raises(NotImplementedError, match="power=2"):
        space["gemm"](None, None, None, power=3)
    assert list(inspect.signature(space["gemm"]).parameters) == ["x", "w", "b", "power"]


@pytest.mark.parametrize(("function", "shapes"), [(gemm, GEMM), (attention, ATTENTION)])
def test_source_depends_on_jax_alone_and_says_what_it_does(bench, function, shapes):
    view, plan = planned(bench, function, shapes)
    source = asyncio.run(RecipeAuthor().implement(view, plan)).source
    assert "maxkernel" not in source
    assert source.startswith(f"# {function.__name__}: ")
    assert max(len(line) for line in source.splitlines()) <= 120
    compile(source, "rendered", "exec")


def test_decline_names_every_recipe_and_its_reason(bench):
    view = view_of(bench, lambda x, w, b: jnp.sort(x), GEMM, source="")
    with pytest.raises(Declined, match=r"attention: .*; matmul: it has 0 matrix products"):
        asyncio.run(RecipeAuthor().plan(view))


def failed(gate, candidate):
    verdict = Verdict(gate=gate, outcome=Outcome.FAIL, summary="it did not work")
    return Assessment(candidate=candidate.id, verdicts=(verdict,))


def test_repair_takes_smaller_blocks_after_a_refused_compile_and_declines_wrong_values(bench):
    view, plan = planned(bench, attention, ATTENTION)
    author = RecipeAuthor()
    first = asyncio.run(author.implement(view, plan))
    smaller = asyncio.run(author.repair(view, plan, first, failed(GateName.COMPILE, first)))
    assert smaller.parent == first.id
    assert sum(smaller.params.values()) < sum(first.params.values())
    with pytest.raises(Declined, match="it did not work"):
        asyncio.run(author.repair(view, plan, first, failed(GateName.CHECK, first)))


COMPILE = """
import sys
import jax, jax.export
from pathlib import Path
from maxkernel_nb.tpu.aot import compile_exported
space = {}
exec(Path(sys.argv[1]).read_text(), space)
specs = [jax.ShapeDtypeStruct(tuple(map(int, a.split(","))), "bfloat16") for a in sys.argv[4:]]
exported = jax.export.export(jax.jit(space[sys.argv[2]]), platforms=["tpu"])(*specs)
assert "tpu_custom_call" in exported.mlir_module()
compile_exported(bytes(exported.serialize()), sys.argv[3])
"""


@pytest.mark.tpu_compiler
@pytest.mark.skipif(not compiler_available()[0], reason="no TPU compiler here")
@pytest.mark.parametrize("chip", ["v4", "v5e", "v6e", "v7x"])
@pytest.mark.parametrize(("function", "shapes"), [(gemm, GEMM), (attention, ATTENTION)])
def test_compiles_for_the_chip(bench, tmp_path, function, shapes, chip):
    view, plan = planned(bench, function, shapes, chip=chip)
    candidate = asyncio.run(RecipeAuthor().implement(view, plan))
    Path(tmp_path, "kernel.py").write_text(candidate.source)
    arrays = [",".join(map(str, shape)) for shape, _ in shapes.values()]
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, str(tmp_path / "kernel.py"), function.__name__, chip, *arrays],
        env={**os.environ, **aot.worker_environment()}, capture_output=True, text=True, timeout=300, check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_what_only_the_judge_can_tell_apart_is_named_as_other_plans(bench):
    def loss(x, w, y):
        logits = (x @ w).astype(jnp.float32)
        return jax.nn.logsumexp(logits, axis=-1) - jnp.take_along_axis(logits, y[:, None], axis=-1)[:, 0]

    shapes = {"x": ((1024, 512), "bfloat16"), "w": ((512, 4096), "bfloat16"), "y": ((1024,), "int32")}
    view, author = view_of(bench, loss, shapes), RecipeAuthor()
    first = asyncio.run(author.plan(view))
    [other] = asyncio.run(author.other_plans(view))
    assert other.recipe == first.recipe == "loss" and "lane" in other.strategy and "lane" not in first.strategy
    made = [asyncio.run(author.implement(view, p)) for p in (first, other)]
    assert made[0].id != made[1].id and made[0].bound_ms == made[1].bound_ms
    assert asyncio.run(author.other_plans(view_of(bench, gemm, GEMM))) == ()
