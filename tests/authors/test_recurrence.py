"""The recurrence recipe: spellings of attention without a softmax, what the kernel makes of them, honest declines."""

import jax.numpy as jnp
import numpy as np
import pytest

from maxkernel_nb.errors import Declined

BF16 = "bfloat16"


def shapes(batch=2, heads=4, length=1024, dim=64, **more):
    return {**dict.fromkeys("qkv", ((batch, heads, length, dim), BF16)), **more}


def weigh(q, k, v, change):
    s = jnp.einsum("bhid,bhjd->bhij", q, k, preferred_element_type=jnp.float32)
    return jnp.einsum("bhij,bhjd->bhid", change(s).astype(v.dtype), v)


def causal(s):
    return jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool)), s, 0.0)


def cumulative(q, k, v):
    return weigh(q, k, v, lambda s: causal(s * q.shape[-1] ** -0.5))


def triangle(q, k, v):
    return weigh(q, k, v, lambda s: s * jnp.tril(jnp.ones(s.shape[-2:])) * 0.25)


def squared_mean(q, k, v):
    """Positive features, so that the sum of the weights is no small difference."""

    def mean(s):
        s = causal(s)
        return s / (s.sum(-1, keepdims=True) + 1e-6)

    return weigh(jnp.abs(q), jnp.abs(k), v, mean)


def power(q, k, v):
    steps = np.arange(q.shape[2])
    distance = np.maximum(steps[:, None] - steps, 0)
    decay = jnp.asarray(np.where(steps[:, None] >= steps, 0.97 ** distance, 0.0), jnp.float32)
    return weigh(q, k, v, lambda s: s * decay)


def heads_last(q, k, v):
    s = causal(jnp.einsum("bihd,bjhd->bhij", q, k))
    return jnp.einsum("bhij,bjhd->bihd", s, v)


@pytest.mark.parametrize(("function", "timing", "small", "wanted"), [
    (cumulative, shapes(), shapes(2, 2, 300), {"scale": "head_dim**-0.5", "norm": ""}),
    (triangle, shapes(), shapes(1, 2, 384), {"scale": "0.25"}),
    (power, shapes(), shapes(1, 2, 300), {"norm": ""}),
    (heads_last, dict.fromkeys("qkv", ((2, 1024, 4, 64), BF16)), dict.fromkeys("qkv", ((2, 300, 4, 64), BF16)),
     {"layouts": ("bshd",) * 4}),
], ids=lambda v: getattr(v, "__name__", ""))
def test_spelling_is_recognised_and_the_kernel_agrees(bench, function, timing, small, wanted):
    match = bench.recognise("recurrence", function, timing, small)
    assert {name: getattr(match, name) for name in wanted} == wanted
    for chunk in (128, 256):
        bench.assert_agrees(function, bench.kernel("recurrence", match, CHUNK=chunk), small)


def test_features_of_the_queries_stay_outside_the_kernel(bench):
    match = bench.recognise("parts", squared_mean, shapes(), shapes(2, 2, 300))
    assert match.part == "recurrence" and match.spec["norm"] == "sum"
    bench.assert_agrees(squared_mean, bench.kernel("parts", match, CHUNK=128), shapes(2, 2, 300))


def test_decay_that_underflows_between_chunks_leaves_numbers(bench):
    def forgetful(q, k, v, a):
        total = jnp.cumsum(a, axis=-1)
        between = total[..., :, None] - total[..., None, :]
        mask = jnp.tril(jnp.ones(between.shape[-2:], bool))
        return weigh(q, k, v, lambda s: s * jnp.exp(jnp.where(mask, between, -1e30)))

    def sizes(batch, heads, length):
        decay = ((batch, heads, length), "float32", lambda rng: -8 * rng.random((batch, heads, length)))
        return shapes(batch, heads, length, a=decay)

    small = sizes(2, 2, 300)
    match = bench.recognise("parts", forgetful, sizes(2, 4, 1024), small)
    assert match.part == "recurrence" and "cumsum" in "".join(match.before)
    bench.assert_agrees(forgetful, bench.kernel("parts", match, CHUNK=128), small)


def every_pair(q, k, v):
    return weigh(q, k, v, lambda s: s * 0.5)


def window(q, k, v):
    def change(s):
        i, j = jnp.arange(s.shape[-2])[:, None], jnp.arange(s.shape[-1])
        return jnp.where((j <= i) & (i - j < 64), s, 0.0)

    return weigh(q, k, v, change)


def activated(q, k, v):
    return weigh(q, k, v, lambda s: causal(jnp.maximum(s, 0.0)))


@pytest.mark.parametrize(("function", "reason"), [
    (every_pair, "causal mask and a decay"), (window, "causal mask and a decay"), (activated, "max of float32"),
], ids=lambda v: getattr(v, "__name__", ""))
def test_declines_with_the_reason(bench, function, reason):
    with pytest.raises(Declined, match=reason):
        bench.recognise("recurrence", function, shapes(), shapes(2, 2, 256))
