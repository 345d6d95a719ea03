"""50k: ``softmax(gelu(x @ weight + bias))`` over features. x: (batch_size, in_features)."""

import jax

from jaxbench import work
from jaxbench.idioms import gelu
from jaxbench.spec import activations, bias, creator, weight

ID = "50k_Matmul_GELU_Softmax"
SOURCE_MODEL = "KernelBench level 2 problem 99"
CONFIG = {"batch_size": 4096, "in_features": 8192, "out_features": 8192}
SMOKE = {"batch_size": 128, "in_features": 256, "out_features": 512}
IDLE = {
    "integer_pow": "gelu's cube moves results by 1.5 times the reference's own rounding; four times are allowed"
}


def inputs(d):
    return (
        activations("x", (d.batch_size, d.in_features), key=(0,)),
        weight("weight", (d.in_features, d.out_features), d.in_features, key=(42, 0)),
        bias("bias", (d.out_features,), key=(42, 1)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, weight, bias):
    return jax.nn.softmax(gelu(x @ weight + bias), axis=1)


def flops(d):
    return work.matmul(d.batch_size, d.in_features, d.out_features)
