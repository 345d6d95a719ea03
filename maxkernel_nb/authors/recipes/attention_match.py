"""What the attention recogniser finds, and how arrays lie: layouts as index maps that can be tested."""

from __future__ import annotations

from typing import Literal

import numpy as np

from maxkernel_nb.authors.recipes.base import Match
from maxkernel_nb.authors.recipes.expressions import Expression
from maxkernel_nb.values import Value

Layout = Literal["bhsd", "bshd", "bsm", "hsd", "shd", "sd"]
LAYOUTS: dict[int, tuple[Layout, ...]] = {4: ("bhsd", "bshd"), 3: ("hsd", "shd", "bsm"), 2: ("sd",)}


class Sizes(Value):
    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    v_dim: int


class AttentionMatch(Match):
    """``softmax(score(q @ k.T)) @ v`` per head, keys and values shared by groups of heads.

    ``score`` is the expression from the raw product ``acc`` to what the softmax sees; its leaves' kinds are the roles
    of the parameter's axes, a string over ``b h q k 1``. ``causal``: keys after the query are masked, counted from the
    ``start`` or from the ``end`` of the keys, or only for equal lengths (``square``). ``window``: at most that many
    keys back. ``grouping``: which key head a query head reads (``block``: h // group, ``tile``: h % kv_heads).
    """

    q: int
    k: int
    v: int
    layouts: tuple[Layout, Layout, Layout, Layout]  # q, k, v, out
    sizes: Sizes
    dtypes: tuple[str, ...]
    out_dtype: str
    weights_dtype: str = "bfloat16"  # of the probabilities, as the second product takes them
    score: Expression
    causal: Literal["", "square", "start", "end"] = ""
    window: int | None = None
    nan_rows: bool = False  # a positional mask writes -inf: a query without keys gives NaN, as in the reference
    mask_fill: float | None = None  # what the reference writes where a positional mask is off, if that must be kept
    grouping: Literal["block", "tile"] = "block"
    precision: str = ""


def layout_sizes(layout: Layout, shape: tuple[int, ...], dim: int) -> tuple[int, int, int] | None:
    """(batch, heads, length) of an array whose vectors have ``dim`` elements; None if the layout cannot be."""
    if layout == "bsm":
        return (shape[0], shape[2] // dim, shape[1]) if shape[2] % dim == 0 else None
    if shape[-1] != dim:
        return None
    sizes = dict(zip(layout, shape, strict=True))
    return sizes.get("b", 1), sizes.get("h", 1), sizes["s"]


def layout_index(layout: Layout, at: dict[str, np.ndarray], dim: int) -> tuple[np.ndarray, ...]:
    """Where logical points (b, h, s, d) lie in an array of that layout."""
    if layout == "bsm":
        return at["b"], at["s"], at["h"] * dim + at["d"]
    return tuple(at[axis] for axis in layout)


def to_canonical(layout: Layout, name: str, heads: str) -> str:
    """Source text that brings an array to [batch, heads, length, dim]."""
    return {
        "bhsd": name,
        "bshd": f"{name}.swapaxes(1, 2)",
        "bsm": f"{name}.reshape(*{name}.shape[:2], {heads}, -1).swapaxes(1, 2)",
        "hsd": f"{name}[None]",
        "shd": f"{name}.swapaxes(0, 1)[None]",
        "sd": f"{name}[None, None]",
    }[layout]


def from_canonical(layout: Layout, name: str) -> str:
    """Source text that brings [batch, heads, length, dim] back to a layout."""
    return {
        "bhsd": name,
        "bshd": f"{name}.swapaxes(1, 2)",
        "bsm": f"{name}.swapaxes(1, 2).reshape(batch, q_len, -1)",
        "hsd": f"{name}[0]",
        "shd": f"{name}[0].swapaxes(0, 1)",
        "sd": f"{name}[0, 0]",
    }[layout]
