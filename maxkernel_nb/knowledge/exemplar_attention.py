"""Causal attention with an online softmax: scores never leave VMEM, blocks above the diagonal are skipped.

Shows: state carried along the last grid axis, a large finite mask value, contraction without a transpose, pl.when.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

BLOCK_Q = 512  # tune: 256, 512, 1024
BLOCK_K = 512  # tune: 256, 512, 1024, 2048
MASKED = -1e30


def causal_attention(q, k, v):
    """q, k, v (batch, heads, length, width), length a multiple of the blocks -> softmax(q k^T / sqrt(width)) v."""
    batch, heads, length, width = q.shape
    bq, bk = min(BLOCK_Q, length), min(BLOCK_K, length)
    scale = width**-0.5
    steps = pl.cdiv(length, bk)

    def body(q_ref, k_ref, v_ref, o_ref, max_ref, sum_ref, acc_ref):
        row, step = pl.program_id(2), pl.program_id(3)

        @pl.when(step == 0)
        def _():
            max_ref[...] = jnp.full_like(max_ref, MASKED)
            sum_ref[...] = jnp.zeros_like(sum_ref)
            acc_ref[...] = jnp.zeros_like(acc_ref)

        @pl.when(step * bk <= row * bq + bq - 1)
        def _():
            scores = jax.lax.dot_general(
                q_ref[...], k_ref[...], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
            ) * scale
            rows = row * bq + jax.lax.broadcasted_iota(jnp.int32, (bq, bk), 0)
            columns = step * bk + jax.lax.broadcasted_iota(jnp.int32, (bq, bk), 1)
            scores = jnp.where(columns <= rows, scores, MASKED)
            highest = jnp.maximum(max_ref[...], jnp.max(scores, axis=1, keepdims=True))
            weights = jnp.exp(scores - highest)
            shrink = jnp.exp(max_ref[...] - highest)
            sum_ref[...] = sum_ref[...] * shrink + jnp.sum(weights, axis=1, keepdims=True)
            acc_ref[...] = acc_ref[...] * shrink + jnp.dot(
                weights.astype(v_ref.dtype), v_ref[...], preferred_element_type=jnp.float32
            )
            max_ref[...] = highest

        @pl.when(step == steps - 1)
        def _():
            o_ref[...] = (acc_ref[...] / sum_ref[...]).astype(o_ref.dtype)

    def rows_of(b, h, i, s):
        return b, h, i, 0

    def columns_of(b, h, i, s):
        return b, h, s, 0

    return pl.pallas_call(
        body,
        grid=(batch, heads, pl.cdiv(length, bq), steps),
        in_specs=[
            pl.BlockSpec((None, None, bq, width), rows_of),
            pl.BlockSpec((None, None, bk, width), columns_of),
            pl.BlockSpec((None, None, bk, width), columns_of),
        ],
        out_specs=pl.BlockSpec((None, None, bq, width), rows_of),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        scratch_shapes=[
            pltpu.VMEM((bq, 1), jnp.float32), pltpu.VMEM((bq, 1), jnp.float32), pltpu.VMEM((bq, width), jnp.float32)
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "parallel", "arbitrary")
        ),
    )(q, k, v)
