"""11p: grouped matrix product. Rows of lhs are sorted by group; each group has its own weight matrix.

lhs: (seq_len * num_experts_per_tok, emb_dim); rhs: (num_experts, emb_dim, moe_mlp_dim); group_sizes: (num_experts,),
how many consecutive rows each group owns. Rows after the last group are zero.

The original passes one more argument, a Python integer that bounds the group size; it does not run under its own
harness and is left out here. Published groups are all equal, which makes this a batched product; ours are ragged,
with an empty group and a tail that belongs to nobody.
"""

import jax
import jax.numpy as jnp
from jax import lax

from jaxbench import work
from jaxbench.spec import Input, creator, normal, weight

ID = "11p_Megablox_GMM"
SOURCE_MODEL = "Qwen3-235B-A22B"
CONFIG = {"num_experts": 128, "num_experts_per_tok": 8, "emb_dim": 4096, "moe_mlp_dim": 1536, "seq_len": 4096}
SMOKE = {"num_experts": 8, "num_experts_per_tok": 4, "emb_dim": 256, "moe_mlp_dim": 128, "seq_len": 256}
IDLE = {"where": "on a CPU ragged_dot itself leaves the unowned rows zero"}


def inputs(d):
    rows = d.seq_len * d.num_experts_per_tok

    def ragged(key, shape, dtype):
        """Gaps between sorted random ends; the last end leaves up to a sixteenth of the rows unowned."""
        where, tail, empty = jax.random.split(jax.random.fold_in(key, 7001), 3)
        last = rows - jax.random.randint(tail, (), 0, rows // 16)
        ends = jnp.sort(jax.random.randint(where, shape, 0, last + 1)).at[-1].set(last)
        at = jax.random.randint(empty, (), 1, shape[0] - 1)
        ends = ends.at[at].set(ends[at - 1])
        return jnp.diff(ends, prepend=0).astype(dtype)

    return (
        normal("lhs", (rows, d.emb_dim), key=(42, 0)),
        weight("rhs", (d.num_experts, d.emb_dim, d.moe_mlp_dim), d.emb_dim, key=(42, 1)),
        Input(
            "group_sizes", (d.num_experts,),
            lambda shape, dtype, _: jnp.full(shape, rows // d.num_experts, dtype), ragged, "int32",
        ),
    )  # fmt: skip


create_inputs = creator(inputs, CONFIG)


def reference(lhs, rhs, group_sizes):
    owned = jnp.arange(lhs.shape[0]) < jnp.sum(group_sizes)
    return jnp.where(owned[:, None], lax.ragged_dot(lhs, rhs, group_sizes), 0)


def flops(d):
    """Every row meets one weight matrix."""
    return work.matmul(d.seq_len * d.num_experts_per_tok, d.emb_dim, d.moe_mlp_dim)
