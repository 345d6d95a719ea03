"""30k: y = x @ weight + bias; ``scaling_factor * y + y``. x: (batch_size, in_features)."""

from jaxbench import work
from jaxbench.spec import activations, bias, creator, weight

ID = "30k_Matmul_Scaling_ResidualAdd"
SOURCE_MODEL = "KernelBench level 2 problem 40"
CONFIG = {"batch_size": 16384, "in_features": 4096, "out_features": 4096, "scaling_factor": 0.5}
SMOKE = {"batch_size": 128, "in_features": 256, "out_features": 512}


def inputs(d):
    return (
        activations("x", (d.batch_size, d.in_features), key=(0,)),
        weight("weight", (d.in_features, d.out_features), d.in_features, key=(0xBADC0DE, 0)),
        bias("bias", (d.out_features,), key=(0xBADC0DE, 1)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, weight, bias, *, scaling_factor):
    y = x @ weight + bias
    return y * scaling_factor + y


def flops(d):
    return work.matmul(d.batch_size, d.in_features, d.out_features)
