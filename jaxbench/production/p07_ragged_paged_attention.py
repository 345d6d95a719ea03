"""7p: one serving step, decoding and prefilling sequences together, against a paged key/value cache.

queries: (max_num_batched_tokens, num_q_heads, head_dim), the tokens of all sequences packed end to end; sequence s
owns rows cu_q_lens[s] to cu_q_lens[s + 1] - 1. kv_pages: (pages, page_size, 2 * num_kv_heads, head_dim) with keys at
even and values at odd places of the third axis. kv_lens, page_indices: per slot; num_seqs: (1,), active slots.
The queries are the last tokens of their context, which is kv_lens[s] long. Rows nobody owns are zero.

Scenario (static): the first decode_seqs slots bring at most one token each, the next prefill_seqs slots at most
max_q_len each; slots after those are empty. Published lengths are active_q_lens and active_kv_lens. Ours are drawn
anew: ragged prefills that need not fill the buffer, contexts from one key to the full length, shuffled pages.
"""

import jax
import jax.numpy as jnp
from jax import lax

from jaxbench.idioms import wide
from jaxbench.spec import Input, creator, normal, published_key

ID = "7p_Ragged_Paged_Attention"
SOURCE_MODEL = "Llama-3.1-70B (serving step with prefill and decode)"
CONFIG = {
    "max_num_batched_tokens": 4096, "max_num_seqs": 64, "num_q_heads": 64, "num_kv_heads": 8, "head_dim": 128,
    "page_size": 16, "pages_per_seq": 256, "decode_seqs": 48, "prefill_seqs": 8, "max_q_len": 512,
    "active_q_lens": (1,) * 48 + (512,) * 7 + (464,),
    "active_kv_lens": (
        *(257 + (i * 73 % 240) * 16 for i in range(48)), 1023, 1535, 2047, 2559, 3071, 3583, 4095, 4095,
    ),
}  # fmt: skip
SMOKE = {
    "max_num_batched_tokens": 256, "max_num_seqs": 8, "num_q_heads": 8, "num_kv_heads": 2, "pages_per_seq": 16,
    "decode_seqs": 2, "prefill_seqs": 2, "max_q_len": 128,
    "active_q_lens": (1, 1, 128, 126), "active_kv_lens": (17, 225, 191, 255),
}  # fmt: skip


def _case(tokens, q_heads, pages_per_seq, slots=64):
    """All 56 slots active, each prefill as long as fits. The reference is told how many slots decode and prefill."""
    prefill = (tokens - CONFIG["decode_seqs"]) // CONFIG["prefill_seqs"]
    return {
        "max_num_batched_tokens": tokens, "max_num_seqs": slots, "num_q_heads": q_heads, "num_kv_heads": 2,
        "pages_per_seq": pages_per_seq, "active_q_lens": (1,) * 48 + (prefill,) * 8,
        "active_kv_lens": tuple(pages_per_seq * CONFIG["page_size"] - i for i in range(56)),
    }  # fmt: skip


CASES = {
    "small": _case(128, 4, 7), "medium": _case(256, 8, 8), "wide": _case(512, 2, 9), "ragged": _case(187, 6, 5, 57),
}  # fmt: skip


