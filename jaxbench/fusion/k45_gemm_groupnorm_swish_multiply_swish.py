"""45k: linear layer, group norm by row, swish, multiplication by feature, swish.

x: (batch_size, in_features); gemm_weight: (out_features, in_features).
"""

import jax

from jaxbench import work
from jaxbench.idioms import group_norm
from jaxbench.spec import activations, bias, creator, normal, ones, weight, zeros

ID = "45k_Gemm_GroupNorm_Swish_Multiply_Swish"
SOURCE_MODEL = "KernelBench level 2 problem 88"
CONFIG = {"batch_size": 4096, "in_features": 8192, "out_features": 8192, "num_groups": 256}
SMOKE = {"batch_size": 128, "in_features": 256, "out_features": 512, "num_groups": 16}
# As many groups as at full size: the reference is told.
CASES = {
    "small": {"batch_size": 128, "in_features": 256, "out_features": 1024},
    "medium": {"batch_size": 256, "in_features": 384, "out_features": 2048},
    "wide": {"batch_size": 64, "in_features": 128, "out_features": 1536},
    "ragged": {"batch_size": 100, "in_features": 187, "out_features": 2560},
}


def inputs(d):
    features = (d.out_features,)
    return (
        activations("x", (d.batch_size, d.in_features), key=(0,)),
        weight("gemm_weight", (d.out_features, d.in_features), d.in_features, key=(42, 0)),
        bias("gemm_bias", features, key=(42, 1)),
        ones("gn_weight", features),
        zeros("gn_bias", features),
        normal("multiply_weight", features, key=(42, 2)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, gemm_weight, gemm_bias, gn_weight, gn_bias, multiply_weight, *, num_groups):
    y = group_norm(x @ gemm_weight.T + gemm_bias, num_groups, gn_weight, gn_bias)
    return jax.nn.silu(jax.nn.silu(y) * multiply_weight)


def flops(d):
    return work.matmul(d.batch_size, d.in_features, d.out_features)
