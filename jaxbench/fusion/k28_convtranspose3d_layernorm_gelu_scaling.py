"""28k: transposed 3-D convolution, layer norm over the width, GELU, scaling.

x: (batch_size, in_channels, depth, height, width); conv_weight: (in_channels, out_channels, 4, 4, 4), stride 2, padding
1: space doubles. The norm runs along the last axis, whose length 2 * width must equal out_channels (the length of
ln_weight and ln_bias). It cancels conv_bias.
"""

import jax.numpy as jnp
from jax import lax

from jaxbench import work
from jaxbench.idioms import gelu, per_channel, standardise
from jaxbench.spec import Draw, Input, activations, constant_recipe, creator, ones, weight, zeros

ID = "28k_ConvTranspose3d_LayerNorm_GELU_Scaling"
SOURCE_MODEL = "KernelBench level 2 problem 34"
CONFIG = {
    "batch_size": 32, "in_channels": 32, "out_channels": 64, "kernel_size": 4, "stride": 2, "padding": 1,
    "depth": 16, "height": 32, "width": 32, "eps": 1e-5, "scaling_factor": 1.0,
}  # fmt: skip
SMOKE = {"batch_size": 1, "depth": 4, "height": 8}
DEAD = {"conv_bias": "a constant along the width, which the norm subtracts again"}


def inputs(d):
    window = (d.kernel_size,) * 3
    taps = d.in_channels * (d.kernel_size // d.stride) ** 3
    return (
        activations("x", (d.batch_size, d.in_channels, d.depth, d.height, d.width), key=(0, 0)),
        weight("conv_weight", (d.in_channels, d.out_channels, *window), taps, key=(0, 1), scale=1.0),
        Input("conv_bias", (d.out_channels,), constant_recipe(0.0), Draw()),
        ones("ln_weight", (2 * d.width,)),
        zeros("ln_bias", (2 * d.width,)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, conv_weight, conv_bias, ln_weight, ln_bias, *, stride, padding, eps, scaling_factor):
    edge = conv_weight.shape[-1] - 1 - padding
    y = lax.conv_general_dilated(
        x, jnp.flip(conv_weight, (2, 3, 4)).swapaxes(0, 1), (1, 1, 1), [(edge, edge)] * 3, lhs_dilation=(stride,) * 3
    )
    normal = standardise(y + per_channel(conv_bias, y), axes=(-1,), eps=eps)
    return gelu(normal * ln_weight + ln_bias) * scaling_factor


def flops(d):
    """Every input value meets every tap once (taps that fall over the border included), so no zeros are counted."""
    inside = (d.depth, d.height, d.width)
    return work.convolution(d.batch_size, d.in_channels, d.out_channels, d.kernel_size**3, inside)
