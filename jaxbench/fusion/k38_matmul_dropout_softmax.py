"""38k: ``softmax(x @ weight.T + bias)`` over features; the dropout of the title is off at inference.

x: (batch_size, in_features); weight: (out_features, in_features).
"""

import jax

from jaxbench import work
from jaxbench.spec import activations, bias, creator, weight

ID = "38k_Matmul_Dropout_Softmax"
SOURCE_MODEL = "KernelBench level 2 problem 66"
CONFIG = {"batch_size": 4096, "in_features": 8192, "out_features": 8192}
SMOKE = {"batch_size": 128, "in_features": 256, "out_features": 512}


def inputs(d):
    return (
        activations("x", (d.batch_size, d.in_features), key=(0,)),
        weight("weight", (d.out_features, d.in_features), d.in_features, key=(42, 0)),
        bias("bias", (d.out_features,), key=(42, 1)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, weight, bias):
    return jax.nn.softmax(x @ weight.T + bias, axis=1)


def flops(d):
    return work.matmul(d.batch_size, d.in_features, d.out_features)
