"""3p: multi-head latent attention, prefill form with explicit keys and values.

x: (batch, seq_len, emb_dim). Queries come through a rank q_lora_rank bottleneck, keys and values through a latent of
width kv_lora_rank. Each head's query and key join a content part (qk_nope_head_dim) and a rotary part
(qk_rope_head_dim); the rotary key is shared by all heads. The result has x's shape.
"""

import jax.numpy as jnp

from jaxbench import work
from jaxbench.idioms import causal_attention, wide
from jaxbench.spec import creator, normal, weight

ID = "3p_MLA_Attention"
SOURCE_MODEL = "DeepSeek-V3-671B"
CONFIG = {
    "batch": 4, "seq_len": 2048, "emb_dim": 7168, "num_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "rope_theta": 10000,
}  # fmt: skip
SMOKE = {"batch": 1, "seq_len": 256, "emb_dim": 256, "num_heads": 2, "q_lora_rank": 128, "kv_lora_rank": 128}
# The reference is told the number of heads and the latent's width, so they stay as they are.
CASES = {
    "small": {"batch": 1, "seq_len": 32, "emb_dim": 128, "q_lora_rank": 128},
    "medium": {"batch": 2, "seq_len": 16, "emb_dim": 256, "q_lora_rank": 128},
    "wide": {"batch": 1, "seq_len": 64, "emb_dim": 128, "q_lora_rank": 64},
    "ragged": {"batch": 1, "seq_len": 27, "emb_dim": 128, "q_lora_rank": 100},
}


def inputs(d):
    query_width = d.num_heads * (d.qk_nope_head_dim + d.qk_rope_head_dim)
    content_width, value_width = d.num_heads * d.qk_nope_head_dim, d.num_heads * d.v_head_dim
    e, q, kv = d.emb_dim, d.q_lora_rank, d.kv_lora_rank
    return (
        normal("x", (d.batch, d.seq_len, e), key=(42, 0)),
        weight("q_down", (e, q), e, key=(42, 1)),
        weight("q_up", (q, query_width), q, key=(42, 2)),
        weight("kv_down", (e, kv + d.qk_rope_head_dim), e, key=(42, 3)),
        weight("k_up", (kv, content_width), kv, key=(42, 4)),
        weight("v_up", (kv, value_width), kv, key=(42, 5)),
        weight("o_proj", (value_width, e), value_width, key=(42, 6)),
    )


create_inputs = creator(inputs, CONFIG)


def rotate(x, theta):
    """Rotary embedding of (..., position, width), half-split: column m turns with column m + width / 2."""
    half = x.shape[-1] // 2
    angle_type = wide(x).dtype
    speed = theta ** (-jnp.arange(half, dtype=angle_type) / half)
    angle = jnp.arange(x.shape[-2], dtype=angle_type)[:, None] * speed
    cos, sin = jnp.cos(angle).astype(x.dtype), jnp.sin(angle).astype(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def reference(
    x, q_down, q_up, kv_down, k_up, v_up, o_proj,
    *, num_heads, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim, rope_theta,
):  # fmt: skip
    batch, length, _ = x.shape

    def heads(flat, width):
        return flat.reshape(batch, length, num_heads, width).swapaxes(1, 2)

    q = heads((x @ q_down) @ q_up, qk_nope_head_dim + qk_rope_head_dim)
    compressed = x @ kv_down
    latent, shared_key = compressed[..., :kv_lora_rank], compressed[:, None, :, kv_lora_rank:]
    turned_key = jnp.broadcast_to(rotate(shared_key, rope_theta), (batch, num_heads, length, qk_rope_head_dim))
    k = jnp.concatenate([heads(latent @ k_up, qk_nope_head_dim), turned_key], axis=-1)
    turned_query = rotate(q[..., qk_nope_head_dim:], rope_theta)
    q = jnp.concatenate([q[..., :qk_nope_head_dim], turned_query], axis=-1)
    mixed = causal_attention(q, k, heads(latent @ v_up, v_head_dim), scale=q.shape[-1] ** -0.5)
    return mixed.swapaxes(1, 2).reshape(batch, length, -1) @ o_proj


def flops(d):
    """Six projections of every token, then causal attention with keys of 192 and values of 128 columns."""
    tokens, key_dim = d.batch * d.seq_len, d.qk_nope_head_dim + d.qk_rope_head_dim
    projections = (
        (d.emb_dim, d.q_lora_rank),
        (d.q_lora_rank, d.num_heads * key_dim),
        (d.emb_dim, d.kv_lora_rank + d.qk_rope_head_dim),
        (d.kv_lora_rank, d.num_heads * d.qk_nope_head_dim),
        (d.kv_lora_rank, d.num_heads * d.v_head_dim),
        (d.num_heads * d.v_head_dim, d.emb_dim),
    )
    attention = work.causal_attention(d.batch, d.num_heads, d.seq_len, key_dim, d.v_head_dim)
    return sum(work.matmul(tokens, inner, columns) for inner, columns in projections) + attention
