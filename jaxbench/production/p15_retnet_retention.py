"""15p: retention. Scores decay with distance and are divided by the sum of their sizes instead of a softmax.

query, key, value and result: (batch, num_heads, seq_len, head_dim). Head h decays by 1 - 2^(-5 - h) a step; scores
are not scaled; the divisor is at least 1. In our
inputs some queries are so small that this limit counts.
"""

import jax.numpy as jnp
import numpy as np

from jaxbench import work
from jaxbench.idioms import HIDDEN, causal_mask, wide
from jaxbench.spec import creator, normal, scaled_per_item

ID = "15p_RetNet_Retention"
SOURCE_MODEL = "RetNet-6.7B"
CONFIG = {"batch": 4, "seq_len": 4096, "num_heads": 16, "head_dim": 256}
SMOKE = {"batch": 1, "seq_len": 256, "num_heads": 4, "head_dim": 128}


def inputs(d):
    shape = (d.batch, d.num_heads, d.seq_len, d.head_dim)
    return (
        normal("query", shape, key=(42, 0), ours=scaled_per_item(3.0, axes=3)),
        normal("key", shape, key=(42, 1)),
        normal("value", shape, key=(42, 2)),
    )


create_inputs = creator(inputs, CONFIG)


def reference(query, key, value):
    heads, length = query.shape[1:3]
    q, k = wide(query), wide(key)
    log_decay = jnp.asarray(np.log1p(-(2.0 ** (-5 - np.arange(heads)))), q.dtype)
    steps = jnp.arange(length)
    distance = (steps[:, None] - steps).astype(q.dtype)
    decay = jnp.exp(jnp.where(causal_mask(length), log_decay[:, None, None] * distance, HIDDEN))
    weights = jnp.einsum("bhid,bhjd->bhij", q, k) * decay
    divisor = jnp.maximum(jnp.sum(jnp.abs(weights), axis=-1, keepdims=True), 1.0)
    return jnp.einsum("bhij,bhjd->bhid", (weights / divisor).astype(value.dtype), value)


def flops(d):
    """Scores and weighted values over the causal half. The sum of sizes keeps it from becoming a recurrence."""
    return work.causal_attention(d.batch, d.num_heads, d.seq_len, d.head_dim)
