"""34k: convolution, bias, mish, batch norm over batch, height and width.

x: (batch_size, in_channels, height, width). Published weights are so large that some channels are always strongly
negative: mish is then nearly constant, and the norm blows up its rounding noise.
"""

import jax

from jaxbench import work
from jaxbench.idioms import batch_norm, convolve, per_channel
from jaxbench.spec import activations, bias, creator, ones, weight, zeros

ID = "34k_Conv2d_Activation_BatchNorm"
SOURCE_MODEL = "KernelBench level 2 problem 52"
CONFIG = {
    "batch_size": 64, "in_channels": 64, "out_channels": 128, "kernel_size": 3, "height": 128, "width": 128,
}  # fmt: skip
SMOKE = {"batch_size": 2, "height": 32, "width": 32}


def inputs(d):
    window = (d.kernel_size, d.kernel_size)
    taps = d.in_channels * d.kernel_size**2
    return (
        activations("x", (d.batch_size, d.in_channels, d.height, d.width), key=(0, 0)),
        weight("conv_weight", (d.out_channels, d.in_channels, *window), taps, key=(0, 1), scale=1.0),
        bias("conv_bias", (d.out_channels,), key=(0, 2), scale=1.0),
        ones("bn_weight", (d.out_channels,)),
        zeros("bn_bias", (d.out_channels,)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, conv_weight, conv_bias, bn_weight, bn_bias):
    y = convolve(x, conv_weight)
    return batch_norm(jax.nn.mish(y + per_channel(conv_bias, y)), bn_weight, bn_bias)


def flops(d):
    space = (d.height - d.kernel_size + 1, d.width - d.kernel_size + 1)
    return work.convolution(d.batch_size, d.in_channels, d.out_channels, d.kernel_size**2, space)
