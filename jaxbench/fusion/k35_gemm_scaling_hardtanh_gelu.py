"""35k: ``gelu(clip((x @ weight + bias) * scaling_factor))``. x: (batch_size, in_features).

Ours have enough spread for the clip to bind on a few percent of the values.
"""

import jax.numpy as jnp

from jaxbench import work
from jaxbench.idioms import gelu
from jaxbench.spec import activations, bias, creator, weight

ID = "35k_Gemm_Scaling_Hardtanh_GELU"
SOURCE_MODEL = "KernelBench level 2 problem 53"
CONFIG = {
    "batch_size": 4096, "in_features": 8192, "out_features": 8192, "scaling_factor": 0.5,
    "hardtanh_min": -2.0, "hardtanh_max": 2.0,
}  # fmt: skip
SMOKE = {"batch_size": 128, "in_features": 256, "out_features": 512}


def inputs(d):
    return (
        activations("x", (d.batch_size, d.in_features), key=(0,)),
        weight("weight", (d.in_features, d.out_features), d.in_features, key=(0xBADC0DE, 0), gain=2.0),
        bias("bias", (d.out_features,), key=(0xBADC0DE, 1)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, weight, bias, *, scaling_factor, hardtanh_min, hardtanh_max):
    return gelu(jnp.clip((x @ weight + bias) * scaling_factor, hardtanh_min, hardtanh_max))


def flops(d):
    return work.matmul(d.batch_size, d.in_features, d.out_features)
