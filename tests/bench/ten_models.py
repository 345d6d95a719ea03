"""Ten computations of published models, written from their formulas in plain JAX, with shapes for the timing case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def capped_window_attention(q, k, v):
    """Gemma-2's local layers: grouped heads, causal, a window of 1024, scores capped at 50."""
    groups = q.shape[1] // k.shape[1]
    k, v = jnp.repeat(k, groups, axis=1), jnp.repeat(v, groups, axis=1)
    s = jnp.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
    s = 50.0 * jnp.tanh(s / 50.0)
    row, col = jnp.arange(s.shape[-2])[:, None], jnp.arange(s.shape[-1])
    s = jnp.where((col <= row) & (row - col < 1024), s, -1e30)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(s, axis=-1), v)


def query_key_norm_attention(q, k, v, g, h):
    """Queries and keys RMS-normalised per head before causal attention (Qwen 3, OLMo 2)."""
    def norm(x, scale):
        return x * lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 1e-6) * scale

    s = jnp.einsum("bhqd,bhkd->bhqk", norm(q, g), norm(k, h)) * q.shape[-1] ** -0.5
    s = jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool)), s, -1e30)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(s, axis=-1), v)


def geglu_residual(x, gate, up, down):
    """Gemma's MLP with its residual."""
    return x + (jax.nn.gelu(x @ gate) * (x @ up)) @ down


def grouped_experts(x, router, gate, up, down):
    """DeepSeek-V2's routing: the best 2 of 4 groups by their best expert, then the best 2 experts of those."""
    scores = jax.nn.softmax((x @ router).astype(jnp.float32), axis=-1)
    groups = scores.reshape(x.shape[0], 4, -1)
    _, kept = lax.top_k(groups.max(axis=-1), 2)
    open_groups = jax.nn.one_hot(kept, 4).sum(axis=1)
    allowed = jnp.where(open_groups[:, :, None] > 0, groups, 0.0).reshape(scores.shape)
    best, chosen = lax.top_k(allowed, 2)
    weights = jnp.einsum("tke,tk->te", jax.nn.one_hot(chosen, scores.shape[-1]), best)
    hidden = jax.nn.silu(jnp.einsum("td,edm->tem", x, gate)) * jnp.einsum("td,edm->tem", x, up)
    return jnp.einsum("te,ted->td", weights, jnp.einsum("tem,emd->ted", hidden, down))


def gated_rms_norm(x, z, g):
    """Mamba-2's norm after its gate."""
    y = x * jax.nn.silu(z)
    return y * lax.rsqrt(jnp.mean(jnp.square(y), axis=-1, keepdims=True) + 1e-5) * g


def smoothed_cross_entropy(x, w, labels):
    """Label smoothing of 0.1 and PaLM's z-loss."""
    z = (x @ w).astype(jnp.float32)
    lse = jax.nn.logsumexp(z, axis=-1)
    wanted = jax.nn.one_hot(labels, w.shape[-1]) * 0.9 + 0.1 / w.shape[-1]
    return jnp.mean(-jnp.sum(wanted * (z - lse[:, None]), axis=-1) + 1e-4 * jnp.square(lse))


def rotary_attention(q, k, v, cos, sin):
    """Llama's rotation of halves, then causal attention."""
    def turned(x):
        half = x.shape[-1] // 2
        other = jnp.concatenate([-x[..., half:], x[..., :half]], axis=-1)
        return x * cos + other * sin

    s = jnp.einsum("bhqd,bhkd->bhqk", turned(q), turned(k)) * q.shape[-1] ** -0.5
    s = jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool)), s, -1e30)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(s, axis=-1), v)


def depthwise_conv_silu(x, w, b):
    """Mamba's causal depthwise convolution of width 4."""
    padded = jnp.pad(x, ((0, 0), (3, 0), (0, 0)))
    taps = [padded[:, i : i + x.shape[1]] * w[i] for i in range(4)]
    return jax.nn.silu(taps[0] + taps[1] + taps[2] + taps[3] + b)


def linear_attention(q, k, v):
    """Causal linear attention with the elu feature map, by its quadratic form."""
    q, k = jax.nn.elu(q) + 1.0, jax.nn.elu(k) + 1.0
    s = jnp.einsum("bhid,bhjd->bhij", q, k)
    s = jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool)), s, 0.0)
    return jnp.einsum("bhij,bhjd->bhid", s, v) / jnp.sum(s, axis=-1, keepdims=True)


def lora_product(x, w, a, b):
    """A frozen weight and its low-rank update."""
    return x @ w + 2.0 * ((x @ a) @ b)


FUNCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "capped_window_attention": (
        capped_window_attention, "q: bf16[1,8,4096,128], k: bf16[1,4,4096,128], v: bf16[1,4,4096,128]"),
    "query_key_norm_attention": (
        query_key_norm_attention,
        "q: bf16[1,8,2048,128], k: bf16[1,8,2048,128], v: bf16[1,8,2048,128], g: bf16[128], h: bf16[128]"),
    "geglu_residual": (
        geglu_residual, "x: bf16[4096,1024], gate: bf16[1024,4096], up: bf16[1024,4096], down: bf16[4096,1024]"),
    "grouped_experts": (
        grouped_experts,
        "x: bf16[4096,1024], router: bf16[1024,16], gate: bf16[16,1024,1024], up: bf16[16,1024,1024], "
        "down: bf16[16,1024,1024]"),
    "gated_rms_norm": (gated_rms_norm, "x: bf16[8192,4096], z: bf16[8192,4096], g: bf16[4096]"),
    "smoothed_cross_entropy": (
        smoothed_cross_entropy, "x: bf16[4096,1024], w: bf16[1024,32000], labels: int32[4096]"),
    "rotary_attention": (
        rotary_attention,
        "q: bf16[1,8,2048,128], k: bf16[1,8,2048,128], v: bf16[1,8,2048,128], cos: bf16[2048,128], "
        "sin: bf16[2048,128]"),
    "depthwise_conv_silu": (depthwise_conv_silu, "x: bf16[4,4096,2048], w: bf16[4,2048], b: bf16[2048]"),
    "linear_attention": (
        linear_attention, "q: bf16[1,8,4096,128], k: bf16[1,8,4096,128], v: bf16[1,8,4096,128]"),
    "lora_product": (lora_product, "x: bf16[4096,4096], w: bf16[4096,4096], a: bf16[4096,16], b: bf16[16,4096]"),
}
