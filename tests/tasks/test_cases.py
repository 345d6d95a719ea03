"""Check cases: equal dimensions stay equal, all are confirmed by the reference, none is too much work."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maxkernel_nb.errors import TaskError, UsageError
from maxkernel_nb.task import CaseRole
from maxkernel_nb.tasks.cases import derive_cases
from maxkernel_nb.tasks.shapes import parse_shapes
from maxkernel_nb.tasks.tracing import Tracer
from maxkernel_nb.tasks.work import work


def derive(fn, shapes, static=None, overrides=()):
    args = parse_shapes(shapes)
    return derive_cases(args, Tracer(fn, [a.name for a in args], static or {}), overrides)


def attention(q, k, v):
    groups = q.shape[1] // k.shape[1]
    k, v = jnp.repeat(k, groups, 1), jnp.repeat(v, groups, 1)
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1), v)


def check_invariants(fn, cases, limit=0.3e9):
    timing, rest = cases[0], cases[1:]
    assert timing.role is CaseRole.TIMING
    assert sum(c.role is CaseRole.CHECK for c in rest) >= 3
    assert len({c.name for c in cases}) == len(cases)
    assert len({c.shapes for c in rest}) == len(rest)
    for case in rest:
        sizes = {}
        for full, small in zip(timing.args, case.args, strict=True):
            assert (full.name, full.dtype) == (small.name, small.dtype)
            for before, after in zip(full.shape, small.shape, strict=True):
                assert sizes.setdefault(before, after) == after, case.shapes
        traced = Tracer(fn, [a.name for a in case.args], {})(case.args)
        assert work(traced.closed) <= limit
        assert case.role is CaseRole.CHECK or any(d % 8 for a in case.args for d in a.shape)


sizes = st.sampled_from([24, 64, 100, 128, 192, 256, 1000, 1024, 2048, 4096, 8192, 32000])


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sizes, sizes, sizes)
def test_any_matmul_gets_three_confirmed_cases(m, k, n):
    def gemm(x, w, b):
        return jax.nn.gelu(x @ w + b)

    check_invariants(gemm, derive(gemm, f"x: bf16[{m},{k}], w: bf16[{k},{n}], b: bf16[{n}]"))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([1, 2, 4, 16]), st.sampled_from([(8, 8), (32, 8), (64, 8), (16, 1), (40, 5)]),
    st.sampled_from([512, 1000, 4096]), st.sampled_from([64, 128, 256]),
)  # fmt: skip
def test_any_attention_gets_three_confirmed_cases(batch, heads, length, dim):
    many, few = heads
    shapes = f"q: bf16[{batch},{many},{length},{dim}]"
    shapes += "".join(f", {n}: bf16[{batch},{few},{length},{dim}]" for n in "kv")
    cases = derive(attention, shapes)
    check_invariants(attention, cases)
    if len({batch, many, few, length, dim}) == 5:
        assert max(c.args[0].shape[2] for c in cases[1:]) >= 256  # several blocks of a sequence


def test_grouped_heads_stay_grouped():
    cases = derive(attention, "q: bf16[4,64,4096,128], k: bf16[4,8,4096,128], v: bf16[4,8,4096,128]")
    assert all(c.args[0].shape[1] > c.args[1].shape[1] for c in cases)
    assert all(c.args[0].shape[3] == 128 for c in cases)


def test_m_n_and_k_all_differ_in_some_case():
    cases = derive(lambda x, w: x @ w, "x: f32[4096,2048], w: f32[2048,8192]")
    assert any(len({*c.args[0].shape, *c.args[1].shape}) == 3 for c in cases[1:])


def test_sizes_written_into_the_function_stay():
    def hard(x, w):
        return (x.reshape(-1, 64, 128) * 2).reshape(-1, 8192) @ w

    cases = derive(hard, "x: f32[4096,8192], w: f32[8192,1024]")
    check_invariants(hard, cases, limit=3e9)
    assert all(c.args[0].shape[1] == 8192 for c in cases)


def test_a_packed_projection_keeps_its_ratio():
    def packed(x, w, o):
        a, b, c = jnp.split(x @ w, 3, -1)
        return (a * b + c) @ o

    cases = derive(packed, "x: bf16[2048,4096], w: bf16[4096,12288], o: bf16[4096,4096]")
    check_invariants(packed, cases)
    assert all(c.args[1].shape[1] == 3 * c.args[1].shape[0] for c in cases)


def test_a_convolutions_window_stays():
    def conv(x, w):
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    cases = derive(conv, "x: bf16[64,56,56,256], w: bf16[3,3,256,512]")
    check_invariants(conv, cases)
    assert all(c.args[1].shape[:2] == (3, 3) for c in cases)


def test_taps_that_the_function_counts_stay():
    """An index past the end raises nothing: two taps for four would be another function."""

    def causal(x, w):
        padded = jnp.pad(x, ((0, 0), (3, 0), (0, 0)))
        return sum(padded[:, i : i + x.shape[1]] * w[i] for i in range(4))

    cases = derive(causal, "x: bf16[4,4096,2048], w: bf16[4,2048]")
    assert {case.args[1].shape[0] for case in cases} == {4}


def test_groups_of_channels_written_into_the_function_are_found():
    def group_norm(x, w):
        y = (x @ w).reshape(x.shape[0], 256, -1)
        return ((y - y.mean(-1, keepdims=True)) / y.std(-1, keepdims=True)).reshape(x.shape[0], -1)

    cases = derive(group_norm, "x: bf16[4096,8192], w: bf16[8192,8192]")
    check_invariants(group_norm, cases)


def test_indices_stay_inside_the_dimension_they_point_into():
    def loss(logits, labels):
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()

    cases = derive(loss, "logits: f32[8192,32000], labels: i32[8192] 0..32000")
    assert all(c.args[1].draw.high == c.args[0].shape[1] for c in cases)


def test_lengths_stay_within_the_dimension_they_count():
    def masked(x, lengths):
        return jnp.where(jnp.arange(x.shape[1]) < lengths[:, None], x, 0).sum(-1)

    cases = derive(masked, "x: f32[512,4096], lengths: i32[512] 1..4097")
    assert all((c.args[1].draw.low, c.args[1].draw.high) == (1, c.args[0].shape[1] + 1) for c in cases)


def test_a_vector_of_offsets_stays_one_longer():
    def by_offset(x, offsets):
        return x * (offsets[1:] - offsets[:-1])[:, None]

    cases = derive(by_offset, "x: f32[512,2048], offsets: i32[513] 0..512")
    assert all(c.args[1].shape[0] == c.args[0].shape[0] + 1 for c in cases)


def test_a_small_task_is_checked_as_it_is():
    cases = derive(lambda x, y: x @ y, "x: f32[64,64], y: f32[64,32]")
    assert any(c.args == cases[0].args for c in cases[1:])


def test_outputs_of_another_structure_do_not_count():
    def by_size(x):
        return (x, x) if x.shape[0] < 200 else x

    cases = derive(by_size, "x: f32[4096,1024]")
    assert all(c.args[0].shape[0] >= 200 for c in cases)


def test_as_many_steps_as_a_fixed_width_can_still_change():
    """The width is heads times state, written into the function; the number of steps happens to equal it."""
    def fn(x, w):
        return (x.reshape(x.shape[0], 4, 64) * w).reshape(x.shape)

    cases = derive(fn, "x: f32[256,256], w: f32[64]")
    shapes = [c.args[0].shape for c in cases if c.role is CaseRole.CHECK]
    assert all(width == 256 for _, width in shapes) and len({steps for steps, _ in shapes}) >= 3


def test_a_reference_that_fixes_everything_asks_for_cases():
    def fixed(x):
        assert x.shape == (4096, 8192)
        return x

    with pytest.raises(TaskError, match="--case") as caught:
        derive(fixed, "x: f32[4096,8192]")
    assert "\n" not in str(caught.value)


def test_own_cases_are_added_and_three_replace_the_derived_ones():
    shapes = "x: f32[4096,2048], i: i32[4096] 0..2048"
    one = derive(lambda x, i: x + i[:, None], shapes, overrides=["x: f32[96,160], i: i32[96]"])
    assert [c.name for c in one] == ["timing", "case-1", "small", "medium", "wide", "ragged"]
    assert one[1].args[1].draw.high == 160
    three = derive(
        lambda x, i: x + i[:, None], shapes, overrides=[f"x: f32[{n},160], i: i32[{n}]" for n in (96, 112, 128)]
    )
    assert [c.name for c in three] == ["timing", "case-1", "case-2", "case-3", "ragged"]


@pytest.mark.parametrize("text", ["y: f32[3,3]", "x: f32[3]", "x: bf16[3,3]", "x: f32[3"])
def test_a_case_that_does_not_fit_the_task_is_refused(text):
    with pytest.raises(UsageError) as caught:
        derive(lambda x: x, "x: f32[4096,2048]", overrides=[text])
    assert "\n" not in str(caught.value)


def test_work_counts_products_loops_and_elements():
    def loop(x):
        return jax.lax.scan(lambda c, _: (c @ c, None), x, None, length=5)[0] + 1

    closed = jax.make_jaxpr(loop)(jax.ShapeDtypeStruct((16, 16), jnp.float32))
    assert work(closed) == 5 * 2 * 16**3 + 16**2
    assert math.isfinite(work(closed))
