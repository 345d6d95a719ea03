"""25k: 3-D convolution, group norm, mean over everything but the batch. Result (batch_size,).

x: (batch_size, in_channels, depth, height, width); gamma, beta: the norm's affine, by channel.

The published gamma is all ones, and then every image's exact answer is mean(beta). In ours gamma varies, and so does
the scale of the images.
"""

import jax.numpy as jnp

from jaxbench import work
from jaxbench.idioms import convolve, group_norm, per_channel
from jaxbench.spec import activations, bias, creator, ones, scaled_per_item, weight

ID = "25k_Conv3d_GroupNorm_Mean"
SOURCE_MODEL = "KernelBench level 2 problem 23"
CONFIG = {
    "batch_size": 128, "in_channels": 3, "out_channels": 24, "kernel_size": 3, "num_groups": 8,
    "depth": 24, "height": 32, "width": 32,
}  # fmt: skip
SMOKE = {"batch_size": 4, "depth": 8, "height": 16, "width": 16}


def inputs(d):
    window = (d.kernel_size,) * 3
    taps = d.in_channels * d.kernel_size**3
    image = (d.batch_size, d.in_channels, d.depth, d.height, d.width)
    return (
        activations("x", image, key=(0,), ours=scaled_per_item(0.7)),
        weight("weight", (d.out_channels, d.in_channels, *window), taps, key=(42, 0)),
        bias("conv_bias", (d.out_channels,), key=(42, 1)),
        ones("gamma", (d.out_channels,), std=1.0),
        bias("beta", (d.out_channels,), key=(42, 2)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, weight, conv_bias, gamma, beta, *, num_groups):
    y = convolve(x, weight)
    y = group_norm(y + per_channel(conv_bias, y), num_groups, gamma, beta)
    return jnp.mean(y, axis=(1, 2, 3, 4))


def flops(d):
    space = tuple(size - d.kernel_size + 1 for size in (d.depth, d.height, d.width))
    return work.convolution(d.batch_size, d.in_channels, d.out_channels, d.kernel_size**3, space)
