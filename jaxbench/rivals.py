"""jax's own Pallas TPU kernels with tuned blocks, on the production tasks that have one: what ours are held against.

Each is a function of the task's inputs that computes what its reference does, as an expert would call the kernel. The
blocks are those that the original benchmark's authors found best on a v6e. They are compiled and modelled, not judged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from jaxbench.calibration import flash_kernel, latent_attention, matmul_kernel
from jaxbench.production.p03_mla_attention import rotate

BLOCK_Q, BLOCK_K_MAJOR, BLOCK_K = 2048, 2048, 1024


def splash_attention(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    """4p: queries that carry the scale; key heads shared by groups of query heads through the kernel's MQA form."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernel
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    batch, heads, length, dim = query.shape
    kv_heads = key.shape[1]
    sizes = kernel.BlockSizes(block_q=min(BLOCK_Q, length), block_kv=min(BLOCK_K_MAJOR, length),
                              block_kv_compute=min(BLOCK_K, length))
    mask = masks.MultiHeadMask([masks.CausalMask((length, length))] * (heads // kv_heads))
    attend = kernel.make_splash_mqa(mask, block_sizes=sizes, head_shards=1, q_seq_shards=1)
    grouped = query.reshape(batch, kv_heads, heads // kv_heads, length, dim)
    return jax.vmap(jax.vmap(attend))(grouped, key, value).reshape(query.shape)


def grouped_attention(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    """2p: (batch, length, heads, dim), scaled here."""
    q, k, v = (a.swapaxes(1, 2) for a in (query, key, value))
    return splash_attention(q * query.shape[-1] ** -0.5, k, v).swapaxes(1, 2)


def paged_attention(queries: jax.Array, k_pages: jax.Array, v_pages: jax.Array, kv_lens: jax.Array,
                    page_indices: jax.Array, cu_q_lens: jax.Array) -> jax.Array:
    """6p: the kernel wants the heads first, so the pages are turned."""
    from jax.experimental.pallas.ops.tpu.paged_attention import paged_attention as attend

    turned = (p.transpose(2, 0, 1, 3) for p in (k_pages, v_pages))
    scaled = queries[cu_q_lens[:-1]] * queries.shape[-1] ** -0.5
    return attend(scaled, *turned, kv_lens, page_indices, pages_per_compute_block=min(128, page_indices.shape[1]))


def ragged_paged_attention(queries: jax.Array, kv_pages: jax.Array, kv_lens: jax.Array, page_indices: jax.Array,
                           cu_q_lens: jax.Array, num_seqs: jax.Array, **limits: Any) -> jax.Array:
    """7p."""
    from jax.experimental.pallas.ops.tpu.ragged_paged_attention.kernel import ragged_paged_attention as attend

    return attend(
        queries, kv_pages, kv_lens, page_indices, cu_q_lens, num_seqs, sm_scale=queries.shape[-1] ** -0.5,
        num_kv_pages_per_block=min(64, page_indices.shape[1]), num_queries_per_block=64, vmem_limit_bytes=100 << 20,
    )  # fmt: skip


def grouped_product(lhs: jax.Array, rhs: jax.Array, group_sizes: jax.Array) -> jax.Array:
    """11p."""
    from jax.experimental.pallas.ops.tpu.megablox.gmm import gmm

    return gmm(lhs, rhs, group_sizes, preferred_element_type=lhs.dtype, tiling=(256, 1024, 1024))


RIVALS: dict[str, tuple[str, Callable[..., jax.Array]]] = {
    "1p": ("flash_attention", flash_kernel),
    "2p": ("splash_attention", grouped_attention),
    "3p": ("flash_attention, padded heads", partial(latent_attention, True, turn=rotate)),
    "4p": ("splash_attention", splash_attention),
    "6p": ("paged_attention", paged_attention),
    "7p": ("ragged_paged_attention", ragged_paged_attention),
    "8p": ("matmul", matmul_kernel),
    "11p": ("megablox gmm", grouped_product),
}
