"""The matmul recipe: recognises many spellings, renders what it recognised, declines the rest with a reason."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maxkernel_nb.errors import Declined

BF16, F32 = "bfloat16", "float32"


def arrays(m=2048, n=1024, k=1024, dtype=BF16, **more):
    sizes = {"m": m, "n": n, "k": k}
    extra = {name: (tuple(sizes.get(s, s) for s in shape), dtype) for name, shape in more.items()}
    return {"x": ((m, k), dtype), "w": ((k, n), dtype), **extra}


def plain(x, w):
    return x @ w


def gelu(x, w, b):
    return jax.nn.gelu(x @ w + b)


def erf_gelu(x, w, b):
    return jax.nn.gelu(jnp.dot(x, w) + b, approximate=False)


def residual(x, w, b, r):
    return r + 0.5 * jax.nn.silu(jnp.einsum("mk,kn->mn", x, w) + b)


def softmax(x, w, b):
    return jax.nn.softmax(x @ w + b, axis=-1)


def layer_norm(x, w, b, g):
    y = x @ w
    centred = y - jnp.mean(y, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + 1e-5) * g + b


def row_max(x, w, b):
    return jnp.max(jax.nn.elu(x @ w - b), axis=1)


def row_mean(x, w):
    return jnp.mean(jnp.square(x @ w), axis=1, keepdims=True)


def logsumexp(x, w):
    return jax.scipy.special.logsumexp(x @ w, axis=-1)


def column_scale(x, w, s):
    return (x @ w) * s[:, None] + 1.0


def mish(x, w, b):
    y = x @ w + b
    return y * jnp.tanh(jax.nn.softplus(y))


def select(x, w, b):
    y = x @ w
    return jnp.where(y > b, y, 0.1 * y)


EPILOGUES = [
    (plain, {}), (gelu, {"b": ("n",)}), (erf_gelu, {"b": ("n",)}), (residual, {"b": ("n",), "r": ("m", "n")}),
    (softmax, {"b": ("n",)}), (layer_norm, {"b": ("n",), "g": ("n",)}), (row_max, {"b": ("n",)}), (row_mean, {}),
    (logsumexp, {}), (column_scale, {"s": ("m",)}), (mish, {"b": ("n",)}), (select, {"b": ("n",)}),
]


@pytest.mark.parametrize(("function", "more"), EPILOGUES, ids=lambda v: getattr(v, "__name__", ""))
def test_rendered_epilogue_equals_the_function(bench, function, more):
    small = arrays(96, 256, 256, **more)
    match = bench.recognise("matmul", function, arrays(**more), small)
    bench.assert_agrees(function, bench.kernel("matmul", match), small)


def test_depth_in_steps_masks_what_lies_past_a_ragged_end(bench):
    match = bench.recognise("matmul", gelu, arrays(b=("n",)), arrays(96, 256, 256, b=("n",)))
    kernel = bench.kernel("matmul", match, BLOCK_K=256)
    bench.assert_agrees(gelu, kernel, arrays(40, 200, 300, b=("n",)))


@pytest.mark.parametrize(("function", "more", "blocks"), [
    (row_max, {"b": ("n",)}, {"BLOCK_K": 256}), (row_mean, {}, {}), (row_mean, {}, {"BLOCK_N": 256}),
])
def test_a_reduction_at_the_very_end_is_taken_block_by_block(bench, function, more, blocks):
    found = bench.recognise("matmul", function, arrays(**more), arrays(96, 256, 256, **more))
    (match,) = bench.recipes["matmul"].others(found)
    assert match.fold >= 0 and not match.holds_rows
    bench.assert_agrees(function, bench.kernel("matmul", match, **blocks), arrays(40, 700, 300, **more))


def weighted_norm(x, w, s, r):
    """Statistics of a second look (the variance), a number of each row and a whole second input after it."""
    y = x @ w * s[:, None]
    centred = y - jnp.mean(y, axis=-1, keepdims=True)
    return centred / jnp.sqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + 1e-5) * s[:, None] + r


@pytest.mark.parametrize(("function", "more"), [
    (softmax, {"b": ("n",)}), (logsumexp, {}), (weighted_norm, {"s": ("m",), "r": ("m", "n")}),
], ids=lambda v: getattr(v, "__name__", ""))
def test_rows_are_reduced_while_blocks_of_columns_are_multiplied(bench, function, more):
    """Several blocks each way, the last ones ragged: results come one block of rows behind, columns turn round."""
    match = bench.recognise("matmul", function, arrays(4096, 8192, 4096, **more), arrays(96, 256, 256, **more))
    assert match.by_columns
    kernel = bench.kernel("matmul", match, BLOCK_M=128, BLOCK_N=256)
    bench.assert_agrees(function, kernel, arrays(300, 700, 128, **more))


@pytest.mark.parametrize(("chip", "m", "n", "k"), [("v5p", 4096, 4096, 4096), ("v6e", 8192, 1024, 1024)])
def test_whole_rows_stay_in_one_block_where_cores_share_a_grid_or_columns_are_few(bench, chip, m, n, k):
    match = bench.recognise("matmul", softmax, arrays(m, n, k, b=("n",)), arrays(96, 256, 256, b=("n",)), chip=chip)
    assert match.holds_rows and not match.by_columns


@pytest.mark.parametrize(("equation", "x", "w"), [
    ("mk,kn->mn", "mk", "kn"), ("mk,nk->mn", "mk", "nk"), ("km,kn->mn", "km", "kn"), ("nk,mk->mn", "nk", "mk"),
    ("abk,kn->abn", "abk", "kn"), ("abk,khd->abhd", "abk", "khd"),
])
def test_operands_may_lie_in_any_order(bench, equation, x, w):
    def product(x, w):
        return jnp.einsum(equation, x, w)

    def shapes(**sizes):
        return {name: (tuple(sizes[a] for a in axes), BF16) for name, axes in (("x", x), ("w", w))}

    small = shapes(m=64, n=256, k=128, a=2, b=48, h=2, d=64)
    match = bench.recognise("matmul", product, shapes(m=512, n=1024, k=1024, a=4, b=512, h=8, d=128), small)
    bench.assert_agrees(product, bench.kernel("matmul", match), small)


@pytest.mark.parametrize("after", [lambda y: y.T + 1.0, lambda y: jnp.max(y, axis=0)], ids=["transposed", "columns"])
def test_what_runs_along_columns_is_the_transposed_product_along_rows(bench, after):
    def function(x, w):
        return after(x @ w)

    small = arrays(96, 256, 256)
    match = bench.recognise("matmul", function, arrays(), small)
    assert (match.lhs, match.rhs) == (1, 0)
    bench.assert_agrees(function, bench.kernel("matmul", match), small)


def test_inputs_narrowed_before_the_product_are_multiplied_as_bfloat16(bench):
    def narrowed(x, w):
        return jnp.dot(x.astype(jnp.bfloat16), w.astype(jnp.bfloat16), preferred_element_type=jnp.float32)

    match = bench.recognise("matmul", narrowed, arrays(dtype=F32), arrays(64, 256, 128, dtype=F32))
    assert match.narrowed == (True, True)
    assert match.dots_dtype == BF16


def scaled_whole_numbers(x, w, s):
    return jax.nn.relu(jax.lax.dot(x, w, preferred_element_type=jnp.int32).astype(jnp.float32) * s).astype(jnp.bfloat16)


def test_int8_is_added_up_in_int32_and_scaled_in_the_kernel(bench):
    def shapes(m, n, k):
        return {"x": ((m, k), "int8"), "w": ((k, n), "int8"), "s": ((n,), F32)}

    match = bench.recognise("matmul", scaled_whole_numbers, shapes(2048, 1024, 1024), shapes(96, 256, 256))
    assert match.dots_dtype == "int8"
    bench.assert_agrees(scaled_whole_numbers, bench.kernel("matmul", match, BLOCK_K=256), shapes(40, 256, 512))


@pytest.mark.parametrize(("function", "reason"), [
    (lambda x, w: (x @ w) @ w, "2 matrix products"),
    (lambda x, w: x + w, "0 matrix products"),
    (lambda x, w: jnp.tanh(x) @ w, "an operand of the product is tanh"),
    (lambda x, w: jnp.sum(jnp.exp(x @ w)), "neither the product's shape"),
    (lambda x, w: (x @ w).max(0) + (x @ w).max(1), "does not reduce whole rows|lie along"),
    (lambda x, w: (x @ w) + (x @ w).T, "transposed|lie along"),
    (lambda x, w: jnp.sort(x @ w, axis=-1), "sort"),
    (lambda x, w: jnp.cumsum(x @ w, axis=-1), "cumsum"),
    (lambda x, w: (x @ w, x), "returns 2 arrays"),
    (lambda x, w: jnp.einsum("mk,kn->mnk", x, w).sum(-1), "several dimensions at once"),
])
def test_declines_with_the_reason(bench, function, reason):
    function.__name__ = "declined"
    shape = {"x": ((256, 256), BF16), "w": ((256, 256), BF16)}
    with pytest.raises(Declined, match=reason):
        bench.recognise("matmul", function, shape, shape, source="")


def test_points_that_cannot_work_are_declined(bench):
    recipe = bench.recipes["matmul"]
    found = bench.recognise("matmul", softmax, arrays(4096, 8192, 4096, b=("n",)), arrays(96, 256, 256, b=("n",)))
    with pytest.raises(Declined, match="takes whole"):
        recipe.check(found, {"BLOCK_M": 512, "BLOCK_N": 512, "BLOCK_K": 256})
    (match,) = recipe.others(found)
    with pytest.raises(Declined, match="MiB of VMEM"):
        recipe.check(match, {"BLOCK_M": 2048, "BLOCK_K": 4096})
    with pytest.raises(Declined, match="multiple of 128"):
        recipe.check(match, {"BLOCK_M": 128, "BLOCK_K": 200})
    with pytest.raises(Declined, match="unknown constants BLOCK_N"):
        recipe.check(match, {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 256})
    for seed in recipe.space(match).seeds:
        recipe.check(match, seed)


def test_kernel_says_what_it_does_not_accept(bench):
    match = bench.recognise("matmul", plain, arrays(), arrays(96, 256, 256))
    kernel = bench.kernel("matmul", match)
    with pytest.raises(ValueError, match="rank 2"):
        jax.eval_shape(kernel, np.zeros((2, 4, 8), np.float32), np.zeros((8, 8), np.float32))
    with pytest.raises(NotImplementedError, match="k=4096"):
        jax.eval_shape(kernel, np.zeros((8, 4096), np.float32), np.zeros((4096, 8), np.float32))


UNARY = [jax.nn.gelu, jax.nn.relu, jax.nn.silu, jnp.tanh, jax.nn.sigmoid, jnp.square, jnp.abs, jax.nn.softplus,
         jax.nn.elu, jax.nn.hard_swish, lambda y: y * 0.3, lambda y: 2.0 - y, lambda y: jnp.clip(y, -1.0, 2.0)]
BINARY = [lambda y, b, r: y + b, lambda y, b, r: y * b, lambda y, b, r: y - r, lambda y, b, r: jnp.maximum(y, r),
          lambda y, b, r: jnp.where(r > 0, y, b)]
REDUCE = [lambda y: y, lambda y: jnp.exp(y).sum(-1), lambda y: y.max(-1, keepdims=True), lambda y: jnp.abs(y).mean(-1),
          lambda y: y / jnp.linalg.norm(y, axis=-1, keepdims=True), jax.nn.softmax]


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(UNARY + BINARY), min_size=1, max_size=5), st.sampled_from(REDUCE))
def test_drawn_epilogues_are_recognised_and_trace(bench, steps, last):
    def drawn(x, w, b, r):
        y = x @ w + b + r
        for step in steps:
            y = step(y) if step in UNARY else step(y, b, r)
        return last(y)

    more = {"b": ("n",), "r": ("m", "n")}
    small = arrays(96, 256, 256, **more)
    match = bench.recognise("matmul", drawn, arrays(**more), small, source="")
    kernel = bench.kernel("matmul", match)
    specs = [jax.ShapeDtypeStruct(s, d) for s, d in small.values()]
    found, own = jax.eval_shape(kernel, *specs), jax.eval_shape(drawn, *specs)
    assert (found.shape, found.dtype) == (own.shape, own.dtype)
