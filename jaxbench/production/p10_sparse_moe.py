"""10p: mixture of experts, each token weighted over its num_experts_per_tok best experts.

x: (batch, seq_len, emb_dim); router_weights: (emb_dim, num_experts); expert kernels: (num_experts, emb_dim, mlp_dim)
twice and (num_experts, mlp_dim, emb_dim). The result has x's shape in float32. The reference runs every expert on
every token; a routed kernel needs num_experts_per_tok / num_experts of that.

Equal router logits go to the lower expert. Ours avoids the question: tokens are built so that their logits are a
random ranking with gaps far above rounding, or else a kernel that rounds the router differently would be marked
wrong for choosing another expert.
"""

import jax
import jax.numpy as jnp

from jaxbench import work
from jaxbench.idioms import wide
from jaxbench.spec import creator, draw_array, normal, standard_normal, weight

ID = "10p_Sparse_MoE"
SOURCE_MODEL = "Mixtral-8x7B"
CONFIG = {
    "batch": 2, "seq_len": 4096, "emb_dim": 4096, "mlp_dim": 14336, "num_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip
SMOKE = {"batch": 1, "seq_len": 128, "emb_dim": 256, "mlp_dim": 896}
ROUTER = 1  # the position of router_weights among the inputs


def inputs(d):
    up_shape, e, m = (d.num_experts, d.emb_dim, d.mlp_dim), d.emb_dim, d.mlp_dim
    router = weight("router_weights", (e, d.num_experts), e, key=(42, 1))

    def decided_tokens(key, shape, dtype):
        """Normal tokens, moved along the router's columns until their logits are 0.5 apart, in random order."""
        columns = draw_array(router.ours, jax.random.fold_in(key, ROUTER), router.shape, dtype).astype(jnp.float32)
        noise, order, jitter = jax.random.split(jax.random.fold_in(key, 7001), 3)
        x = standard_normal(noise, shape, jnp.float32)
        levels = jnp.broadcast_to(0.5 * jnp.arange(d.num_experts), (*shape[:-1], d.num_experts))
        wanted = jax.random.permutation(order, levels, axis=-1, independent=True)
        wanted = wanted + jax.random.uniform(jitter, wanted.shape, maxval=0.25)
        moved = (wanted - x @ columns) @ jnp.linalg.inv(columns.T @ columns) @ columns.T
        return (x + moved).astype(dtype)

    return (
        normal("x", (d.batch, d.seq_len, e), key=(42, 0), ours=decided_tokens),
        router,
        weight("expert_gate_kernels", up_shape, e, key=(42, 2)),
        weight("expert_up_kernels", up_shape, e, key=(42, 3)),
        weight("expert_down_kernels", (d.num_experts, m, e), m, key=(42, 4)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(x, router_weights, expert_gate_kernels, expert_up_kernels, expert_down_kernels, *, num_experts_per_tok):
    best, chosen = jax.lax.top_k(x @ router_weights, num_experts_per_tok)
    share = wide(jax.nn.softmax(best, axis=-1))
    picked = jax.nn.one_hot(chosen, router_weights.shape[-1], dtype=share.dtype)
    weights = jnp.einsum("bske,bsk->bse", picked, share)
    gate = jax.nn.silu(jnp.einsum("bsd,edm->bsem", x, expert_gate_kernels))
    up = jnp.einsum("bsd,edm->bsem", x, expert_up_kernels)
    answers = jnp.einsum("bsem,emd->bsed", gate * up, expert_down_kernels)
    return jnp.einsum("bse,bsed->bsd", weights, wide(answers))


def flops(d):
    """The router, and three products a token for each of its chosen experts (not for all experts)."""
    tokens = d.batch * d.seq_len
    routed = 3 * work.matmul(tokens * d.num_experts_per_tok, d.emb_dim, d.mlp_dim)
    return routed + work.matmul(tokens, d.emb_dim, d.num_experts)
