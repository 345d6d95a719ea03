"""1p: causal multi-head attention.

batch, num_heads, seq_len, head_dim: query, key, value and the result are (batch, num_heads, seq_len, head_dim).
"""

from jaxbench import work
from jaxbench.idioms import causal_attention
from jaxbench.spec import creator, normal

ID = "1p_Flash_Attention"
SOURCE_MODEL = "generic multi-head attention, sizes of Llama-3.1-70B"
CONFIG = {"batch": 4, "seq_len": 4096, "num_heads": 64, "head_dim": 128}
SMOKE = {"batch": 1, "seq_len": 256, "num_heads": 2}


def inputs(d):
    shape = (d.batch, d.num_heads, d.seq_len, d.head_dim)
    return tuple(normal(name, shape, key=(42, i)) for i, name in enumerate(("query", "key", "value")))


create_inputs = creator(inputs, CONFIG)


def reference(query, key, value):
    return causal_attention(query, key, value, scale=query.shape[-1] ** -0.5)


def flops(d):
    """Scores and weighted values over the causal half."""
    return work.causal_attention(d.batch, d.num_heads, d.seq_len, d.head_dim)
