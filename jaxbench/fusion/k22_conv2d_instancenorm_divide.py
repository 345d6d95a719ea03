"""22k: convolution, instance norm over height and width, division.

x: (batch_size, in_channels, height, width). The norm cancels conv_bias.
"""

from jaxbench import work
from jaxbench.idioms import convolve, per_channel, standardise
from jaxbench.spec import activations, bias, creator, ones, weight, zeros

ID = "22k_Conv2d_InstanceNorm_Divide"
SOURCE_MODEL = "KernelBench level 2 problem 17"
CONFIG = {
    "batch_size": 128, "in_channels": 64, "out_channels": 128, "kernel_size": 3, "height": 128, "width": 128,
    "divide_by": 2.0,
}  # fmt: skip
SMOKE = {"batch_size": 2, "height": 32, "width": 32}
DEAD = {"conv_bias": "a constant over height and width, which the norm subtracts again"}


def inputs(d):
    window = (d.kernel_size, d.kernel_size)
    taps = d.in_channels * d.kernel_size**2
    return (
        activations("x", (d.batch_size, d.in_channels, d.height, d.width), key=(0,)),
        weight("weight", (d.out_channels, d.in_channels, *window), taps, key=(0xBADC0DE, 0)),
        bias("conv_bias", (d.out_channels,), key=(0xBADC0DE, 1)),
        ones("in_weight", (d.out_channels,)),
        zeros("in_bias", (d.out_channels,)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, weight, conv_bias, in_weight, in_bias, *, divide_by):
    y = convolve(x, weight)
    normal = standardise(y + per_channel(conv_bias, y), axes=(2, 3))
    return (normal * per_channel(in_weight, y) + per_channel(in_bias, y)) / divide_by


def flops(d):
    space = (d.height - d.kernel_size + 1, d.width - d.kernel_size + 1)
    return work.convolution(d.batch_size, d.in_channels, d.out_channels, d.kernel_size**2, space)
