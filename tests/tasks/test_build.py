"""From a function to a task: complete, quick, the same every time."""

from __future__ import annotations

import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from maxkernel_nb.errors import TaskError, UsageError
from maxkernel_nb.store import ObjectStore
from maxkernel_nb.task import CaseRole, KernelTask
from maxkernel_nb.tasks.build import build_task, source_of, trace_case

WEIGHTS = jnp.ones((256, 128), jnp.bfloat16)


def attention(q, k, v):
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(q.shape[-1])
    scores = jnp.where(jnp.tri(q.shape[2], dtype=bool), scores, -1e30)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1), v)


def gemm(x, w, b, *, scale=1.0, approximate=True):
    return jax.nn.gelu((x @ w + b) * scale, approximate=approximate)


GEMM = "x: bf16[1024,512], w: bf16[512,256], b: bf16[256]"


@pytest.fixture
def store(tmp_path):
    return ObjectStore(tmp_path)


def test_attention_at_full_size_is_built_within_seconds(store):
    shapes = ", ".join(f"{n}: bf16[4,64,4096,128]" for n in "qkv")
    build_task(gemm, shapes=GEMM, store=store)  # imports and first traces are not what is timed
    start = time.process_time()
    built = build_task(attention, shapes=shapes, store=store)
    assert time.process_time() - start < 4
    task = built.task
    assert (task.name, task.entry, task.params, task.chip) == ("attention", "attention", ("q", "k", "v"), "v6e")
    assert task.source.startswith("def attention(q, k, v):")
    assert len(task.check_cases) == 4 and task.check_cases[-1].role is CaseRole.RAGGED
    assert built.trace("timing").in_avals[0].shape == (4, 64, 4096, 128)
    assert built.trace("small").in_avals[0].shape == task.check_cases[0].args[0].shape
    assert KernelTask.from_dict(task.to_dict()) == task


def test_every_check_case_has_its_own_and_its_oracle_and_the_timing_case_its_device_export(store):
    task = build_task(gemm, shapes=GEMM, store=store).task
    for case in task.check_cases:
        reference = task.reference(case.name)
        own, oracle = (export.deserialize(bytearray(store.get(d))) for d in (reference.own, reference.oracle))
        assert [a.shape for a in own.in_avals] == [a.shape for a in case.args]
        assert {str(a.dtype) for a in oracle.in_avals} == {"float64"}
        assert own.out_avals[0].shape == oracle.out_avals[0].shape
    assert store.get(task.reference("timing").device)


def test_the_same_function_and_inputs_give_the_same_task(store, tmp_path):
    make = lambda key: {"x": jax.random.normal(key, (1024, 512)), "w": jnp.ones((512, 256)), "b": jnp.zeros(256)}  # noqa: E731
    first = build_task(gemm, inputs=make, store=store).task
    second = build_task(gemm, inputs=make, store=ObjectStore(tmp_path / "other")).task
    assert first.digest() == second.digest()
    assert first.digest() != build_task(gemm, inputs=make, static=["scale=2.0"], store=store).task.digest()


def test_options_are_written_into_the_task(store):
    task = build_task(
        gemm, source="# the cell", name="fast", shapes=GEMM, static=["scale=0.5"], chip="v5e", atol=0.1, store=store
    ).task
    assert (task.name, task.entry, task.source, task.chip) == ("fast", "gemm", "# the cell", "v5e")
    assert task.static == {"scale": 0.5, "approximate": True}
    assert task.tolerance.loosened and task.tolerance.atol == 0.1


class Layer:
    def __init__(self):
        self.gain = 3.0

    def scaled(self, x):
        return x * self.gain


def power(x, n):
    return x**n


def halves(x):
    return {"low": x[..., : x.shape[-1] // 2], "sums": (x.sum(-1), x.sum())}


def projected(x):
    return x @ WEIGHTS


def dot_product_attention(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


def by_segment(x, ids, keep):
    same = ids[:, None] == ids[None, :]
    return jnp.where(keep, jnp.where(same, x @ x.T, 0), -1.0)


def gated(x, scale):
    return x * scale


ODD = {
    "jitted": (jax.jit(gemm), GEMM, ()),
    "jitted with a static argument": (jax.jit(power, static_argnames="n"), "x: f32[512,256]", ["n=3"]),
    "partial": (functools.partial(power, n=2), "x: f32[512,256]", ()),
    "vmapped": (jax.vmap(gemm), "x: f32[16,512,128], w: f32[16,128,256], b: f32[16,256]", ()),
    "method": (Layer().scaled, "x: f32[512,256]", ()),
    "several outputs": (halves, "x: f32[512,256]", ()),
    "closure over an array": (projected, "x: bf16[1024,256]", ()),
    "grouped dot_product_attention": (
        dot_product_attention, "q: bf16[2,1024,8,64], k: bf16[2,1024,2,64], v: bf16[2,1024,2,64]", ()),
    "integers and booleans": (by_segment, "x: f32[512,64], ids: i32[512] 0..4, keep: bool[512,512]", ()),
    "a scalar array": (gated, "x: f32[512,256], scale: f32[]", ()),
}  # fmt: skip


@pytest.mark.parametrize("what", ODD)
def test_odd_functions_become_tasks(what, store):
    fn, shapes, static = ODD[what]
    built = build_task(fn, shapes=shapes, static=static, store=store)
    assert len(built.task.check_cases) >= 3
    assert built.task.entry.isidentifier() and built.task.entry in built.task.source
    assert any("closes over" in n for n in built.notes) == (what == "closure over an array")


def test_x64_in_the_notebook_is_no_obstacle(store):
    from maxkernel_nb import compat

    with compat.enable_x64():
        task = build_task(gemm, shapes=GEMM.replace("bf16", "f64"), store=store).task
    own = export.deserialize(bytearray(store.get(task.reference("small").own)))
    assert str(own.out_avals[0].dtype) == "float64"


def test_a_task_read_back_is_traced_again_with_the_function_of_its_name(store):
    built = build_task(gemm, shapes=GEMM, store=store)
    task = KernelTask.from_dict(built.task.to_dict())
    assert str(trace_case(gemm, task, "small")) == str(built.trace("small"))
    with pytest.raises(TaskError, match="no case 'tiny'"):
        trace_case(gemm, task, "tiny")


def test_a_lambda_needs_a_name(store):
    with pytest.raises(UsageError, match="--name"):
        build_task(lambda x: x, shapes="x: f32[256,256]", store=store)
    assert build_task(lambda x: x * 2, name="twice", shapes="x: f32[256,256]", store=store).task.entry == "twice"


def test_a_function_without_source_asks_for_it(store):
    scope = {}
    exec("def typed(x): return x", scope)
    with pytest.raises(UsageError, match="source"):
        source_of(scope["typed"])


@pytest.mark.parametrize("options", [{"atol": -1.0}, {"rtol": float("nan")}, {"atol": float("inf")}])
def test_a_tolerance_must_be_one(options, store):
    with pytest.raises(UsageError, match="tolerance"):
        build_task(gemm, shapes=GEMM, store=store, **options)


def test_shapes_that_do_not_fit_give_the_functions_own_error(store):
    with pytest.raises(TaskError, match="gemm does not trace") as caught:
        build_task(gemm, shapes=GEMM.replace("512,256", "100,256"), store=store)
    assert isinstance(caught.value.__cause__, TypeError)


def test_nothing_is_written_when_the_task_is_refused(store):
    with pytest.raises(TaskError):
        build_task(lambda x: jax.debug.print("x") or x, name="f", shapes="x: f32[256,256]", store=store)
    assert not list(store.root.rglob("*"))
