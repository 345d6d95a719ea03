"""39k: convolution, bias, GELU, mean over height and width. Result (batch_size, out_channels).

x: (batch_size, in_channels, height, width). Averaged over thousands of independent pixels every image is nearly the
same, so ours give each image a scale of its own.
"""

import jax.numpy as jnp

from jaxbench import work
from jaxbench.idioms import convolve, gelu, per_channel
from jaxbench.spec import activations, bias, creator, scaled_per_item, weight

ID = "39k_Conv2d_GELU_GlobalAvgPool"
SOURCE_MODEL = "KernelBench level 2 problem 67"
CONFIG = {
    "batch_size": 128, "in_channels": 8, "out_channels": 64, "kernel_size": 3, "height": 256, "width": 256,
}  # fmt: skip
SMOKE = {"batch_size": 2, "height": 32, "width": 32}


def inputs(d):
    window = (d.kernel_size, d.kernel_size)
    taps = d.in_channels * d.kernel_size**2
    image = (d.batch_size, d.in_channels, d.height, d.width)
    return (
        activations("x", image, key=(0,), ours=scaled_per_item(0.7)),
        weight("weight", (d.out_channels, d.in_channels, *window), taps, key=(0xBADC0DE, 0)),
        bias("bias", (d.out_channels,), key=(0xBADC0DE, 1)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, weight, bias):
    y = convolve(x, weight)
    return jnp.mean(gelu(y + per_channel(bias, y)), axis=(2, 3))


def flops(d):
    space = (d.height - d.kernel_size + 1, d.width - d.kernel_size + 1)
    return work.convolution(d.batch_size, d.in_channels, d.out_channels, d.kernel_size**2, space)
