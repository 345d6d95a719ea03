"""14p: batched matrix product with equal groups. x: (num_groups, M / num_groups, K); weights: (num_groups, K, N)."""

import jax.numpy as jnp

from jaxbench import work
from jaxbench.spec import creator, normal, weight

ID = "14p_Ragged_Dot"
SOURCE_MODEL = "Mixtral-8x7B"
CONFIG = {"num_groups": 8, "M": 8192, "K": 4096, "N": 14336}
SMOKE = {"num_groups": 4, "M": 512, "K": 256, "N": 896}


def inputs(d):
    return (
        normal("x", (d.num_groups, d.M // d.num_groups, d.K), key=(42, 0)),
        weight("weights", (d.num_groups, d.K, d.N), d.K, key=(42, 1)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, weights):
    return jnp.einsum("gmk,gkn->gmn", x, weights)


def flops(d):
    """Every row meets one weight matrix."""
    return work.matmul(d.M, d.K, d.N)
