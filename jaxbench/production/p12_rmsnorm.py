"""12p: RMS norm over the last axis of x: (batch, seq_len, emb_dim), times scale: (emb_dim,).

The norm is taken in float32 and rounded to x's dtype before the multiplication with scale. In our
inputs some rows are so small that epsilon counts.
"""

import jax
import jax.numpy as jnp

from jaxbench.idioms import wide
from jaxbench.spec import creator, normal, scaled_per_item

ID = "12p_RMSNorm"
SOURCE_MODEL = "Llama-3.1-70B"
CONFIG = {"batch": 8, "seq_len": 4096, "emb_dim": 8192, "epsilon": 1e-5}
SMOKE = {"batch": 2, "seq_len": 128, "emb_dim": 1024}


def inputs(d):
    return (
        normal("x", (d.batch, d.seq_len, d.emb_dim), key=(42, 0), ours=scaled_per_item(2.5, axes=2)),
        normal("scale", (d.emb_dim,), key=(42, 1), scale=0.1, shift=1.0),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, scale, *, epsilon):
    exact = wide(x)
    mean_square = jnp.mean(exact * exact, axis=-1, keepdims=True)
    return (exact * jax.lax.rsqrt(mean_square + epsilon)).astype(x.dtype) * scale


def flops(d):
    """No contraction: square, add, two multiplications and a rounding a value. Memory decides this task."""
    return 5 * d.batch * d.seq_len * d.emb_dim
