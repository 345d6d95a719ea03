"""5p: causal attention with a dense additive bias for each head, shared over the batch.

q, k, v and the result: (batch, num_heads, seq_len, head_dim); rel_pos_bias: (num_heads, seq_len, seq_len), added after
the scaling. At full size the bias alone is 2 GiB.

The published keys, values and bias are so small that none of them matters beyond a running mean of v; ours have unit
spread.
"""

from jaxbench import work
from jaxbench.idioms import causal_attention
from jaxbench.spec import Draw, creator, normal

ID = "5p_Flex_Attention"
SOURCE_MODEL = "Llama-3.1-70B"
CONFIG = {"batch": 4, "seq_len": 4096, "num_heads": 64, "head_dim": 128}
SMOKE = {"batch": 1, "seq_len": 256, "num_heads": 2}


def inputs(d):
    shape = (d.batch, d.num_heads, d.seq_len, d.head_dim)
    return (
        normal("q", shape, key=(42, 0)),
        normal("k", shape, key=(42, 1), scale=0.02, ours=Draw()),
        normal("v", shape, key=(42, 2), scale=0.02, ours=Draw()),
        normal("rel_pos_bias", (d.num_heads, d.seq_len, d.seq_len), key=(42, 3), scale=0.01, ours=Draw()),
    )


create_inputs = creator(inputs, CONFIG)


def reference(q, k, v, rel_pos_bias):
    return causal_attention(q, k, v, scale=q.shape[-1] ** -0.5, bias=rel_pos_bias)


def flops(d):
    """Scores and weighted values over the causal half."""
    return work.causal_attention(d.batch, d.num_heads, d.seq_len, d.head_dim)


def input_bytes(d, sizes):
    """Half of the bias lies above the diagonal and is never needed."""
    needed = work.causal_pairs(d.seq_len) / d.seq_len**2
    return sum(sizes.values()) - round((1 - needed) * sizes["rel_pos_bias"])
