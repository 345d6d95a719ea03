"""48k: linear layer, batch norm with given statistics, one number added, division, swish.

x: (batch_size, in_features); weight: (in_features, out_features); bias: (1,). Published statistics make the norm an
identity; ours do not. The division is by 1.
"""

import jax

from jaxbench import work
from jaxbench.idioms import running_norm
from jaxbench.spec import activations, bias, creator, ones, weight, zeros

ID = "48k_Matmul_BatchNorm_BiasAdd_Divide_Swish"
SOURCE_MODEL = "KernelBench level 2 problem 97"
CONFIG = {"batch_size": 4096, "in_features": 8192, "out_features": 8192, "bn_eps": 1e-5, "divide_value": 1.0}
SMOKE = {"batch_size": 128, "in_features": 256, "out_features": 512}
IDLE = {"div 1": "divides by one"}


def inputs(d):
    features = (d.out_features,)
    return (
        activations("x", (d.batch_size, d.in_features), key=(0,)),
        weight("weight", (d.in_features, d.out_features), d.in_features, key=(0xBADC0DE, 0)),
        bias("linear_bias", features, key=(0xBADC0DE, 1)),
        ones("bn_scale", features),
        zeros("bn_bias", features),
        zeros("bn_mean", features),
        ones("bn_var", features, std=0.1),
        bias("bias", (1,), key=(0xBADC0DE, 2)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, weight, linear_bias, bn_scale, bn_bias, bn_mean, bn_var, bias, *, bn_eps, divide_value):
    y = running_norm(x @ weight + linear_bias, bn_scale, bn_bias, bn_mean, bn_var, bn_eps)
    return jax.nn.silu((y + bias) / divide_value)


def flops(d):
    return work.matmul(d.batch_size, d.in_features, d.out_features)
