"""6p: decoding one token a sequence against a paged key/value cache.

queries: (num_seqs, num_query_heads, head_dim). k_pages, v_pages: (pages, page_size, num_kv_heads, head_dim).
page_indices: (num_seqs, pages_per_seq), the pages of a sequence in order. kv_lens: (num_seqs,), valid keys of each.
cu_q_lens: (num_seqs + 1,) = 0, 1, 2, ...: one query token a sequence.

Ours: ragged lengths (a full sequence and one of a single key among them), every page of the pool used once in random
order, keys and values of unit spread. Published: all sequences full, pages in order, keys and values 0.02 wide (zeros
then pass at a tolerance of 1e-2).
"""

import math

import jax
import jax.numpy as jnp

from jaxbench.idioms import HIDDEN
from jaxbench.spec import Draw, Input, creator, normal

ID = "6p_Paged_Attention"
SOURCE_MODEL = "Llama-3.1-70B"
CONFIG = {
    "num_seqs": 64, "max_seq_len": 4096, "num_query_heads": 64, "num_kv_heads": 8, "head_dim": 128,
    "page_size": 16, "pages_per_seq": 256,
}  # fmt: skip
SMOKE = {"num_seqs": 4, "max_seq_len": 256, "num_query_heads": 8, "num_kv_heads": 2, "pages_per_seq": 16}
_WHY = "always 0, 1, 2, ...: sequence s brings exactly query row s"
DEAD = {"cu_q_lens": _WHY}
IDLE = {"gather": _WHY}
CASES = {
    "small": {"num_seqs": 4, "max_seq_len": 128, "num_query_heads": 8, "num_kv_heads": 2, "pages_per_seq": 8},
    "medium": {"num_seqs": 8, "max_seq_len": 256, "num_query_heads": 16, "num_kv_heads": 2, "pages_per_seq": 16},
    "wide": {"num_seqs": 2, "max_seq_len": 512, "num_query_heads": 8, "num_kv_heads": 4, "pages_per_seq": 32},
    "ragged": {"num_seqs": 3, "max_seq_len": 208, "num_query_heads": 6, "num_kv_heads": 2, "pages_per_seq": 13},
}


def inputs(d):
    pool = d.num_seqs * d.pages_per_seq
    page_shape = (pool, d.page_size, d.num_kv_heads, d.head_dim)

    def count_up(shape, dtype, *_):
        return jnp.arange(math.prod(shape), dtype=dtype).reshape(shape)

    def ragged(key, shape, dtype):
        lengths = jax.random.randint(jax.random.fold_in(key, 7001), shape, 1, d.max_seq_len + 1, dtype)
        return lengths.at[0].set(d.max_seq_len).at[1].set(1)

    def shuffled(key, shape, dtype):
        return jax.random.permutation(jax.random.fold_in(key, 7002), pool).astype(dtype).reshape(shape)

    return (
        normal("queries", (d.num_seqs, d.num_query_heads, d.head_dim), key=(42, 0)),
        normal("k_pages", page_shape, key=(42, 1), scale=0.02, ours=Draw()),
        normal("v_pages", page_shape, key=(42, 2), scale=0.02, ours=Draw()),
        Input("kv_lens", (d.num_seqs,), lambda s, t, _: jnp.full(s, d.max_seq_len, t), ragged, "int32"),
        Input("page_indices", (d.num_seqs, d.pages_per_seq), count_up, shuffled, "int32"),
        Input("cu_q_lens", (d.num_seqs + 1,), count_up, lambda key, s, t: count_up(s, t), "int32"),
    )


create_inputs = creator(inputs, CONFIG)


def reference(queries, k_pages, v_pages, kv_lens, page_indices, cu_q_lens):
    sequences, heads, dim = queries.shape
    kv_heads = k_pages.shape[2]
    q = queries[cu_q_lens[:-1]].reshape(sequences, kv_heads, heads // kv_heads, dim)
    k = k_pages[page_indices].reshape(sequences, -1, kv_heads, dim)
    v = v_pages[page_indices].reshape(sequences, -1, kv_heads, dim)
    scores = jnp.einsum("skgd,stkd->skgt", q, k) * dim**-0.5
    visible = jnp.arange(k.shape[1]) < kv_lens[:, None]
    scores = jnp.where(visible[:, None, None], scores, HIDDEN)
    return jnp.einsum("skgt,stkd->skgd", jax.nn.softmax(scores, axis=-1), v).reshape(queries.shape)


def flops(d):
    """Scores and weighted values of one query a head against full sequences."""
    return 4 * d.num_seqs * d.num_query_heads * d.max_seq_len * d.head_dim
