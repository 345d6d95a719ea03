"""4p: causal grouped-query attention on queries that carry the softmax scale already. Causality is the sparsity.

q: (batch, num_query_heads, seq_len, head_dim); k, v: (batch, num_kv_heads, seq_len, head_dim); result like q. Query
head h reads key/value head h // (num_query_heads / num_kv_heads).

The published keys and values are 0.02 wide, so every row is nearly a running mean of v; ours have unit spread.
"""

import jax
import jax.numpy as jnp

from jaxbench import work
from jaxbench.idioms import HIDDEN, causal_mask
from jaxbench.spec import Draw, creator, normal

ID = "4p_Sparse_Attention"
SOURCE_MODEL = "Llama-3.1-70B"
CONFIG = {"batch": 4, "seq_len": 4096, "num_query_heads": 64, "num_kv_heads": 8, "head_dim": 128}
SMOKE = {"batch": 1, "seq_len": 256, "num_query_heads": 8, "num_kv_heads": 2}


def inputs(d):
    shared = (d.batch, d.num_kv_heads, d.seq_len, d.head_dim)
    return (
        normal("q", (d.batch, d.num_query_heads, d.seq_len, d.head_dim), key=(42, 0), scale=d.head_dim**-0.5),
        normal("k", shared, key=(42, 1), scale=0.02, ours=Draw()),
        normal("v", shared, key=(42, 2), scale=0.02, ours=Draw()),
    )


create_inputs = creator(inputs, CONFIG)


def reference(q, k, v):
    batch, heads, length, dim = q.shape
    kv_heads = k.shape[1]
    grouped = q.reshape(batch, kv_heads, heads // kv_heads, length, dim)
    scores = jnp.einsum("bkgid,bkjd->bkgij", grouped, k)
    scores = jnp.where(causal_mask(length), scores, HIDDEN)
    return jnp.einsum("bkgij,bkjd->bkgid", jax.nn.softmax(scores, axis=-1), v).reshape(q.shape)


def flops(d):
    """Scores and weighted values over the causal half, for every query head."""
    return work.causal_attention(d.batch, d.num_query_heads, d.seq_len, d.head_dim)
