"""40k: linear layer, group norm by row, minimum m over features, then ``bias[c] + m[n]`` for all c and n.

x: (batch_size, in_features); weight: (out_features, in_features); bias: (1, out_features, 1, 1). The result is
(1, out_features, batch_size, 1): features first.
"""

import jax.numpy as jnp

from jaxbench import work
from jaxbench.idioms import group_norm
from jaxbench.spec import activations, bias, creator, ones, weight, zeros

ID = "40k_Gemm_GroupNorm_Min_BiasAdd"
SOURCE_MODEL = "KernelBench level 2 problem 75"
CONFIG = {"batch_size": 4096, "in_features": 8192, "out_features": 8192, "num_groups": 512}
SMOKE = {"batch_size": 128, "in_features": 256, "out_features": 512, "num_groups": 32}
# As many groups as at full size: the reference is told.
CASES = {
    "small": {"batch_size": 128, "in_features": 256, "out_features": 1024},
    "medium": {"batch_size": 256, "in_features": 384, "out_features": 2048},
    "wide": {"batch_size": 64, "in_features": 128, "out_features": 1536},
    "ragged": {"batch_size": 100, "in_features": 187, "out_features": 2560},
}


def inputs(d):
    shape = (d.out_features, d.in_features)
    return (
        activations("x", (d.batch_size, d.in_features), key=(0,)),
        weight("weight", shape, d.in_features, key=(0xBADC0DE, 0)),
        bias("linear_bias", (d.out_features,), key=(0xBADC0DE, 1)),
        ones("gn_weight", (d.out_features,)),
        zeros("gn_bias", (d.out_features,)),
        bias("bias", (1, d.out_features, 1, 1), key=(0xBADC0DE, 2)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, weight, linear_bias, gn_weight, gn_bias, bias, *, num_groups):
    y = group_norm(x @ weight.T + linear_bias, num_groups, gn_weight, gn_bias)
    return jnp.min(y, axis=1)[:, None] + bias


def flops(d):
    return work.matmul(d.batch_size, d.in_features, d.out_features)
