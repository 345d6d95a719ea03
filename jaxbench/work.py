"""Formulas for the work a task needs. Only contractions are counted: two operations for each multiply-add.

Elementwise work is left out: it is a few operations a value against hundreds or thousands for the contraction
(12p, which has no contraction, says what it counts instead).
"""

from __future__ import annotations

import math


def matmul(rows: int, inner: int, columns: int) -> int:
    """(rows, inner) @ (inner, columns): one multiply-add for each of rows * inner * columns."""
    return 2 * rows * inner * columns


def convolution(images: int, in_channels: int, out_channels: int, window: int, out_space: tuple[int, ...]) -> int:
    """Each output value sums in_channels * window products; ``window`` is the number of taps."""
    return 2 * images * out_channels * math.prod(out_space) * in_channels * window


def causal_pairs(length: int) -> int:
    """Query/key pairs with key <= query: 1 + 2 + ... + length."""
    return length * (length + 1) // 2


def causal_attention(batch: int, heads: int, length: int, key_dim: int, value_dim: int | None = None) -> int:
    """Scores and weighted values over the visible pairs only: one multiply-add for each dim and pair, twice."""
    pairs = batch * heads * causal_pairs(length)
    return 2 * pairs * (key_dim + (key_dim if value_dim is None else value_dim))
