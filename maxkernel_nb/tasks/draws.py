"""From values a person has to a ``Draw``: how to make more values like them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from maxkernel_nb.task import Draw

SAMPLE = 1 << 16  # elements looked at, per argument
_MASKED = 1e9  # a float beyond this is a mask ("minus infinity"), not data
_REPEATS = 4.0  # expected among numbers drawn apart: none at all is then no accident
_SPREAD = 0.1  # constants are drawn with this relative spread: a kernel that drops an all-zero bias must not pass


def sample_of(array: Any) -> np.ndarray[Any, Any]:
    """At most about ``SAMPLE`` elements, evenly strided over every axis; the array itself is never copied whole."""
    stride = max(1, math.ceil((math.prod(array.shape) / SAMPLE) ** (1 / max(1, array.ndim))))
    if stride > 1:
        array = array[tuple(slice(None, None, min(stride, n)) for n in array.shape)]
    return np.asarray(array).reshape(-1)[: 2 * SAMPLE]


def draw_like(samples: Sequence[np.ndarray[Any, Any]], dtype: str, bounds: tuple[int, int] | None = None) -> Draw:
    """A draw with the mean and spread (floats), range (integers) or share of True (booleans) of ``samples``.

    ``bounds`` are an integer argument's exact least and greatest value, where they are known.
    """
    values = np.concatenate([np.asarray(s).reshape(-1) for s in samples])
    if dtype == "bool":
        share = float(np.mean(values)) if values.size else 0.5
        return Draw(kind="bernoulli", mean=_tidy(share), std=_tidy(math.sqrt(share * (1 - share))))
    if "int" in dtype:
        low, high = bounds or (int(values.min()), int(values.max()))
        return Draw(kind="integers", low=low, high=high + 1)
    values = values.astype(np.float64)
    values = values[np.abs(values) < _MASKED]  # drops NaN and infinities too
    if not values.size:
        return Draw()
    mean, std = float(values.mean()), float(values.std())
    if std <= 1e-6 * max(abs(mean), 1e-30):
        std = _SPREAD * (abs(mean) or 1.0)
    return Draw(mean=_tidy(mean), std=_tidy(std))


def snap_to_dimension(draw: Draw, dimensions: Sequence[int]) -> Draw:
    """Integers that end just below a dimension are indices into it: the draw covers all of it."""
    if draw.kind != "integers" or draw.low < 0:
        return draw
    near = [d for d in dimensions if draw.high <= d <= draw.high + max(1, d // 50)]
    if not near:
        return draw
    low = 0 if draw.low <= min(near) // 50 else draw.low
    return draw.model_copy(update={"low": low, "high": min(near)})


def fitted_draw(samples: Sequence[np.ndarray[Any, Any]], draw: Draw) -> Draw:
    """``draw``, or how to draw integers that fit together as they do in every one of ``samples``.

    A partition is only a guess until ``settled`` has seen the dimensions of the other arguments.
    """
    found = [_fitted_draw(np.asarray(s), draw) for s in samples] or [draw]
    kinds = {f.kind for f in found}
    if len(kinds) != 1 or (found[0].kind == "partition" and len({f.high for f in found}) > 1):
        return draw
    return found[0].model_copy(update={"low": min(f.low for f in found), "high": max(f.high for f in found)})


def _fitted_draw(values: np.ndarray[Any, Any], draw: Draw) -> Draw:
    if _is_page_table(values, draw):
        return Draw(kind="pages", low=draw.low, high=draw.high)
    if values.ndim != 1 or values.size < 3 or values.dtype.kind not in "iu" or values.size > SAMPLE:
        return draw
    wide = values.astype(np.int64)
    if np.array_equal(np.sort(wide), np.arange(wide.size)):
        return Draw(kind="permutation", low=0, high=wide.size)
    if is_structured(wide):
        return Draw(kind="sorted", low=int(wide[0]), high=int(wide[-1]) + 1)
    if wide.min() >= 0 and wide.sum() > wide.max():
        return Draw(kind="partition", low=draw.low, mean=draw.high, high=int(wide.sum()))
    return draw


def _is_page_table(values: np.ndarray[Any, Any], draw: Draw) -> bool:
    """Rows of indices, none of which comes twice, where chance would have repeated several."""
    if values.ndim < 2 or values.dtype.kind not in "iu" or values.size > SAMPLE or draw.low < 0:
        return False
    expected = values.size * (values.size - 1) / 2 / max(1, draw.high - draw.low)  # pairs, were they drawn apart
    return expected > _REPEATS and np.unique(values).size == values.size


def settled(draw: Draw, dimensions: Sequence[int]) -> Draw:
    """A guessed partition stays one when its sum is a dimension: group sizes add up to the rows they divide."""
    if draw.kind == "pages":
        snapped = snap_to_dimension(Draw(kind="integers", low=draw.low, high=draw.high), dimensions)
        return snapped.model_copy(update={"kind": "pages"})
    if draw.kind != "partition":
        return snap_to_dimension(draw, dimensions)
    if draw.high in dimensions:
        return Draw(kind="partition", high=draw.high)
    return snap_to_dimension(Draw(kind="integers", low=draw.low, high=int(draw.mean)), dimensions)


def fitted(draw: Draw, size: tuple[int, ...], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Values of the kinds whose elements fit together, each row (last axis) by itself."""
    if draw.kind == "permutation":
        return rng.permuted(np.broadcast_to(np.arange(size[-1]), size), axis=-1)
    if draw.kind == "pages":
        return _pages(draw, size, rng)
    if draw.kind == "sorted":
        values = np.sort(rng.integers(draw.low, max(draw.high, draw.low + 1), size), axis=-1)
        values[..., 0], values[..., -1] = draw.low, max(draw.high - 1, draw.low)
        return values
    cuts = np.sort(rng.integers(0, draw.high + 1, (*size[:-1], size[-1] - 1)), axis=-1)
    ends = np.zeros((*size[:-1], 1), np.int64)
    return np.diff(np.concatenate([ends, cuts, ends + draw.high], axis=-1), axis=-1)


def _pages(draw: Draw, size: tuple[int, ...], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    count, pool = math.prod(size), np.arange(draw.low, max(draw.high, draw.low + 1))
    if count <= pool.size:
        return rng.permutation(pool)[:count].reshape(size)
    rows = [np.resize(rng.permutation(pool), size[-1]) for _ in range(count // size[-1])]
    return np.stack(rows).reshape(size)


def is_structured(samples: np.ndarray[Any, Any]) -> bool:
    """True for a sorted integer vector (offsets, segment ids): uniform draws do not keep that."""
    return samples.size > 2 and bool(np.all(np.diff(samples.astype(np.int64)) >= 0)) and samples[0] != samples[-1]


def _tidy(value: float) -> float:
    """Three significant digits: the same inputs on another machine must give the same task."""
    return float(f"{value:.3g}")
