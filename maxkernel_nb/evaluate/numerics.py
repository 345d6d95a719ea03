"""The comparison every correctness verdict rests on: host, numpy, float64.

For each output leaf: structure, then non-finite values by position, then the error against the oracle. The budget of
an element is ``max(factor * the reference's own error near it, floor of the output dtype)``. "Near it" is the largest
own error in the same row (last axis; shorter rows are taken together until they make 64 elements): a single element of
a rounding error is noise, and an honest kernel that adds in another order has another noise of the same size. Where
the row shares one rounded number (the mean or spread of a norm, a maximum), its whole error is one draw of noise and
may be small by luck: it counts as at least the median row's, each in proportion to its row's root mean square. The
same rule is applied to the root mean square over the leaf, where noise averages out and a small systematic error does
not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxkernel_nb.evaluate.wire import dtype_named
from maxkernel_nb.task import Tolerance

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]  # candidate, reference in its own dtypes, oracle
ROW = 64  # fewer elements than this do not show how large a rounding error can be
# Floors in units of the output dtype's spacing: two roundings for 8- and 16-bit outputs. A float32 result also carries
# the error of its sums: adding 512 products one by one was 12 units off where a blocked product was 1 off (numpy).
FLOOR_UNITS = {1: 1.0, 2: 1.0, 4: 32.0, 8: 32.0}
CONTESTED = "contested"
CONTESTED_LIMIT = 0.5  # share of elements where the reference itself overflows, above which nothing can be said


@dataclass(frozen=True)
class Comparison:
    """``ratio``: worst error over its budget (pass: <= 1). ``kind`` is empty when it passed."""

    kind: str
    sentence: str
    ratio: float
    norm_ratio: float
    max_abs_error: float
    leaf: int = 0
    index: tuple[int, ...] = ()
    got: float = math.nan
    expected: float = math.nan

    @property
    def passed(self) -> bool:
        return not self.kind


def compare(
    candidate: Sequence[np.ndarray], own: Sequence[np.ndarray], oracle: Sequence[np.ndarray], tolerance: Tolerance
) -> Comparison:
    """The first leaf that fails, else one where nothing can be said (``contested``: the reference is not finite in its
    own dtype), else the leaf with the largest ratio. ``own`` has the reference's output dtypes.
    """
    if len(candidate) != len(own):
        return _failed("structure", f"It returns {len(candidate)} arrays where the reference returns {len(own)}.")
    results = [_leaf(i, *leaf, tolerance) for i, leaf in enumerate(zip(candidate, own, oracle, strict=True))]
    return _worst(results) if results else Comparison("", "There is no output.", 0.0, 0.0, 0.0)


def _worst(results: Sequence[Comparison]) -> Comparison:
    failed = (r for r in results if r.kind not in ("", CONTESTED))
    contested = (r for r in results if r.kind == CONTESTED)
    return next(failed, None) or next(contested, None) or max(results, key=lambda r: r.ratio)


def _leaf(number: int, got: np.ndarray, own: np.ndarray, oracle: np.ndarray, tolerance: Tolerance) -> Comparison:
    name = f"Output {number}"
    if got.shape != own.shape or got.dtype != own.dtype:
        told = f"{got.dtype.name}{list(got.shape)} where the reference gives {own.dtype.name}{list(own.shape)}"
        return _failed("structure", f"{name} is {told}.", number)
    if got.size == 0:
        return Comparison("", f"{name} is empty.", 0.0, 0.0, 0.0, number)
    if got.dtype.kind == "c":
        parts = [(np.real(a), np.imag(a)) for a in (got, own, oracle)]
        both = [_values(number, (a, b, c), _spacing(own.dtype), tolerance) for a, b, c in zip(*parts, strict=True)]
        return _worst(both)
    return _values(number, (got, own, oracle), _spacing(own.dtype), tolerance)


def _values(number: int, arrays: Arrays, spacing: tuple[float, float], tolerance: Tolerance) -> Comparison:
    got, own, oracle = (np.asarray(a).astype(np.float64) for a in arrays)
    kinds = [_classes(a) for a in (got, own, oracle)]
    contested = kinds[1] != kinds[2]
    wrong = np.where(contested, (kinds[0] != kinds[1]) & (kinds[0] != kinds[2]), kinds[0] != kinds[2])
    if wrong.any():
        return _non_finite(number, got, oracle, wrong)
    if contested.mean() > CONTESTED_LIMIT:
        told = (
            f"This is the task, not the kernel: output {number} of the reference itself is not finite in its own dtype "
            f"for {contested.mean():.0%} of the elements, so there is nothing to compare; "
            "make the inputs smaller or compute in a wider dtype."
        )
        return _failed(CONTESTED, told, number)
    counted = ~contested & (kinds[2] == 0)
    got, own, oracle = (np.where(counted, a, 0.0) for a in (got, own, oracle))
    return _errors(number, (got, own, oracle), spacing, tolerance)


def _errors(number: int, arrays: Arrays, spacing: tuple[float, float], tolerance: Tolerance) -> Comparison:
    got, own, oracle = arrays
    error, own_error = np.abs(got - oracle), np.abs(own - oracle)
    relative, smallest = spacing
    row_rms = np.sqrt(_by_row(oracle * oracle, np.mean))
    floor = relative * (np.abs(oracle) + row_rms) / 2 + smallest
    mine = (tolerance.atol or 0.0) + (tolerance.rtol or 0.0) * np.abs(oracle)
    near = np.maximum(row_own := _by_row(own_error, np.max), _typical(row_own, row_rms) * row_rms)
    budget = np.maximum(np.maximum(tolerance.factor * near, floor), mine)
    norm_budget = max(tolerance.factor * _rms(own_error), relative * _rms(oracle) + smallest, _rms(mine))
    ratios = error / budget
    at = np.unravel_index(int(np.argmax(ratios)), ratios.shape)
    ratio, norm_ratio = float(ratios[at]), _rms(error) / norm_budget
    facts: dict[str, Any] = {
        "ratio": ratio, "norm_ratio": norm_ratio, "max_abs_error": float(error.max()), "leaf": number,
        "index": tuple(int(i) for i in at), "got": float(got[at]), "expected": float(oracle[at]),
    }  # fmt: skip
    place = f"element {list(facts['index'])} of output {number} is {got[at]:.6g}, expected {oracle[at]:.6g}"
    if ratio > 1:
        share = float((ratios > 1).mean())
        told = f"Wrong values: {place}, {ratio:.3g} times the allowed error ({share:.2%} of the elements are off)."
        return Comparison("values", told, **facts)
    if norm_ratio > 1:
        told = f"Too imprecise overall: rms error {norm_ratio:.3g} times the allowed one (worst: {place})."
        return Comparison("norm", told, **facts)
    return Comparison("", f"Worst error {max(ratio, norm_ratio):.2g} of the allowed one.", **facts)


def _non_finite(number: int, got: np.ndarray, oracle: np.ndarray, wrong: np.ndarray) -> Comparison:
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    told = f"element {list(at)} of output {number} is {got[at]}, expected {oracle[at]:.6g}"
    return Comparison(
        "non-finite", f"Wrong values: {told} ({wrong.mean():.2%} of the elements).", math.inf, math.inf, math.inf,
        number, at, float(got[at]), float(oracle[at]),
    )  # fmt: skip


def _classes(a: np.ndarray) -> np.ndarray:
    """0 finite, 1 NaN, 2 +inf, 3 -inf."""
    return np.isnan(a) * 1 + np.isposinf(a) * 2 + np.isneginf(a) * 3


def _by_row(a: np.ndarray, reduce: object) -> np.ndarray:
    """``reduce`` over as many trailing axes as make at least 64 elements, broadcast back to the shape of ``a``."""
    axes, size = [], 1
    for axis in reversed(range(a.ndim)):
        axes.append(axis)
        size *= a.shape[axis]
        if size >= ROW:
            break
    return np.broadcast_to(reduce(a, axis=tuple(axes), keepdims=True), a.shape)  # type: ignore[operator]


def _typical(row_error: np.ndarray, row_rms: np.ndarray) -> float:
    """The median row's largest error in units of its root mean square; rows of zeros do not count."""
    scaled = row_error[row_rms > 0] / row_rms[row_rms > 0]
    return float(np.median(scaled)) if scaled.size else 0.0


def _rms(a: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(a))))


def _spacing(dtype: np.dtype) -> tuple[float, float]:
    """Relative floor (spacing at 1, times the units above) and the smallest normal number; zeros for integers."""
    import ml_dtypes

    if dtype.kind in "iub":
        return 0.0, np.finfo(np.float64).tiny
    real = dtype_named({"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype.name))
    info = ml_dtypes.finfo(real)
    return float(info.eps) * FLOOR_UNITS[real.itemsize], float(info.tiny)


def _failed(kind: str, sentence: str, leaf: int = 0) -> Comparison:
    return Comparison(kind, sentence, math.inf, math.inf, math.inf, leaf)
