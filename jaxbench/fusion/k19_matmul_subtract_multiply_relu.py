"""19k: ``relu((x @ weight + bias - subtract_value) * multiply_value)``.

x: (batch_size, in_features); weight: (in_features, out_features). With published inputs 99.8 % of the result is zero;
ours leave about one value in twelve.
"""

import jax

from jaxbench import work
from jaxbench.spec import activations, bias, creator, weight

ID = "19k_Matmul_Subtract_Multiply_ReLU"
SOURCE_MODEL = "KernelBench level 2 problem 9"
CONFIG = {
    "batch_size": 4096, "in_features": 8192, "out_features": 8192, "subtract_value": 2.0, "multiply_value": 1.5,
}  # fmt: skip
SMOKE = {"batch_size": 128, "in_features": 256, "out_features": 512}


def inputs(d):
    return (
        activations("x", (d.batch_size, d.in_features), key=(0,)),
        weight("weight", (d.in_features, d.out_features), d.in_features, key=(0xBADC0DE, 0)),
        bias("bias", (d.out_features,), key=(0xBADC0DE, 1)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, weight, bias, *, subtract_value, multiply_value):
    return jax.nn.relu((x @ weight + bias - subtract_value) * multiply_value)


def flops(d):
    return work.matmul(d.batch_size, d.in_features, d.out_features)
