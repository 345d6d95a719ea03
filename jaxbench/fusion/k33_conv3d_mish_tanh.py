"""33k: 3-D convolution, bias, mish, tanh. x: (batch_size, in_channels, depth, height, width)."""

import jax
import jax.numpy as jnp

from jaxbench import work
from jaxbench.idioms import convolve, per_channel
from jaxbench.spec import activations, bias, creator, weight

ID = "33k_Conv3d_Mish_Tanh"
SOURCE_MODEL = "KernelBench level 2 problem 47"
CONFIG = {
    "batch_size": 16, "in_channels": 32, "out_channels": 64, "kernel_size": 3,
    "depth": 32, "height": 64, "width": 64,
}  # fmt: skip
SMOKE = {"batch_size": 1, "depth": 8, "height": 16, "width": 16}


def inputs(d):
    window = (d.kernel_size,) * 3
    taps = d.in_channels * d.kernel_size**3
    return (
        activations("x", (d.batch_size, d.in_channels, d.depth, d.height, d.width), key=(0,)),
        weight("weight", (d.out_channels, d.in_channels, *window), taps, key=(0xBADC0DE, 0)),
        bias("bias", (d.out_channels,), key=(0xBADC0DE, 1)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, weight, bias):
    y = convolve(x, weight)
    return jnp.tanh(jax.nn.mish(y + per_channel(bias, y)))


def flops(d):
    space = tuple(size - d.kernel_size + 1 for size in (d.depth, d.height, d.width))
    return work.convolution(d.batch_size, d.in_channels, d.out_channels, d.kernel_size**3, space)
