"""20k: ``leaky_relu((x @ weight + bias) * multiplier)``. x: (batch_size, in_features)."""

import jax

from jaxbench import work
from jaxbench.spec import activations, bias, creator, weight

ID = "20k_Gemm_Multiply_LeakyReLU"
SOURCE_MODEL = "KernelBench level 2 problem 12"
CONFIG = {
    "batch_size": 4096, "in_features": 8192, "out_features": 8192, "multiplier": 2.0, "negative_slope": 0.1,
}  # fmt: skip
SMOKE = {"batch_size": 128, "in_features": 256, "out_features": 512}


def inputs(d):
    return (
        activations("x", (d.batch_size, d.in_features), key=(0,)),
        weight("weight", (d.in_features, d.out_features), d.in_features, key=(0xBADC0DE, 0)),
        bias("bias", (d.out_features,), key=(0xBADC0DE, 1)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, weight, bias, *, multiplier, negative_slope):
    return jax.nn.leaky_relu((x @ weight + bias) * multiplier, negative_slope)


def flops(d):
    return work.matmul(d.batch_size, d.in_features, d.out_features)
