"""A kernel file as people bring them along: for 41k, ``relu(x @ weight + bias)``, under a name of its own."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def _body(x_ref, w_ref, b_ref, o_ref, total):
    @pl.when(pl.program_id(2) == 0)
    def _():
        total[...] = jnp.zeros_like(total)

    total[...] += jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _():
        o_ref[...] = jnp.maximum(total[...] + b_ref[...].astype(jnp.float32), 0).astype(o_ref.dtype)


def workload(x, weight, bias):
    (m, k), n = x.shape, weight.shape[1]
    if m % 128 or k % 128 or n % 128:
        raise NotImplementedError("whole tiles only")
    rows, inner, columns = (next(t for t in (1024, 512, 256, 128) if size % t == 0) for size in (m, k, n))
    return pl.pallas_call(
        _body,
        grid=(m // rows, n // columns, k // inner),
        in_specs=[
            pl.BlockSpec((rows, inner), lambda i, j, l: (i, l)),
            pl.BlockSpec((inner, columns), lambda i, j, l: (l, j)),
            pl.BlockSpec((1, columns), lambda i, j, l: (0, j)),
        ],
        out_specs=pl.BlockSpec((rows, columns), lambda i, j, l: (i, j)),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        scratch_shapes=[pltpu.VMEM((rows, columns), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
    )(x, weight, bias.reshape(1, n))
