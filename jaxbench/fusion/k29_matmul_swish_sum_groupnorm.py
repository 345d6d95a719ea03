"""29k: ``swish(x @ weight) + bias``, then group norm by row. x: (batch_size, in_features)."""

import jax

from jaxbench import work
from jaxbench.idioms import group_norm
from jaxbench.spec import activations, bias, creator, ones, weight, zeros

ID = "29k_Matmul_Swish_Sum_GroupNorm"
SOURCE_MODEL = "KernelBench level 2 problem 37"
CONFIG = {"batch_size": 8192, "in_features": 4096, "out_features": 4096, "num_groups": 64}
SMOKE = {"batch_size": 128, "in_features": 256, "out_features": 512, "num_groups": 8}
# As many groups as at full size: the reference is told.
CASES = {
    "small": {"batch_size": 128, "in_features": 256, "out_features": 512},
    "medium": {"batch_size": 256, "in_features": 384, "out_features": 1024},
    "wide": {"batch_size": 64, "in_features": 128, "out_features": 2048},
    "ragged": {"batch_size": 100, "in_features": 187, "out_features": 640},
}


def inputs(d):
    return (
        activations("x", (d.batch_size, d.in_features), key=(0,)),
        weight("weight", (d.in_features, d.out_features), d.in_features, key=(0xBADC0DE, 0)),
        bias("bias", (d.out_features,), key=(0xBADC0DE, 1)),
        ones("gn_weight", (d.out_features,)),
        zeros("gn_bias", (d.out_features,)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, weight, bias, gn_weight, gn_bias, *, num_groups):
    return group_norm(jax.nn.silu(x @ weight) + bias, num_groups, gn_weight, gn_bias)


def flops(d):
    return work.matmul(d.batch_size, d.in_features, d.out_features)
