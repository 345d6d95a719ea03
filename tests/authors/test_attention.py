"""The attention recipe: spellings of one computation, what the kernel makes of them, and honest declines."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from maxkernel_nb.errors import Declined
from maxkernel_nb.tpu.chips import chip

BF16 = "bfloat16"


def heads_first(batch=2, heads=4, length=1024, dim=128, kv_heads=None, kv_length=None, **more):
    kv = (batch, kv_heads or heads, kv_length or length, dim)
    return {"q": ((batch, heads, length, dim), BF16), "k": (kv, BF16), "v": (kv, BF16), **more}


def attend(q, k, v, change=lambda s: s):
    s = jnp.einsum("bhqd,bhkd->bhqk", q, k, preferred_element_type=jnp.float32) * q.shape[-1] ** -0.5
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(change(s), axis=-1).astype(v.dtype), v)


def triangle(s, k=0):
    return jnp.tril(jnp.ones(s.shape[-2:], bool), k)


def full(q, k, v):
    return attend(q, k, v)


def causal(q, k, v):
    return attend(q, k, v, lambda s: jnp.where(triangle(s), s, -jnp.inf))


def causal_added(q, k, v):
    return attend(q, k, v, lambda s: s + jnp.triu(jnp.full(s.shape[-2:], -1e9), k=1))


def causal_to_the_end(q, k, v):
    return attend(q, k, v, lambda s: jnp.where(triangle(s, s.shape[-1] - s.shape[-2]), s, -jnp.inf))


def soft_cap(q, k, v):
    return attend(q, k, v, lambda s: jnp.where(triangle(s), 30.0 * jnp.tanh(s / 30.0), -1e30))


def window(q, k, v):
    def change(s):
        i, j = jnp.arange(s.shape[-2])[:, None], jnp.arange(s.shape[-1])[None]
        return jnp.where((j <= i) & (i - j < 100), s, -jnp.inf)

    return attend(q, k, v, change)


def by_hand(q, k, v):
    s = jnp.matmul(q * 0.125, k.swapaxes(-1, -2))
    e = jnp.exp(s - jnp.max(s, axis=-1, keepdims=True))
    return jnp.matmul(e, v) / jnp.sum(e, axis=-1, keepdims=True)


def repeated(q, k, v):
    g = q.shape[1] // k.shape[1]
    return causal(q, jnp.repeat(k, g, axis=1), jnp.repeat(v, g, axis=1))


def tiled(q, k, v):
    g = q.shape[1] // k.shape[1]
    return full(q, jnp.tile(k, (1, g, 1, 1)), jnp.tile(v, (1, g, 1, 1)))


def grouped(q, k, v):
    b, h, n, d = q.shape
    split = q.reshape(b, k.shape[1], -1, n, d)
    s = jnp.einsum("bngqd,bnkd->bngqk", split, k) / jnp.sqrt(d).astype(q.dtype)
    s = jnp.where(jnp.arange(n)[:, None] >= jnp.arange(n)[None], s, -1e9)
    return jnp.einsum("bngqk,bnkd->bngqd", jax.nn.softmax(s, -1), v).reshape(b, h, n, d)


GROUPED = heads_first(kv_heads=2)


@pytest.mark.parametrize(("function", "timing", "small", "wanted"), [
    (full, heads_first(), heads_first(1, 1, 256), {"causal": ""}),
    (full, heads_first(kv_length=2048), heads_first(1, 1, 200, 64, kv_length=300), {"causal": ""}),
    (causal, heads_first(), heads_first(1, 1, 384), {"causal": "square"}),
    (causal, heads_first(), heads_first(1, 1, 200, 64), {"causal": "square"}),
    (causal_added, heads_first(), heads_first(1, 1, 256), {"causal": "square"}),
    (causal_to_the_end, heads_first(kv_length=2048), heads_first(1, 1, 256, kv_length=384), {"causal": "end"}),
    (soft_cap, heads_first(), heads_first(1, 1, 256), {"causal": "square"}),
    (window, heads_first(), heads_first(1, 1, 384), {"causal": "square", "window": 100}),
    (by_hand, heads_first(dim=64), heads_first(1, 1, 256, 64), {"causal": ""}),
    (repeated, GROUPED, heads_first(1, 4, 256, kv_heads=2), {"grouping": "block"}),
    (tiled, GROUPED, heads_first(1, 4, 128, kv_heads=2), {"grouping": "tile"}),
    (grouped, GROUPED, heads_first(1, 4, 256, kv_heads=2), {"grouping": "block", "causal": "square"}),
], ids=lambda v: getattr(v, "__name__", ""))
def test_spelling_is_recognised_and_the_kernel_agrees(bench, function, timing, small, wanted):
    match = bench.recognise("attention", function, timing, small)
    assert {name: getattr(match, name) for name in wanted} == wanted
    bench.assert_agrees(function, bench.kernel("attention", match), small)


def long_ones(batch=1, kv_heads=2, **more):
    """Keys and values of one head are 128 MiB."""
    return heads_first(batch, 2, 131072, kv_heads=kv_heads, kv_length=262144, **more)


def padded_triangle(q, k, v, m):
    return attend(q, k, v, lambda s: jnp.where(m[:, None, None] & triangle(s, s.shape[-1] - s.shape[-2]), s, -1e9))


@pytest.mark.parametrize(("function", "timing", "small"), [
    (causal_to_the_end, long_ones(kv_heads=1), heads_first(1, 2, 256, kv_heads=1, kv_length=700)),
    (padded_triangle, long_ones(2, m=((2, 262144), "bool")),
     heads_first(2, 1, 128, kv_length=600, m=((2, 600), "bool"))),
    (window, heads_first(1, 2, 262144), heads_first(1, 1, 700)),
], ids=lambda v: getattr(v, "__name__", ""))
def test_keys_that_do_not_fit_are_streamed(bench, function, timing, small):
    match = bench.recognise("attention", function, timing, small)
    recipe = bench.recipes["attention"]
    assert recipe.vmem_bytes(match, {"BLOCK_Q": 128, "BLOCK_K": 128, "ROWS": 128}) > 128 * 2**20
    assert all("SPAN" in seed for seed in recipe.space(match).seeds)
    kernel = bench.kernel("attention", match, SPAN=256, BLOCK_K=128, BLOCK_Q=256, ROWS=128)
    bench.assert_agrees(function, kernel, small)


MASKS = {
    "padding": (lambda s, m: jnp.where(m[:, None, None, :], s, -1e9), "bk", "bool"),
    "whole": (lambda s, m: jnp.where(m, s, jnp.finfo(jnp.float32).min), "b1qk", "bool"),
    "with the triangle": (lambda s, m: jnp.where(m[:, None] & triangle(s), s, -1e9), "bqk", "bool"),
    "numbers": (lambda s, m: s + (1.0 - m[:, None, None, :].astype(jnp.float32)) * -1e9, "bk", "int32"),
    "segments": (lambda s, m: jnp.where(m[:, None, :, None] == m[:, None, None, :], s, -1e30), "bk", "int32"),
    "bias": (lambda s, m: s + m[None].astype(jnp.float32), "hqk", BF16),
}


@pytest.mark.parametrize("kind", MASKS)
def test_masks_and_biases_given_as_inputs(bench, kind):
    change, axes, dtype = MASKS[kind]

    def masked(q, k, v, mask):
        return attend(q, k, v, lambda s: change(s, mask))

    def shapes(batch, heads, length):
        sizes = {"b": batch, "h": heads, "q": length, "k": length, "1": 1}
        return heads_first(batch, heads, length, mask=(tuple(sizes[a] for a in axes), dtype))

    small = shapes(2, 1, 200 if kind == "with the triangle" else 256)
    match = bench.recognise("attention", masked, shapes(2, 8, 1024), small)
    bench.assert_agrees(masked, bench.kernel("attention", match), small)


def library(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


def merged(q, k, v):
    b, n, _ = q.shape
    q, k, v = (a.reshape(b, n, 4, -1).transpose(0, 2, 1, 3) for a in (q, k, v))
    return full(q, k, v).transpose(0, 2, 1, 3).reshape(b, n, -1)


def one_head(q, k, v):
    return jax.nn.softmax(q @ k.T / np.sqrt(q.shape[1])) @ v


def same(shape):
    return dict.fromkeys("qkv", (shape, BF16))


@pytest.mark.parametrize(("function", "timing", "small", "layout"), [
    (library, same((2, 1024, 8, 128)), same((1, 256, 1, 128)), "bshd"),
    (merged, same((2, 1024, 512)), same((1, 256, 512)), "bsm"),
    (one_head, same((1024, 64)), same((256, 64)), "sd"),
], ids=["library", "merged", "one_head"])
def test_layouts(bench, function, timing, small, layout):
    match = bench.recognise("attention", function, timing, small)
    assert match.layouts == (layout,) * 4
    bench.assert_agrees(function, bench.kernel("attention", match), small)


def alibi(q, k, v):
    def change(s):
        return s - 0.1 * jnp.abs(jnp.arange(s.shape[-1])[None] - jnp.arange(s.shape[-2])[:, None])

    return attend(q, k, v, change)


def checkered(q, k, v):
    def change(s):
        i, j = jnp.arange(s.shape[-2])[:, None], jnp.arange(s.shape[-1])[None]
        return jnp.where((i + j) % 2 == 0, s, -jnp.inf)

    return attend(q, k, v, change)


def over_queries(q, k, v):
    s = jnp.einsum("bhqd,bhkd->bhqk", q, k)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(s, axis=-2), v)


def rotated(q, k, v):
    return full(jnp.roll(q, 1, axis=-1), k, v)


def linear(q, k, v):
    return jnp.einsum("bhqk,bhkd->bhqd", jnp.einsum("bhqd,bhkd->bhqk", q, k), v)


@pytest.mark.parametrize(("function", "reason"), [
    (alibi, "position"), (checkered, "not a band"), (over_queries, "does not run over the keys"),
    (rotated, "queries or keys"), (linear, "not a softmax"), (lambda q, k, v: q, "0 matrix products"),
])
def test_declines_with_the_reason(bench, function, reason):
    function.__name__ = "declined"
    with pytest.raises(Declined, match=reason):
        bench.recognise("attention", function, heads_first(), heads_first(1, 2, 256), source="")


def test_points_that_cannot_work_are_declined(bench):
    match = bench.recognise("attention", causal, heads_first(length=4096))
    recipe = bench.recipes["attention"]
    with pytest.raises(Declined, match="multiple of ROWS"):
        recipe.check(match, {"BLOCK_Q": 256, "BLOCK_K": 128, "ROWS": 1024})
    with pytest.raises(Declined, match="as the diagonal needs"):
        recipe.check(match, {"BLOCK_Q": 512, "BLOCK_K": 1024, "ROWS": 256})
    for seed in recipe.space(match).seeds:
        recipe.check(match, seed)


def test_a_chip_with_little_vmem_streams_fewer_keys(bench):
    recipe, facts = bench.recipes["attention"], chip("v4")
    match = bench.recognise("attention", causal, heads_first(1, 1, 65536), chip="v4")
    seeds = recipe.space(match).seeds
    assert seeds and all("SPAN" in s and recipe.vmem_bytes(match, s) < facts.vmem_bytes for s in seeds)


def test_kernel_refuses_lengths_it_was_not_written_for(bench):
    kernel = bench.kernel("attention", bench.recognise("attention", causal, heads_first()))
    specs = [jax.ShapeDtypeStruct(s, d) for s, d in heads_first(1, 1, 128, kv_length=256).values()]
    with pytest.raises(NotImplementedError, match="equal lengths"):
        jax.eval_shape(kernel, *specs)
