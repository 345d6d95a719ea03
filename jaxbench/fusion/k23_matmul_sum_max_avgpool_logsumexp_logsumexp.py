"""23k: ``x @ weight.T + bias``, summed over features, then max, mean and twice logsumexp over the one value left.

x: (batch_size, in_features); weight: (out_features, in_features); result (batch_size, 1). The last four steps change
nothing, and what is left is linear.
"""

import jax
import jax.numpy as jnp

from jaxbench import work
from jaxbench.idioms import wide
from jaxbench.spec import activations, bias, creator, weight

ID = "23k_Matmul_Sum_Max_AvgPool_LogSumExp_LogSumExp"
SOURCE_MODEL = "KernelBench level 2 problem 18"
CONFIG = {"batch_size": 4096, "in_features": 8192, "out_features": 8192}
SMOKE = {"batch_size": 128, "in_features": 256, "out_features": 512}
IDLE = {
    "div 1": "a mean over one value",
    "sign": "a sum of exponentials is positive",
    "abs": "a sum of exponentials is positive",
}
ALGEBRA = "the sum over features moves into weights and bias; max, mean and logsumexp act on a single value"


def inputs(d):
    return (
        activations("x", (d.batch_size, d.in_features), key=(0,)),
        weight("weight", (d.out_features, d.in_features), d.in_features, key=(0xBADC0DE, 0)),
        bias("bias", (d.out_features,), key=(0xBADC0DE, 1)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, weight, bias):
    y = jnp.sum(x @ weight.T + bias, axis=1, keepdims=True)
    y = jnp.mean(jnp.max(y, axis=1, keepdims=True), axis=1, keepdims=True)
    for _ in range(2):
        y = jax.nn.logsumexp(y, axis=1, keepdims=True)
    return y


def simplified(x, weight, bias):
    column = jnp.sum(wide(weight), axis=0)
    return (jnp.sum(wide(x) * column, axis=1, keepdims=True) + jnp.sum(wide(bias))).astype(x.dtype)


def flops(d):
    return work.matmul(d.batch_size, d.in_features, d.out_features)


def least_flops(d):
    """Sum the weights, then one product a value of x."""
    return d.out_features * d.in_features + 2 * d.batch_size * d.in_features
