"""Programs for ``python -m maxkernel_nb.tpu.calibrate``: the references at full size, and jax's own TPU kernels.

``1p`` to ``50k`` are the references. ``1p:opt`` and ``8p:opt`` are kernels of ``jax.experimental.pallas.ops.tpu`` with
the block sizes that the published times were taken with. ``3p:then`` and ``3p:opt:then`` turn interleaved columns
(2 m with 2 m + 1), as 3p did when it was measured; the second runs its attention in jax's flash kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxbench.idioms import causal_attention
from jaxbench.registry import task, tasks

Program = tuple[Callable[..., Any], tuple[jax.ShapeDtypeStruct, ...]]
KERNELS = ("1p:opt", "8p:opt", "3p:then", "3p:opt:then")
FLASH = {"block_q": 2048, "block_k_major": 2048, "block_k": 1024, "block_b": 1}
PADDED = 256  # 3p's kernel works on heads this wide


def names() -> tuple[str, ...]:
    """All programs, the references first."""
    return (*(t.number for t in tasks()), *KERNELS)


def program(name: str) -> Program:
    """(function, argument specs) of a program by its name."""
    number, _, variant = name.partition(":")
    bench = task(number)
    made: dict[str, Callable[..., Any]] = {
        "8p:opt": matmul_kernel, "1p:opt": flash_kernel, "3p:then": partial(latent_attention, False),
        "3p:opt:then": partial(latent_attention, True),
    }  # fmt: skip
    return (made[name] if variant else bench.function("full")), bench.abstract_inputs("full")


def matmul_kernel(a: jax.Array, b: jax.Array) -> jax.Array:
    from jax.experimental.pallas.ops.tpu.matmul import matmul

    return matmul(a, b, block_shape=(1024, 2048), block_k=1024)


def flash_kernel(q: jax.Array, k: jax.Array, v: jax.Array, scale: float | None = None) -> jax.Array:
    from jax.experimental.pallas.ops.tpu import flash_attention as flash

    sizes = flash.BlockSizes(**FLASH)
    return flash.flash_attention(q, k, v, causal=True, sm_scale=scale or q.shape[-1] ** -0.5, block_sizes=sizes)


def latent_attention(
    kernel: bool, x: jax.Array, *weights: jax.Array, turn: Callable[..., jax.Array] | None = None, **sizes: Any
) -> jax.Array:
    """3p with the rotary embedding it had (or ``turn``), its attention in XLA or in jax's flash kernel on padded heads.

    ``sizes`` are the reference's, of the full task.
    """
    turn = turn or _turn
    q_down, q_up, kv_down, k_up, v_up, o_proj = weights
    d, (batch, length, _) = task("3p").full, x.shape

    def heads(flat: jax.Array, width: int) -> jax.Array:
        return flat.reshape(batch, length, d.num_heads, width).swapaxes(1, 2)

    nope, rope = d.qk_nope_head_dim, d.qk_rope_head_dim
    q = heads((x @ q_down) @ q_up, nope + rope)
    compressed = x @ kv_down
    latent, shared = compressed[..., : d.kv_lora_rank], compressed[:, None, :, d.kv_lora_rank :]
    turned = jnp.broadcast_to(turn(shared, d.rope_theta), (batch, d.num_heads, length, rope))
    k = jnp.concatenate([heads(latent @ k_up, nope), turned], axis=-1)
    q = jnp.concatenate([q[..., :nope], turn(q[..., nope:], d.rope_theta)], axis=-1)
    v, scale = heads(latent @ v_up, d.v_head_dim), q.shape[-1] ** -0.5
    if kernel:
        mixed = flash_kernel(*(_widened(a) for a in (q, k, v)), scale=scale)[..., : d.v_head_dim]
    else:
        mixed = causal_attention(q, k, v, scale=scale)
    return mixed.swapaxes(1, 2).reshape(batch, length, -1) @ o_proj


def _turn(x: jax.Array, theta: float) -> jax.Array:
    half = x.shape[-1] // 2
    speed = theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle = jnp.arange(x.shape[-2], dtype=jnp.float32)[:, None] * speed
    cos, sin = jnp.cos(angle).astype(x.dtype), jnp.sin(angle).astype(x.dtype)
    even, odd = x[..., ::2], x[..., 1::2]
    return jnp.stack([even * cos - odd * sin, odd * cos + even * sin], axis=-1).reshape(x.shape)


def _widened(x: jax.Array) -> jax.Array:
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, PADDED - x.shape[-1])])


__all__ = ["names", "program"]
