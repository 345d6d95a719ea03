"""2p: causal grouped-query attention, sequence-major.

query: (batch, seq_len, num_query_heads, head_dim); key, value: (batch, seq_len, num_kv_heads, head_dim). Query head h
reads key/value head h // (num_query_heads / num_kv_heads). The result is laid out like query.
"""

import jax
import jax.numpy as jnp

from jaxbench import work
from jaxbench.idioms import HIDDEN, causal_mask
from jaxbench.spec import creator, normal

ID = "2p_GQA_Attention"
SOURCE_MODEL = "Llama-3.1-405B"
CONFIG = {"batch": 4, "seq_len": 4096, "num_query_heads": 128, "num_kv_heads": 8, "head_dim": 128}
SMOKE = {"batch": 1, "seq_len": 256, "num_query_heads": 8, "num_kv_heads": 2}


def inputs(d):
    shared = (d.batch, d.seq_len, d.num_kv_heads, d.head_dim)
    return (
        normal("query", (d.batch, d.seq_len, d.num_query_heads, d.head_dim), key=(42, 0)),
        normal("key", shared, key=(42, 1)),
        normal("value", shared, key=(42, 2)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(query, key, value):
    batch, length, heads, dim = query.shape
    kv_heads = key.shape[2]
    grouped = query.reshape(batch, length, kv_heads, heads // kv_heads, dim)
    scores = jnp.einsum("bikgd,bjkd->bkgij", grouped, key) * dim**-0.5
    scores = jnp.where(causal_mask(length), scores, HIDDEN)
    mixed = jnp.einsum("bkgij,bjkd->bikgd", jax.nn.softmax(scores, axis=-1), value)
    return mixed.reshape(query.shape)


def flops(d):
    """Scores and weighted values over the causal half, for every query head."""
    return work.causal_attention(d.batch, d.num_query_heads, d.seq_len, d.head_dim)
