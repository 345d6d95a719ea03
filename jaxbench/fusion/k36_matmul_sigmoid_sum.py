"""36k: ``sum(sigmoid(x @ weight + bias), features)``. x: (batch_size, input_size); result (batch_size, 1).

Summed over thousands of independent features every row is nearly the same number, so ours shift rows as a whole.
"""

import jax
import jax.numpy as jnp

from jaxbench import work
from jaxbench.spec import activations, bias, creator, weight

ID = "36k_Matmul_Sigmoid_Sum"
SOURCE_MODEL = "KernelBench level 2 problem 56"
CONFIG = {"batch_size": 4096, "input_size": 8192, "hidden_size": 8192}
SMOKE = {"batch_size": 128, "input_size": 256, "hidden_size": 512}


def inputs(d):
    return (
        activations("x", (d.batch_size, d.input_size), key=(0,)),
        weight("weight", (d.input_size, d.hidden_size), d.input_size, key=(42, 0), drift=1.0),
        bias("bias", (d.hidden_size,), key=(42, 1)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, weight, bias):
    return jnp.sum(jax.nn.sigmoid(x @ weight + bias), axis=1, keepdims=True)


def flops(d):
    return work.matmul(d.batch_size, d.input_size, d.hidden_size)
