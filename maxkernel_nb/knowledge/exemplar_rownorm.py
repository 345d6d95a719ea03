"""A row-wise normalisation: one pass over HBM, whole rows in VMEM, arithmetic in float32.

Shows: memory-bound work, blocks of whole rows, keepdims reductions, a 1-D parameter as a (1, n) block.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

BLOCK_ROWS = 256  # tune: 64, 128, 256, 512


def rms_norm(x, gain):
    """x (rows, n), gain (n,) -> x / rms(x) * gain, in x's dtype."""
    rows, n = x.shape
    block = min(BLOCK_ROWS, rows)

    def body(x_ref, gain_ref, o_ref):
        values = x_ref[...].astype(jnp.float32)
        mean_square = jnp.mean(values * values, axis=1, keepdims=True)
        scaled = values * jax.lax.rsqrt(mean_square + 1e-6)
        o_ref[...] = (scaled * gain_ref[...].astype(jnp.float32)).astype(o_ref.dtype)

    return pl.pallas_call(
        body,
        grid=(pl.cdiv(rows, block),),
        in_specs=[pl.BlockSpec((block, n), lambda i: (i, 0)), pl.BlockSpec((1, n), lambda i: (0, 0))],
        out_specs=pl.BlockSpec((block, n), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((rows, n), x.dtype),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
    )(x, gain.reshape(1, n))
