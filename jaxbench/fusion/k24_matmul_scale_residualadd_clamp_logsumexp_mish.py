"""24k: ``x @ weight.T + bias``, times scale_factor, added to itself, clamped, logsumexp s over features, s * mish(s).

x: (batch_size, input_size); weight: (hidden_size, input_size); result (batch_size, 1).

With published inputs s is always above 10, where mish(s) = s. In ours rows differ by a common shift, some are clamped
and some have an s where mish bends.
"""

import jax
import jax.numpy as jnp

from jaxbench import work
from jaxbench.spec import activations, bias, creator, weight

ID = "24k_Matmul_Scale_ResidualAdd_Clamp_LogSumExp_Mish"
SOURCE_MODEL = "KernelBench level 2 problem 22"
CONFIG = {
    "batch_size": 4096, "input_size": 8192, "hidden_size": 8192, "scale_factor": 2.0,
    "clamp_min": -10.0, "clamp_max": 10.0,
}  # fmt: skip
SMOKE = {"batch_size": 128, "input_size": 256, "hidden_size": 512}
IDLE = {"sign": "a sum of exponentials is positive", "abs": "a sum of exponentials is positive"}


def inputs(d):
    shape = (d.hidden_size, d.input_size)
    return (
        activations("x", (d.batch_size, d.input_size), key=(0,)),
        weight("weight", shape, d.input_size, key=(42, 0), gain=0.25, drift=2.0),
        bias("bias", (d.hidden_size,), key=(42, 1), std=0.5),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, weight, bias, *, scale_factor, clamp_min, clamp_max):
    y = (x @ weight.T + bias) * scale_factor
    y = jnp.clip(y + y, clamp_min, clamp_max)
    total = jax.nn.logsumexp(y, axis=1, keepdims=True)
    return total * jax.nn.mish(total)


def flops(d):
    return work.matmul(d.batch_size, d.input_size, d.hidden_size)
