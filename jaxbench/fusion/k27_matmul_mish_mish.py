"""27k: ``mish(mish(x @ weight + bias))``. x: (batch_size, in_features); weight: (in_features, out_features)."""

import jax

from jaxbench import work
from jaxbench.spec import activations, bias, creator, weight

ID = "27k_Matmul_Mish_Mish"
SOURCE_MODEL = "KernelBench level 2 problem 29"
CONFIG = {"batch_size": 4096, "in_features": 8192, "out_features": 8192}
SMOKE = {"batch_size": 128, "in_features": 256, "out_features": 512}


def inputs(d):
    return (
        activations("x", (d.batch_size, d.in_features), key=(0,)),
        weight("weight", (d.in_features, d.out_features), d.in_features, key=(0xBADC0DE, 0)),
        bias("bias", (d.out_features,), key=(0xBADC0DE, 1)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, weight, bias):
    return jax.nn.mish(jax.nn.mish(x @ weight + bias))


def flops(d):
    return work.matmul(d.batch_size, d.in_features, d.out_features)
