"""26k: a linear layer, an instance norm over one single position, then ``(norm + y) * y``.

x: (batch_size, in_features); y and result: (batch_size, out_features); bmm_weight: (out_features, in_features).
Normalising one value by itself gives exactly zero, so the whole linear layer is dead.
"""

from jaxbench import work
from jaxbench.idioms import standardise
from jaxbench.spec import activations, bias, creator, ones, weight

ID = "26k_BMM_InstanceNorm_Sum_ResidualAdd_Multiply"
SOURCE_MODEL = "KernelBench level 2 problem 28"
CONFIG = {"batch_size": 4096, "in_features": 8192, "out_features": 8192}
SMOKE = {"batch_size": 128, "in_features": 256, "out_features": 512}
_WHY = "the norm over a single position is zero whatever goes in"
DEAD = {"x": _WHY, "bmm_weight": _WHY, "bmm_bias": _WHY, "in_weight": "multiplied by zero"}
IDLE = {"div 1": _WHY, "sqrt": _WHY, "div": _WHY}
ALGEBRA = "the norm over a single position is zero, so the linear layer is not needed"


def inputs(d):
    features = (d.out_features,)
    return (
        activations("x", (d.batch_size, d.in_features), key=(0, 0)),
        activations("y", (d.batch_size, d.out_features), key=(0, 1)),
        weight("bmm_weight", (d.out_features, d.in_features), d.in_features, key=(42, 0)),
        bias("bmm_bias", features, key=(42, 1)),
        ones("in_weight", features),
        bias("in_bias", features, key=(42, 2)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, y, bmm_weight, bmm_bias, in_weight, in_bias):
    h = (x @ bmm_weight.T + bmm_bias)[..., None, None]
    normal = standardise(h, axes=(2, 3))[..., 0, 0] * in_weight + in_bias
    return (normal + y) * y


def simplified(x, y, bmm_weight, bmm_bias, in_weight, in_bias):
    return (in_bias + y) * y


def flops(d):
    return work.matmul(d.batch_size, d.in_features, d.out_features)


def least_flops(d):
    """One addition and one multiplication a value."""
    return 2 * d.batch_size * d.out_features
