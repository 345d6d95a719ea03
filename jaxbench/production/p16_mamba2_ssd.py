"""16p: selective state space in its attention form, with input-dependent decay.

query, key, value and result: (batch, num_heads, seq_len, head_dim); A_log: (batch, num_heads, seq_len), float32. The
step decay is sigmoid(A_log); weight (i, j) is q_i . k_j times the decays of steps j + 1 to i; rows are divided by
max(|row sum|, 1).

Published decays are near 0.02, so three diagonals hold everything; ours are near 0.98 and reach over many steps.
"""

import jax
import jax.numpy as jnp

from jaxbench import work
from jaxbench.idioms import HIDDEN, causal_mask, wide
from jaxbench.spec import Draw, creator, normal

ID = "16p_Mamba2_SSD"
SOURCE_MODEL = "Mamba-2-2.7B"
CONFIG = {"batch": 4, "seq_len": 4096, "num_heads": 64, "head_dim": 64}
SMOKE = {"batch": 1, "seq_len": 256, "num_heads": 4}
# The long case has the full length: a kernel whose work grows with the length, not its square, is shown there.
CASES = {
    "small": {"batch": 1, "seq_len": 256, "num_heads": 4},
    "medium": {"batch": 2, "seq_len": 384, "num_heads": 4},
    "wide": {"batch": 1, "seq_len": 128, "num_heads": 4},
    "long": {"batch": 1, "num_heads": 2},
    "ragged": {"batch": 2, "seq_len": 250, "num_heads": 4},
}
IDLE = {"add 1e-08": "below the resolution of float32 beside any decay that lasts a step"}


def inputs(d):
    shape = (d.batch, d.num_heads, d.seq_len, d.head_dim)
    decay = normal(
        "A_log", shape[:3], key=(42, 3), scale=0.5, shift=-4.0, ours=Draw(mean=4.0, std=0.5), dtype="float32"
    )
    return (*(normal(name, shape, key=(42, i)) for i, name in enumerate(("query", "key", "value"))), decay)


create_inputs = creator(inputs, CONFIG)


def reference(query, key, value, A_log):
    travelled = jnp.cumsum(jnp.log(jax.nn.sigmoid(A_log) + 1e-8), axis=-1)
    between = travelled[..., :, None] - travelled[..., None, :]
    decay = jnp.exp(jnp.where(causal_mask(query.shape[2]), between, HIDDEN))
    weights = jnp.einsum("bhid,bhjd->bhij", wide(query), wide(key)) * decay
    total = jnp.abs(jnp.sum(weights, axis=-1, keepdims=True))
    weights = weights / jnp.maximum(total, 1.0)
    return jnp.einsum("bhij,bhjd->bhid", weights.astype(value.dtype), value)


def flops(d):
    """Scores and weighted values over the causal half, as the reference has it."""
    return work.causal_attention(d.batch, d.num_heads, d.seq_len, d.head_dim)


def least_flops(d):
    """Numerator and row sum are both linear in the past, so a recurrence does: each step updates and reads a
    (head_dim, head_dim + 1) state."""
    return 4 * d.batch * d.num_heads * d.seq_len * d.head_dim * (d.head_dim + 1)
