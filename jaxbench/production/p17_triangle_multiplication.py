"""17p: triangle multiplication (outgoing edges) of a pair representation.

pair_act and result: (N, N, C); mask: (N, N, 1); projections and gates: (C, C); center_scale: (C,). The gate of the
result reads the unmasked pair_act. The published mask is all ones; ours hides one entry in ten.
"""

import jax
import jax.numpy as jnp

from jaxbench import work
from jaxbench.spec import Draw, Input, constant_recipe, creator, normal, weight

ID = "17p_Triangle_Multiplication"
SOURCE_MODEL = "AlphaFold2"
CONFIG = {"N": 1536, "C": 128, "epsilon": 1e-6}
SMOKE = {"N": 128}
CASES = {"small": {"N": 32}, "medium": {"N": 64}, "wide": {"N": 48}, "ragged": {"N": 43}}


def inputs(d):
    def square(name, index):
        return weight(name, (d.C, d.C), d.C, key=(42, index))

    return (
        normal("pair_act", (d.N, d.N, d.C), key=(42, 0)),
        Input("mask", (d.N, d.N, 1), constant_recipe(1.0), Draw(kind="bernoulli", mean=0.9)),
        square("left_proj_w", 1),
        square("right_proj_w", 2),
        square("left_gate_w", 3),
        square("right_gate_w", 4),
        normal("center_scale", (d.C,), key=(42, 5), scale=0.1, shift=1.0),
        square("out_proj_w", 6),
        square("out_gate_w", 7),
    )


create_inputs = creator(inputs, CONFIG)


def reference(
    pair_act, mask, left_proj_w, right_proj_w, left_gate_w, right_gate_w, center_scale, out_proj_w, out_gate_w,
    *, epsilon,
):  # fmt: skip
    masked = pair_act * mask
    left = (masked @ left_proj_w) * jax.nn.sigmoid(masked @ left_gate_w)
    right = (masked @ right_proj_w) * jax.nn.sigmoid(masked @ right_gate_w)
    triangle = jnp.einsum("ikc,jkc->ijc", left, right)
    size = jnp.sqrt(jnp.mean(triangle * triangle, axis=-1, keepdims=True) + epsilon)
    return (triangle / size * center_scale @ out_proj_w) * jax.nn.sigmoid(pair_act @ out_gate_w)


def flops(d):
    """Six (C, C) products for each pair, and an N x N x N product for each channel."""
    return 6 * work.matmul(d.N * d.N, d.C, d.C) + d.C * work.matmul(d.N, d.N, d.N)
