"""47k: ``clip(gelu(tanh(swish(x @ weight + bias + add_value))), -1, 1)``. x: (batch_size, in_features).

gelu(tanh(.)) never exceeds 0.85, so the clip can never bind.
"""

import jax
import jax.numpy as jnp

from jaxbench import work
from jaxbench.idioms import gelu
from jaxbench.spec import activations, bias, creator, weight

ID = "47k_Matmul_Add_Swish_Tanh_GELU_Hardtanh"
SOURCE_MODEL = "KernelBench level 2 problem 95"
CONFIG = {"batch_size": 4096, "in_features": 8192, "out_features": 8192}
SMOKE = {"batch_size": 128, "in_features": 256, "out_features": 512}
IDLE = {
    "integer_pow": "the cubic term moves GELU by less than bfloat16 shows here",
    "add": "the cubic term moves GELU by less than bfloat16 shows here",
    "clip": "gelu(tanh(.)) lies between -0.17 and 0.85",
}


def inputs(d):
    return (
        activations("x", (d.batch_size, d.in_features), key=(0,)),
        weight("weight", (d.in_features, d.out_features), d.in_features, key=(0xBADC0DE, 0)),
        bias("bias", (d.out_features,), key=(0xBADC0DE, 1)),
        bias("add_value", (d.out_features,), key=(0xBADC0DE, 2)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, weight, bias, add_value):
    y = jax.nn.silu(x @ weight + bias + add_value)
    return jnp.clip(gelu(jnp.tanh(y)), -1, 1)


def flops(d):
    return work.matmul(d.batch_size, d.in_features, d.out_features)
