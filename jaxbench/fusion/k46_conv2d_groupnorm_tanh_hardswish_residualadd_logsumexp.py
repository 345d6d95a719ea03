"""46k: convolution with bias c, then logsumexp over channels of c + hard_swish(tanh(group_norm(c))).

hard_swish(t) = t * clip(t + 3, 0, 6) / 6. x: (batch_size, in_channels, height, width); the result keeps a channel axis
of length one. tanh keeps t within (-1, 1), so the
clip can never bind. Ours give each image a scale of its own, and a conv_bias that brings the result near
zero, where bfloat16 is fine enough to show the norm.
"""

import jax
import jax.numpy as jnp

from jaxbench import work
from jaxbench.idioms import convolve, group_norm, per_channel
from jaxbench.spec import Draw, activations, creator, normal, ones, scaled_per_item, weight, zeros

ID = "46k_Conv2d_GroupNorm_Tanh_HardSwish_ResidualAdd_LogSumExp"
SOURCE_MODEL = "KernelBench level 2 problem 92"
CONFIG = {
    "batch_size": 128, "in_channels": 8, "out_channels": 64, "kernel_size": 3, "groups": 16,
    "height": 128, "width": 128,
}  # fmt: skip
SMOKE = {"batch_size": 2, "height": 32, "width": 32}
IDLE = {
    "clip": "tanh keeps its argument between 2 and 4",
    "sign": "a sum of exponentials is positive",
    "abs": "a sum of exponentials is positive",
}


def inputs(d):
    window = (d.kernel_size, d.kernel_size)
    taps = d.in_channels * d.kernel_size**2
    image = (d.batch_size, d.in_channels, d.height, d.width)
    return (
        activations("x", image, key=(0,), ours=scaled_per_item(0.7)),
        weight("conv_weight", (d.out_channels, d.in_channels, *window), taps, key=(42, 0), gain=0.5),
        normal("conv_bias", (d.out_channels,), key=(42, 1), scale=0.02, ours=Draw(mean=-4.0, std=0.5)),
        ones("gn_weight", (d.out_channels,), std=0.5),
        zeros("gn_bias", (d.out_channels,)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, conv_weight, conv_bias, gn_weight, gn_bias, *, groups):
    c = convolve(x, conv_weight)
    c = c + per_channel(conv_bias, c)
    t = jnp.tanh(group_norm(c, groups, gn_weight, gn_bias))
    hard_swish = t * jnp.clip(t + 3, 0, 6) / 6
    return jax.nn.logsumexp(c + hard_swish, axis=1, keepdims=True)


def flops(d):
    space = (d.height - d.kernel_size + 1, d.width - d.kernel_size + 1)
    return work.convolution(d.batch_size, d.in_channels, d.out_channels, d.kernel_size**2, space)
