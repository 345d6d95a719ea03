"""The few computations that several references share. Plain JAX, each a handful of lines.

They work in the dtype of their inputs, as the tasks ask; where a task wants more than bfloat16 inside, ``wide``
gives float32 for narrower inputs and leaves float64 alone, so the same reference serves as a float64 oracle.
"""

import jax
import jax.numpy as jnp
from jax import lax

HIDDEN = -1e30  # a finite stand-in for minus infinity: a row with nothing visible stays free of NaN


def wide(x):
    """``x`` in float32, or in its own dtype when that is wider."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def gelu(x):
    """The tanh form of GELU (every task uses it)."""
    return jax.nn.gelu(x, approximate=True)


def causal_mask(length):
    """True where query row i may see key column j: j <= i."""
    return jnp.tril(jnp.ones((length, length), bool))


def causal_attention(q, k, v, scale=1.0, bias=None):
    """``softmax(scale * q k^T + bias) v`` over (..., position, dim), each position seeing itself and earlier ones."""
    scores = jnp.einsum("...id,...jd->...ij", q, k) * scale
    if bias is not None:
        scores = scores + bias
    scores = jnp.where(causal_mask(q.shape[-2]), scores, HIDDEN)
    return jnp.einsum("...ij,...jd->...id", jax.nn.softmax(scores, axis=-1), v)


def convolve(x, kernel):
    """Cross-correlation without padding, stride 1: (N, C, *space) with (O, C, *window)."""
    return lax.conv_general_dilated(x, kernel, (1,) * (x.ndim - 2), "VALID")


def per_channel(values, x):
    """(C,) shaped to broadcast along axis 1 of ``x``."""
    return values.reshape((1, -1) + (1,) * (x.ndim - 2))


def standardise(x, axes, eps=1e-5):
    """``(x - mean) / sqrt(biased variance + eps)`` over ``axes``."""
    mean = jnp.mean(x, axis=axes, keepdims=True)
    variance = jnp.var(x, axis=axes, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + eps)


def group_norm(x, groups, scale, shift, eps=1e-5):
    """Group norm of (N, C, *space): statistics over C / groups consecutive channels and all of space."""
    grouped = x.reshape((x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
    normal = standardise(grouped, tuple(range(2, grouped.ndim)), eps).reshape(x.shape)
    return normal * per_channel(scale, x) + per_channel(shift, x)


def batch_norm(x, scale, shift, eps=1e-5):
    """Batch norm in training mode: statistics per channel (axis 1) over everything else."""
    axes = tuple(a for a in range(x.ndim) if a != 1)
    return standardise(x, axes, eps) * per_channel(scale, x) + per_channel(shift, x)


def running_norm(x, scale, shift, mean, variance, eps=1e-5):
    """Batch norm with given statistics, over the last axis."""
    return scale * (x - mean) / jnp.sqrt(variance + eps) + shift
