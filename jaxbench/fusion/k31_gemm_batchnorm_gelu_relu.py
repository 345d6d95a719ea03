"""31k: ``relu(gelu(batch_norm(x @ gemm_weight.T + gemm_bias)))``, statistics over the batch.

x: (batch_size, in_features); gemm_weight: (out_features, in_features). The norm cancels gemm_bias.
"""

import jax

from jaxbench import work
from jaxbench.idioms import batch_norm, gelu
from jaxbench.spec import activations, bias, creator, ones, weight, zeros

ID = "31k_Gemm_BatchNorm_GELU_ReLU"
SOURCE_MODEL = "KernelBench level 2 problem 41"
CONFIG = {"batch_size": 16384, "in_features": 8192, "out_features": 8192}
SMOKE = {"batch_size": 256, "in_features": 256, "out_features": 512}
IDLE = {
    "integer_pow": "the cubic term moves GELU by less than bfloat16 shows here",
    "add": "the cubic term moves GELU by less than bfloat16 shows here",
}
DEAD = {"gemm_bias": "a constant over the batch, which the norm subtracts again"}


def inputs(d):
    shape = (d.out_features, d.in_features)
    return (
        activations("x", (d.batch_size, d.in_features), key=(0, 0)),
        weight("gemm_weight", shape, d.in_features, key=(0, 1), scale=1.0),
        bias("gemm_bias", (d.out_features,), key=(0, 2), scale=1.0),
        ones("bn_weight", (d.out_features,)),
        zeros("bn_bias", (d.out_features,)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, gemm_weight, gemm_bias, bn_weight, bn_bias):
    return jax.nn.relu(gelu(batch_norm(x @ gemm_weight.T + gemm_bias, bn_weight, bn_bias)))


def flops(d):
    return work.matmul(d.batch_size, d.in_features, d.out_features)
