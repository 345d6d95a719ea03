"""The delta recipe: loops over time as people write them, what the kernel makes of them, honest declines."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from maxkernel_nb.errors import Declined

F32, BF16 = "float32", "bfloat16"


def heads_first(batch=1, heads=2, length=70, dim=32, v_dim=None, dtype=F32, **gates):
    lead = (batch, heads, length)
    vector = {n: ((*lead, dim), dtype, _unit((*lead, dim))) for n in "qk"}
    return {**vector, "v": ((*lead, v_dim or dim), dtype),
            **{n: (lead, F32, lambda rng, span=span: rng.uniform(*span, lead)) for n, span in gates.items()}}


def _unit(shape):
    def draw(rng):
        x = rng.standard_normal(shape)
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    return draw


def scanned(step, start, *moving):
    """Of [batch, heads, steps, ...] arrays."""
    wide = tuple(jnp.moveaxis(x.astype(F32), 2, 0) for x in moving)
    return jnp.moveaxis(lax.scan(step, jnp.zeros(start), wide)[1], 0, 2).astype(moving[2].dtype)


def state_of(q, v):
    return (*q.shape[:2], q.shape[3], v.shape[3])


def paper(q, k, v, a, b):
    """Its formula for one head, the decay an input of any sign."""
    def head(*moving):
        def step(s, now):
            q, k, v, a, b = now
            s = a * (jnp.eye(k.shape[0]) - b * jnp.outer(k, k)) @ s + b * jnp.outer(k, v)
            return s, s.T @ q

        return lax.scan(step, jnp.zeros((q.shape[-1], v.shape[-1])), moving)[1]

    return jax.vmap(jax.vmap(head))(q, k, v, a, b)


def values_first(q, k, v, b):
    """Without a decay; the state lies the other way round, and the step prepares its inputs itself."""
    def step(s, now):
        q, k, v, b = now
        k = k * lax.rsqrt(jnp.sum(k * k, -1, keepdims=True) + 1e-6)
        error = v - jnp.einsum("bhvk,bhk->bhv", s, k)
        s = s + jnp.einsum("bhv,bhk->bhvk", jax.nn.sigmoid(b)[..., None] * error, k)
        return s, jnp.einsum("bhvk,bhk->bhv", s, q)

    return scanned(step, (*q.shape[:2], v.shape[3], q.shape[3]), q, k, v, b)


def forgetful(q, k, v, g):
    """Linear attention; a decay that underflows at once leaves numbers."""
    def step(s, now):
        q, k, v, g = now
        s = jax.nn.sigmoid(g)[..., None, None] * s + k[..., :, None] * v[..., None, :]
        return s, (s * q[..., None]).sum(-2) * 0.125

    return scanned(step, state_of(q, v), q, k, v, g)


def fixed_rates(q, k, v):
    rates = 1 - 2.0 ** (-5 - jnp.arange(q.shape[1]))

    def step(s, now):
        q, k, v = now
        s = rates[:, None, None] * s + k[..., :, None] * v[..., None, :]
        return s, jnp.einsum("bhk,bhkv->bhv", q, s)

    return scanned(step, state_of(q, v), q, k, v)


def one_head(q, k, v):
    def step(s, now):
        q, k, v = now
        s = 0.9 * s + jnp.outer(k, v)
        return s, q @ s

    return lax.scan(step, jnp.zeros((q.shape[1], v.shape[1])), (q, k, v))[1]


def alone(length, dim, v_dim):
    return {"q": ((length, dim), F32), "k": ((length, dim), F32), "v": ((length, v_dim), F32)}


@pytest.mark.parametrize(("recipe", "function", "timing", "small", "wanted"), [
    ("delta", paper, heads_first(1, 4, 512, 128, 96, a=(-1, 1), b=(0, 1)),
     heads_first(a=(-1, 1), b=(0, 1), v_dim=16), {"form": "", "delta": True}),
    ("parts", values_first, heads_first(1, 4, 512, 128, b=(-1, 1)), heads_first(2, 1, b=(-1, 1)),
     {"part": "delta"}),
    ("delta", forgetful, heads_first(1, 4, 512, 128, g=(-300, 300)), heads_first(g=(-300, 300)),
     {"form": "logistic", "delta": False, "scale": "0.125"}),
    ("delta", fixed_rates, heads_first(1, 4, 512, 128), heads_first(), {"decay": -1, "delta": False}),
    ("delta", one_head, alone(512, 128, 96), alone(70, 64, 32), {"layouts": ("sd", "sd", "sd", "", "", "sd")}),
], ids=lambda v: getattr(v, "__name__", ""))
def test_spelling_is_recognised_and_the_kernel_agrees(bench, recipe, function, timing, small, wanted):
    match = bench.recognise(recipe, function, timing, small)
    assert {name: getattr(match, name) for name in wanted} == wanted
    bench.assert_agrees(function, bench.kernel(recipe, match, CHUNK=32), small)


def test_keys_that_are_all_alike_keep_their_accuracy(bench):
    """Powers of the triangle would grow to 1e18 here."""
    def same_keys(q, k, v, b):
        def step(s, now):
            q, k, v, b = now
            s = s + jnp.einsum("bhk,bhv->bhkv", k, b[..., None] * (v - jnp.einsum("bhkv,bhk->bhv", s, k)))
            return s, jnp.einsum("bhkv,bhk->bhv", s, q)

        return scanned(step, state_of(q, v), q, k, v, b)

    small = heads_first(heads=1, length=128, b=(0.99, 1))
    key = np.full(32, 32**-0.5)
    small["k"] = (*small["k"][:2], lambda rng: np.broadcast_to(key, small["k"][0]))
    match = bench.recognise("delta", same_keys, heads_first(1, 4, 512, 128, b=(0, 1)), small)
    bench.assert_agrees(same_keys, bench.kernel("delta", match, CHUNK=128), small)


def test_a_decay_that_is_no_number_spoils_no_step_before_it(bench):
    def gated(q, k, v, g):
        def step(s, now):
            q, k, v, g = now
            s = s * jnp.exp(g)[..., None, None]
            s = s + jnp.einsum("bhk,bhv->bhkv", k, v - jnp.einsum("bhkv,bhk->bhv", s, k))
            return s, jnp.einsum("bhkv,bhk->bhv", s, q)

        return scanned(step, state_of(q, v), q, k, v, g)

    def draw(rng):
        g = -np.abs(rng.standard_normal((1, 2, 70)))
        g[0, 0, 40], g[0, 1, 3:5] = np.nan, -np.inf
        return g

    small = heads_first(g=(0, 1))
    small["g"] = (*small["g"][:2], draw)
    match = bench.recognise("delta", gated, heads_first(1, 4, 512, 128, g=(0, 1)), small)
    bench.assert_agrees(gated, bench.kernel("delta", match, CHUNK=32, HEADS=2), small)


def loop(change, read=lambda old, new, q: jnp.einsum("bhkv,bhk->bhv", new, q), **options):
    def function(q, k, v, g):
        def step(s, now):
            q, k, v, g = now
            new = change(s, k, v, g[..., None, None])
            return new, read(s, new, q)

        wide = tuple(jnp.moveaxis(x, 2, 0) for x in (q, k, v, g))
        start = jnp.zeros(state_of(q, v)) + options.get("start", 0.0)
        return jnp.moveaxis(lax.scan(step, start, wide, reverse=options.get("reverse", False))[1], 0, 2)

    return function


def outer(k, v):
    return k[..., :, None] * v[..., None, :]


def added(s, k, v, g):
    return g * s + outer(k, v)


@pytest.mark.parametrize(("function", "reason"), [
    (loop(lambda s, k, v, g: jnp.tanh(s) + outer(k, v) * g), "a step of its loop takes tanh"),
    (loop(lambda s, k, v, g: s * (1 + outer(k, v)) + outer(k, v) * g), "neither a decaying sum"),
    (loop(lambda s, k, v, g: g * s + outer(k, k * v)), "neither a decaying sum"),
    (loop(added, read=lambda old, new, q: jnp.einsum("bhkv,bhk->bhv", old, q)), "as just written"),
    (loop(added, reverse=True), "backwards"),
    (loop(added, start=1.0), "starts from something other than zeros"),
    (lambda q, k, v, g: q + g[..., None] * k * v, "0 loops over time"),
], ids=["tanh", "decay by element", "no key and value", "read before written", "reverse", "start", "no loop"])
def test_declines_with_the_reason(bench, function, reason):
    function.__name__ = "unserved"
    with pytest.raises(Declined, match=reason):
        bench.recognise("delta", function, heads_first(1, 4, 512, g=(0, 1)), heads_first(g=(0, 1)), source="")
