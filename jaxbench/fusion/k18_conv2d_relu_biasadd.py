"""18k: convolution, bias, ReLU, second bias.

x: (batch_size, in_channels, height, width); weight: (out_channels, in_channels, kernel_size, kernel_size). The second
bias comes after the ReLU.
"""

import jax

from jaxbench import work
from jaxbench.idioms import convolve, per_channel
from jaxbench.spec import activations, bias, creator, weight

ID = "18k_Conv2D_ReLU_BiasAdd"
SOURCE_MODEL = "KernelBench level 2 problem 1"
CONFIG = {
    "batch_size": 128, "in_channels": 64, "out_channels": 128, "kernel_size": 3, "height": 128, "width": 128,
}  # fmt: skip
SMOKE = {"batch_size": 2, "height": 32, "width": 32}


def inputs(d):
    window = (d.kernel_size, d.kernel_size)
    taps = d.in_channels * d.kernel_size**2
    return (
        activations("x", (d.batch_size, d.in_channels, d.height, d.width), key=(0, 0)),
        weight("weight", (d.out_channels, d.in_channels, *window), taps, key=(0xBADC0DE, 0)),
        bias("conv_bias", (d.out_channels,), key=(0xBADC0DE, 1)),
        bias("bias", (d.out_channels, 1, 1), key=(0xBADC0DE, 2)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, weight, conv_bias, bias):
    y = convolve(x, weight)
    return jax.nn.relu(y + per_channel(conv_bias, y)) + bias


def flops(d):
    space = (d.height - d.kernel_size + 1, d.width - d.kernel_size + 1)
    return work.convolution(d.batch_size, d.in_channels, d.out_channels, d.kernel_size**2, space)
