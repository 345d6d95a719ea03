"""21k: ``sum(x @ weight.T / 2, features) * scaling_factor``, result (batch_size, 1).

x: (batch_size, input_size); weight: (hidden_size, input_size). Linear from end to end: summing the weights first
leaves a matrix-vector product.
"""

import jax.numpy as jnp

from jaxbench import work
from jaxbench.idioms import wide
from jaxbench.spec import activations, creator, weight

ID = "21k_Gemm_Divide_Sum_Scaling"
SOURCE_MODEL = "KernelBench level 2 problem 14"
CONFIG = {"batch_size": 4096, "input_size": 8192, "hidden_size": 8192, "scaling_factor": 1.5}
SMOKE = {"batch_size": 128, "input_size": 256, "hidden_size": 512}
ALGEBRA = "the sum over features moves into the weights, and the matrix product becomes a matrix-vector product"


def inputs(d):
    return (
        activations("x", (d.batch_size, d.input_size), key=(0, 0)),
        weight("weight", (d.hidden_size, d.input_size), d.input_size, key=(0, 1), scale=1.0),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, weight, *, scaling_factor):
    return jnp.sum(x @ weight.T / 2, axis=1, keepdims=True) * scaling_factor


def simplified(x, weight, *, scaling_factor):
    column = jnp.sum(wide(weight), axis=0)
    return (jnp.sum(wide(x) * column, axis=1, keepdims=True) * (scaling_factor / 2)).astype(x.dtype)


def flops(d):
    return work.matmul(d.batch_size, d.input_size, d.hidden_size)


def least_flops(d):
    """Sum the weights, then one product a value of x."""
    return d.hidden_size * d.input_size + 2 * d.batch_size * d.input_size
