"""43k: linear layer, batch norm with given statistics, scaling by one number, softmax over features.

x: (batch_size, in_features); weight: (in_features, out_features); scale: (1,). Published statistics and scale make
norm and scaling an identity; ours do not.
"""

import jax

from jaxbench import work
from jaxbench.idioms import running_norm
from jaxbench.spec import activations, bias, creator, ones, weight, zeros

ID = "43k_Gemm_BatchNorm_Scaling_Softmax"
SOURCE_MODEL = "KernelBench level 2 problem 84"
CONFIG = {"batch_size": 4096, "in_features": 8192, "out_features": 8192, "bn_eps": 1e-5}
SMOKE = {"batch_size": 128, "in_features": 256, "out_features": 512}


def inputs(d):
    features = (d.out_features,)
    return (
        activations("x", (d.batch_size, d.in_features), key=(0,)),
        weight("weight", (d.in_features, d.out_features), d.in_features, key=(42, 0)),
        bias("bias", features, key=(42, 1)),
        ones("bn_scale", features),
        bias("bn_bias", features, key=(42, 2)),
        zeros("bn_mean", features),
        ones("bn_var", features, std=0.1),
        ones("scale", (1,)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, weight, bias, bn_scale, bn_bias, bn_mean, bn_var, scale, *, bn_eps):
    y = running_norm(x @ weight + bias, bn_scale, bn_bias, bn_mean, bn_var, bn_eps)
    return jax.nn.softmax(y * scale, axis=1)


def flops(d):
    return work.matmul(d.batch_size, d.in_features, d.out_features)
