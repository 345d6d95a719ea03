"""The oracle: float64 throughout, the reference's own roundings left out, its meaning kept."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from maxkernel_nb import compat
from maxkernel_nb.tasks.oracle import oracle


def run(fn, *inputs, dtype="float64"):
    """The oracle's outputs as numpy arrays, and the oracle."""
    closed = jax.make_jaxpr(fn)(*inputs)
    wide = oracle(closed, dtype)
    with compat.enable_x64(dtype == "float64"):
        return [np.asarray(o) for o in jax.jit(wide)(*inputs)], wide


def draw(*shapes, dtype=jnp.bfloat16, seed=0):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.normal(size=s), dtype) for s in shapes]


def f64(*arrays):
    return [np.asarray(a).astype(np.float64) for a in arrays]


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def erf(x):
    import math

    return np.vectorize(math.erf)(x)


def test_causal_attention_with_casts_inside():
    def attention(q, k, v):
        scores = jnp.einsum("bqd,bkd->bqk", q, k, preferred_element_type=jnp.float32).astype(jnp.bfloat16)
        scores = jnp.where(jnp.tri(q.shape[1], dtype=bool), scores.astype(jnp.float32) / 4, -1e30)
        return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores, -1).astype(jnp.bfloat16), v)

    q, k, v = draw((2, 32, 16), (2, 32, 16), (2, 32, 16))
    (got,), wide = run(attention, q, k, v)
    qd, kd, vd = f64(q, k, v)
    want = softmax(np.where(np.tri(32, dtype=bool), qd @ kd.transpose(0, 2, 1) / 4, -1e30)) @ vd
    assert got.dtype == np.float64 and wide.notes == ()
    np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-14)
    own = np.asarray(attention(q, k, v)).astype(np.float64)
    assert np.abs(own - want).max() > 1e-4  # which the reference itself is not


def test_layer_norm_and_gelu():
    def block(x, w):
        mean = x.mean(-1, keepdims=True, dtype=jnp.bfloat16)
        var = jnp.square(x - mean).mean(-1, keepdims=True)
        return jax.nn.gelu((x - mean) * lax.rsqrt(var + 0.0078125) @ w, approximate=False)

    x, w = draw((24, 48), (48, 8))
    (got,), _ = run(block, x, w)
    xd, wd = f64(x, w)
    mean = xd.mean(-1, keepdims=True)
    y = (xd - mean) / np.sqrt(((xd - mean) ** 2).mean(-1, keepdims=True) + 0.0078125) @ wd
    root = float(jnp.sqrt(jnp.bfloat16(0.5)))  # jax rounds this constant to bfloat16, and that is part of the function
    for half_root in (root, np.sqrt(0.5), float(np.float32(np.sqrt(0.5)))):
        if np.allclose(got, 0.5 * y * (1 + erf(y * half_root)), rtol=1e-12, atol=1e-13):
            return
    pytest.fail("no constant of gelu explains the oracle's result")


def test_scan_while_and_cond():
    def loops(x):
        ys = lax.scan(lambda c, v: ((c * 0.5 + v).astype(x.dtype), c), jnp.zeros_like(x[0]), x, reverse=True)[1]
        grown = lax.while_loop(lambda s: s[1] < 3, lambda s: (s[0] * x[0], s[1] + 1), (x[1], 0))[0]
        return ys, grown, lax.cond(x[0, 0] > 0, lambda a: a * 2, lambda a: a - 1, x), lax.fori_loop(
            0, 4, lambda i, a: a + x[i], x[0])  # fmt: skip

    (x,) = draw((8, 16))
    (ys, grown, chosen, summed), wide = run(loops, x)
    (xd,) = f64(x)
    carry, want = np.zeros(16), np.zeros((8, 16))
    for i in reversed(range(8)):
        want[i] = carry
        carry = carry * 0.5 + xd[i]
    np.testing.assert_allclose(ys, want, rtol=1e-14)
    np.testing.assert_allclose(grown, xd[1] * xd[0] ** 3, rtol=1e-14)
    np.testing.assert_allclose(chosen, xd * 2 if xd[0, 0] > 0 else xd - 1, rtol=1e-14)
    np.testing.assert_allclose(summed, xd[0] + xd[:4].sum(0), rtol=1e-14)
    assert wide.notes == ()