def drawn_lengths(d, key):
    """(query lengths, context lengths) of all slots, and the number of active ones, from one key."""
    which, prefill, context = jax.random.split(jax.random.fold_in(key, 7001), 3)
    active = d.decode_seqs + d.prefill_seqs - jax.random.randint(which, (), 0, 2)
    longest = min(d.max_q_len, (d.max_num_batched_tokens - d.decode_seqs) // d.prefill_seqs)
    slots = jnp.arange(d.max_num_seqs)
    q_lens = jnp.where(slots < d.decode_seqs, 1, jax.random.randint(prefill, (d.max_num_seqs,), 1, longest + 1)) * (
        slots < active
    )
    full = d.pages_per_seq * d.page_size
    kv_lens = jax.random.randint(context, (d.max_num_seqs,), q_lens, full + 1).at[0].set(1).at[1].set(full)
    return q_lens, kv_lens * (slots < active), active


def inputs(d):
    pool, slots = d.max_num_seqs * d.pages_per_seq, d.max_num_seqs

    def fitted(values):
        return jnp.array(values + (0,) * (slots - len(values)), jnp.int32)

    def offsets(q_lens):
        return jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(q_lens, dtype=jnp.int32)])

    def shuffled(key):
        pages = jax.random.permutation(key, pool, independent=True)
        return pages.astype(jnp.int32).reshape(slots, d.pages_per_seq)

    def integers(name, shape, published, ours):
        return Input(name, shape, lambda *_: published(), lambda key, *_: ours(key), "int32")

    return (
        normal("queries", (d.max_num_batched_tokens, d.num_q_heads, d.head_dim), key=(42, 0)),
        normal("kv_pages", (pool, d.page_size, 2 * d.num_kv_heads, d.head_dim), key=(42, 1)),
        integers("kv_lens", (slots,), lambda: fitted(d.active_kv_lens), lambda key: drawn_lengths(d, key)[1]),
        integers(
            "page_indices",
            (slots, d.pages_per_seq),
            lambda: shuffled(published_key(42, 2)),
            lambda key: shuffled(jax.random.fold_in(key, 7002)),
        ),
        integers(
            "cu_q_lens",
            (slots + 1,),
            lambda: offsets(fitted(d.active_q_lens)),
            lambda key: offsets(drawn_lengths(d, key)[0]),
        ),
        integers(
            "num_seqs",
            (1,),
            lambda: jnp.array([len(d.active_q_lens)], jnp.int32),
            lambda key: drawn_lengths(d, key)[2].reshape(1),
        ),
    )


create_inputs = creator(inputs, CONFIG)


def reference(queries, kv_pages, kv_lens, page_indices, cu_q_lens, num_seqs, *, decode_seqs, prefill_seqs, max_q_len):
    _, heads, dim = queries.shape
    kv_heads = kv_pages.shape[2] // 2
    q_lens = jnp.where(jnp.arange(kv_lens.shape[0]) < num_seqs[0], cu_q_lens[1:] - cu_q_lens[:-1], 0)
    room = ((0, max_q_len), (0, 0), (0, 0))  # so that a full-width slice at the last token stays inside
    queries = jnp.pad(queries, room)

    def sequence(out, s, width):
        """Writes the rows of sequence ``s``, which has at most ``width`` of them."""
        start, rows = cu_q_lens[s], jnp.arange(width)
        q = lax.dynamic_slice_in_dim(queries, start, width).reshape(width, kv_heads, -1, dim)
        kv = kv_pages[page_indices[s]].reshape(-1, 2 * kv_heads, dim)
        k, v = kv[:, 0::2], kv[:, 1::2]
        scores = jnp.einsum("qkgd,tkd->kgqt", q, k, preferred_element_type=wide(q).dtype) * dim**-0.5
        visible = jnp.arange(k.shape[0]) <= (kv_lens[s] - q_lens[s] + rows)[:, None]
        scores = jnp.where(visible, scores, -0.7 * float(jnp.finfo(jnp.float32).max))
        mixed = jnp.einsum("kgqt,tkd->qkgd", jax.nn.softmax(scores, axis=-1).astype(v.dtype), v)
        mine = (rows < q_lens[s])[:, None, None]
        kept = jnp.where(mine, mixed.reshape(width, heads, dim), lax.dynamic_slice_in_dim(out, start, width))
        return lax.dynamic_update_slice_in_dim(out, kept, start, 0), None

    out = jnp.zeros_like(queries)
    out, _ = lax.scan(lambda o, s: sequence(o, s, 1), out, jnp.arange(decode_seqs))
    prefills = jnp.arange(decode_seqs, decode_seqs + prefill_seqs)
    out, _ = lax.scan(lambda o, s: sequence(o, s, max_q_len), out, prefills)
    return out[:-max_q_len]


def flops(d):
    """Scores and weighted values over the visible pairs of the published scenario: query r of a sequence sees
    kv_len - q_len + r + 1 keys."""
    lengths = zip(d.active_q_lens, d.active_kv_lens, strict=True)
    pairs = sum(q * (kv - q) + q * (q + 1) // 2 for q, kv in lengths)
    return 4 * d.num_q_heads * d.head_dim * pairs


def input_bytes(d, sizes):
    """Only the pages that hold keys of the published scenario are needed."""
    pages = sum(-(-kv // d.page_size) for kv in d.active_kv_lens)
    return sum(sizes.values()) - sizes["kv_pages"] + sizes["kv_pages"] * pages // (d.max_num_seqs * d.pages_per_seq)
