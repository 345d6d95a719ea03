"""Recurrences written as a loop over time, as papers and models write them: what the embedded engine makes of each.

    python -m tests.bench.loops [--project FOLDER] [--points N] [NAME ...]

As tests.bench.ten_functions: each goes through the whole job, and is printed with its modelled gain over XLA.
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
from jax import lax

from tests.bench.ten_functions import Functions, main


def gated_delta_net(q, k, v, a, b, rate, bias):
    """Gated DeltaNet (Qwen3-Next): queries and keys of length one, decay and writing strength from projections."""
    def unit(x):
        x = x.astype(jnp.float32)
        return x * lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + 1e-6)

    log_decay = -jnp.exp(rate) * jax.nn.softplus(a.astype(jnp.float32) + bias)

    def step(state, now):
        q, k, v, g, b = now
        state = state * jnp.exp(g)[..., None, None]
        error = (v - jnp.einsum("bhkv,bhk->bhv", state, k)) * b[..., None]
        state = state + jnp.einsum("bhk,bhv->bhkv", k, error)
        return state, jnp.einsum("bhkv,bhk->bhv", state, q)

    batch, _, heads, width = k.shape
    strength = jax.nn.sigmoid(b.astype(jnp.float32))
    moving = (unit(q) * width**-0.5, unit(k), v.astype(jnp.float32), log_decay, strength)
    start = jnp.zeros((batch, heads, width, v.shape[-1]))
    _, out = lax.scan(step, start, tuple(jnp.moveaxis(x, 1, 0) for x in moving))
    return jnp.moveaxis(out, 0, 1).astype(v.dtype)


def delta_rule(q, k, v, b):
    """DeltaNet by its formula, one head at a time: (I - b k k^T) S + b k v^T."""
    def head(q, k, v, b):
        def step(state, now):
            q, k, v, b = now
            k = k / jnp.sqrt(jnp.sum(k * k) + 1e-6)
            b = jax.nn.sigmoid(b)
            state = (jnp.eye(k.shape[0]) - b * jnp.outer(k, k)) @ state + b * jnp.outer(k, v)
            return state, state.T @ q

        return lax.scan(step, jnp.zeros((k.shape[1], v.shape[1])), (q, k, v, b))[1]

    return jax.vmap(jax.vmap(head))(*(x.astype(jnp.float32) for x in (q, k, v, b))).astype(v.dtype)


def gated_linear_attention(q, k, v, g):
    """A scalar gate a head (Lightning attention, simple GLA)."""
    def step(state, now):
        q, k, v, g = now
        state = jax.nn.sigmoid(g)[..., None, None] * state + k[..., :, None] * v[..., None, :]
        return state, jnp.einsum("bhk,bhkv->bhv", q * q.shape[-1] ** -0.5, state)

    batch, heads, _, width = k.shape
    moving = tuple(jnp.moveaxis(x.astype(jnp.float32), 2, 0) for x in (q, k, v, g))
    _, out = lax.scan(step, jnp.zeros((batch, heads, width, v.shape[-1])), moving)
    return jnp.moveaxis(out, 0, 2).astype(v.dtype)


_HEADS_FIRST = "q: bf16[1,16,2048,128], k: bf16[1,16,2048,128], v: bf16[1,16,2048,128]"
_STEPS_FIRST = "q: bf16[1,2048,16,128], k: bf16[1,2048,16,128], v: bf16[1,2048,16,128]"
FUNCTIONS: Functions = {
    "gated_delta_net": (
        gated_delta_net, f"{_STEPS_FIRST}, a: bf16[1,2048,16], b: bf16[1,2048,16], rate: f32[16], bias: f32[16]"),
    "delta_rule": (delta_rule, f"{_HEADS_FIRST}, b: bf16[1,16,2048]"),
    "gated_linear_attention": (gated_linear_attention, f"{_HEADS_FIRST}, g: bf16[1,16,2048]"),
}

if __name__ == "__main__":
    sys.exit(main(functions=FUNCTIONS, folder="maxkernel-loops", description=__doc__))
