"""Matrix multiply with an epilogue (bias and activation) done before the result leaves VMEM.

Shows: reduction axis last, float32 accumulator in scratch, epilogue on the last step, ragged k masked, tunable blocks.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

BLOCK_M = 512  # tune: 256, 512, 1024
BLOCK_N = 1024  # tune: 256, 512, 1024, 2048
BLOCK_K = 512  # tune: 256, 512, 1024


def matmul_bias_relu(x, w, b):
    """x (m, k), w (k, n), b (n,) -> relu(x @ w + b), in x's dtype."""
    m, k = x.shape
    n = w.shape[1]
    bm, bn, bk = min(BLOCK_M, m), min(BLOCK_N, n), min(BLOCK_K, k)
    steps = pl.cdiv(k, bk)

    def body(x_ref, w_ref, b_ref, o_ref, acc_ref):
        step = pl.program_id(2)

        @pl.when(step == 0)
        def _():
            acc_ref[...] = jnp.zeros_like(acc_ref)

        left, right = x_ref[...], w_ref[...]
        if k % bk:  # the last block along k is padded with junk on both sides
            inside = step * bk + jax.lax.broadcasted_iota(jnp.int32, (bm, bk), 1) < k
            left = jnp.where(inside, left, 0)
            inside = step * bk + jax.lax.broadcasted_iota(jnp.int32, (bk, bn), 0) < k
            right = jnp.where(inside, right, 0)
        acc_ref[...] += jnp.dot(left, right, preferred_element_type=jnp.float32)

        @pl.when(step == steps - 1)
        def _():
            out = acc_ref[...] + b_ref[...].astype(jnp.float32)
            o_ref[...] = jnp.maximum(out, 0.0).astype(o_ref.dtype)

    return pl.pallas_call(
        body,
        grid=(pl.cdiv(m, bm), pl.cdiv(n, bn), steps),
        in_specs=[
            pl.BlockSpec((bm, bk), lambda i, j, s: (i, s)),
            pl.BlockSpec((bk, bn), lambda i, j, s: (s, j)),
            pl.BlockSpec((1, bn), lambda i, j, s: (0, j)),
        ],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j, s: (i, j)),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        scratch_shapes=[pltpu.VMEM((bm, bn), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
    )(x, w, b.reshape(1, n))
