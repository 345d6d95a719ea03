"""Whole functions that people have, written from papers' formulas in plain JAX."""

import jax
import jax.numpy as jnp


def normed(x, g):
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6) * g).astype(x.dtype)


def mlp_block(x, g, gate, up, down):
    """Llama's: RMSNorm, SwiGLU, residual."""
    h = normed(x, g)
    return x + (jax.nn.silu(h @ gate) * (h @ up)) @ down


def transformer_layer(x, g1, packed, out, g2, gate, up, down, heads=4):
    """A pre-norm layer with packed heads: causal attention, then SwiGLU."""
    batch, length, width = x.shape
    qkv = (normed(x, g1) @ packed).reshape(batch, length, 3, heads, width // heads)
    q, k, v = (qkv[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k, preferred_element_type=jnp.float32) / (width // heads) ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e30)
    read = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1).astype(x.dtype), v)
    x = x + read.transpose(0, 2, 1, 3).reshape(batch, length, width) @ out
    h = normed(x, g2)
    return x + (jax.nn.silu(h @ gate) * (h @ up)) @ down


def mamba_block(x, gate, value, b, c, step, step_bias, rate, g, out, heads=4, state=128):
    """Mamba-2: the state-space recurrence by its quadratic form, then the gated norm."""
    batch, length, width = x.shape
    values = jax.nn.silu(x @ value).reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)
    keys, queries = (jnp.broadcast_to((x @ w)[:, None], (batch, heads, length, state)) for w in (b, c))
    steps = jax.nn.softplus((x @ step).astype(jnp.float32) + step_bias).transpose(0, 2, 1)
    travelled = jnp.cumsum(-jnp.exp(rate)[None, :, None] * steps, -1)
    decay = jnp.exp(travelled[..., :, None] - travelled[..., None, :])
    decay = jnp.where(jnp.tril(jnp.ones((length, length), bool)), decay, 0.0)
    weights = jnp.einsum("bhqd,bhkd->bhqk", queries, keys, preferred_element_type=jnp.float32) * decay
    y = jnp.einsum("bhqk,bhkd->bhqd", weights.astype(x.dtype), values).transpose(0, 2, 1, 3)
    return x + normed(y.reshape(batch, length, width) * jax.nn.silu(x @ gate), g) @ out