@pytest.mark.parametrize(
    ("fn", "want"),
    [
        (lambda x: jax.jit(jnp.tanh)(x), np.tanh),
        (lambda x: jax.checkpoint(lambda a: jnp.sin(jnp.exp(a)))(x), lambda x: np.sin(np.exp(x))),
        (lambda x: jax.nn.relu(x) + jax.nn.silu(x), lambda x: np.maximum(x, 0) + x / (1 + np.exp(-x))),
        (lambda x: jax.nn.logsumexp(x, -1), lambda x: np.log(np.exp(x).sum(-1))),
        (lambda x: jnp.cumsum(x, -1, dtype=jnp.bfloat16), lambda x: np.cumsum(x, -1)),
        (lambda x: x.at[jnp.array([0, 0, 2])].add(x[:3]), lambda x: x + np.eye(x.shape[0])[:, [0, 0, 2]] @ x[:3]),
        (lambda x: x.at[:, :2].max(0.5), lambda x: np.concatenate([np.maximum(x[:, :2], 0.5), x[:, 2:]], 1)),
        (lambda x: lax.reduce_precision(x, 5, 2) + x.astype(jnp.float16), lambda x: 2 * x),
        (lambda x: jnp.linalg.solve(x @ x.T + 32 * jnp.eye(16), x),
         lambda x: np.linalg.solve(x @ x.T + 32 * np.eye(16), x)),
        (lambda x: jax.grad(lambda a: jnp.square(a).sum())(x), lambda x: 2 * x),
        (lambda x: jax.vmap(lambda r: r / r.max())(x), lambda x: x / x.max(-1, keepdims=True)),
        (lambda x: lax.associative_scan(jnp.add, x, axis=0), lambda x: np.cumsum(x, 0)),
        (lambda x: lax.map(lambda r: r * 2, x), lambda x: x * 2),
        (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2), (1, 2), "VALID"),
         lambda x: x.reshape(16, 8, 2).max(-1)),
        (lambda x: jnp.arange(16, dtype=x.dtype) * x, lambda x: np.arange(16) * x),
        (lambda x: lax.dot(x, x, precision="highest"), lambda x: x @ x),
    ],
)  # fmt: skip
def test_primitives_are_widened(fn, want):
    (x,) = draw((16, 16), dtype=jnp.float32)
    (got, *_), _ = run(fn, x)
    (xd,) = f64(x)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, want(xd), rtol=1e-11, atol=1e-12)


def test_integers_booleans_and_their_order_are_unchanged():
    def mixed(x, i):
        return jnp.argmax(x, -1), x > 0, x[i], lax.top_k(x, 2)[1], i + 1

    (x,) = draw((8, 8), dtype=jnp.float32)
    i = jnp.array([3, 1], jnp.int32)
    got, _ = run(mixed, x, i)
    assert [str(g.dtype) for g in got] == ["int32", "bool", "float64", "int32", "int32"]
    for g, w in zip(got, mixed(x, i), strict=True):
        np.testing.assert_array_equal(g, np.asarray(w))


def test_quantising_is_meaning_and_stays():
    def quantised(x):
        return x.astype(jnp.float8_e4m3fn).astype(jnp.float32) * 3

    (x,) = draw((16, 16), dtype=jnp.float32)
    (got,), _ = run(quantised, x)
    want = np.asarray(x).astype(jnp.float8_e4m3fn).astype(np.float64) * 3  # jax 0.7.2 outside jit rounds otherwise
    np.testing.assert_array_equal(got, want)


def test_a_finite_mask_constant_stays_finite():
    (got,), _ = run(lambda x: jnp.where(x > 0, x, jnp.finfo(jnp.bfloat16).min), draw((8, 8))[0])
    assert np.isfinite(got).all() and got.min() < -3e38


def test_random_numbers_of_a_fixed_key_are_the_same_numbers():
    def noisy(x):
        return x + jax.random.uniform(jax.random.key(3), x.shape, jnp.float32)

    (x,) = draw((64,), dtype=jnp.float32)
    (got,), wide = run(noisy, x)
    np.testing.assert_allclose(got, np.asarray(noisy(x)), rtol=1e-6)
    assert wide.notes == ()


def test_reading_a_floats_bits_is_done_in_its_own_width_and_said():
    def bits(x):
        return lax.bitcast_convert_type(x, jnp.int32) & 1, x * 2

    (x,) = draw((8, 8), dtype=jnp.float32)
    (low, twice), wide = run(bits, x)
    np.testing.assert_array_equal(low, np.asarray(bits(x)[0]))
    assert twice.dtype == np.float64
    assert wide.notes == ("bitcast_convert_type was evaluated in the reference's own precision",)


def test_the_float32_oracle_widens_bfloat16():
    x, w = draw((16, 32), (32, 8))
    (got,), _ = run(lambda x, w: x @ w, x, w, dtype="float32")
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, np.asarray(x, np.float32) @ np.asarray(w, np.float32), rtol=1e-5, atol=1e-5)
