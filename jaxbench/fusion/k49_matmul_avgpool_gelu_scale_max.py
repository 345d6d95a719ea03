"""49k: linear layer, average of each run of 16 features, GELU, scaling, maximum over the row. Result (batch_size,).

x: (batch_size, in_features); weight: (in_features, out_features). Averaging is linear: averaging the weights first
leaves a product sixteen times smaller.
"""

import jax.numpy as jnp

from jaxbench import work
from jaxbench.idioms import gelu, wide
from jaxbench.spec import activations, bias, creator, weight

ID = "49k_Matmul_AvgPool_GELU_Scale_Max"
SOURCE_MODEL = "KernelBench level 2 problem 98"
CONFIG = {
    "batch_size": 4096, "in_features": 8192, "out_features": 8192, "pool_kernel_size": 16, "scale_factor": 2.0,
}  # fmt: skip
SMOKE = {"batch_size": 128, "in_features": 256, "out_features": 512}
IDLE = {
    "integer_pow": "gelu's cube moves results by 2 to 3 times the reference's own rounding; four times are allowed"
}
ALGEBRA = "the averaging moves into weights and bias, and the matrix product shrinks sixteenfold"


def inputs(d):
    return (
        activations("x", (d.batch_size, d.in_features), key=(0,)),
        weight("weight", (d.in_features, d.out_features), d.in_features, key=(0xBADC0DE, 0), gain=2.0),
        bias("bias", (d.out_features,), key=(0xBADC0DE, 1)),
    )


create_inputs = creator(inputs, CONFIG)


def pooled(y, size):
    return jnp.mean(y.reshape(*y.shape[:-1], -1, size), axis=-1)


def reference(x, weight, bias, *, pool_kernel_size, scale_factor):
    y = pooled(x @ weight + bias, pool_kernel_size)
    return jnp.max(gelu(y) * scale_factor, axis=1)


def simplified(x, weight, bias, *, pool_kernel_size, scale_factor):
    small_weight = pooled(wide(weight), pool_kernel_size).astype(x.dtype)
    small_bias = pooled(wide(bias), pool_kernel_size)
    y = jnp.matmul(x, small_weight, preferred_element_type=small_bias.dtype) + small_bias
    return jnp.max(gelu(y) * scale_factor, axis=1).astype(x.dtype)


def flops(d):
    return work.matmul(d.batch_size, d.in_features, d.out_features)


def least_flops(d):
    """Average the weights, then a product with out_features / pool_kernel_size columns."""
    small = work.matmul(d.batch_size, d.in_features, d.out_features // d.pool_kernel_size)
    return d.in_features * d.out_features + small
