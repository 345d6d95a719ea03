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


class Standard:
    """What answers are held to: a reference's own result, its oracle and their budget, made ready once. ``own`` has the
    reference's output dtypes.
    """

    def __init__(self, own: Sequence[np.ndarray], oracle: Sequence[np.ndarray], tolerance: Tolerance) -> None:
        self._leaves = [_Leaf(i, *pair, tolerance) for i, pair in enumerate(zip(own, oracle, strict=True))]

    @property
    def nbytes(self) -> int:
        return sum(leaf.nbytes for leaf in self._leaves)

    def compare(self, candidate: Sequence[np.ndarray]) -> Comparison:
        """The first leaf that fails, else one where nothing can be said (``contested``: the reference is not finite in
        its own dtype), else the leaf with the largest ratio.
        """
        if len(candidate) != len(self._leaves):
            told = f"It returns {len(candidate)} arrays where the reference returns {len(self._leaves)}."
            return _failed("structure", told)
        results = [leaf.compare(got) for leaf, got in zip(self._leaves, candidate, strict=True)]
        return _worst(results) if results else Comparison("", "There is no output.", 0.0, 0.0, 0.0)


def compare(
    candidate: Sequence[np.ndarray], own: Sequence[np.ndarray], oracle: Sequence[np.ndarray], tolerance: Tolerance
) -> Comparison:
    """``Standard.compare``, where it is asked once."""
    return Standard(own, oracle, tolerance).compare(candidate)


def _worst(results: Sequence[Comparison]) -> Comparison:
    failed = (r for r in results if r.kind not in ("", CONTESTED))
    contested = (r for r in results if r.kind == CONTESTED)
    return next(failed, None) or next(contested, None) or max(results, key=lambda r: r.ratio)


class _Leaf:
    """One output. Complex ones are two."""

    def __init__(self, number: int, own: np.ndarray, oracle: np.ndarray, tolerance: Tolerance) -> None:
        self.number, self._shape, self._dtype = number, own.shape, own.dtype
        if not own.size:
            self._parts: list[_Values] = []
        elif own.dtype.kind == "c":
            pairs = ((part(own), part(oracle)) for part in (np.real, np.imag))
            self._parts = [_Values(number, *pair, _spacing(own.dtype), tolerance) for pair in pairs]
        else:
            self._parts = [_Values(number, own, oracle, _spacing(own.dtype), tolerance)]
        self.nbytes = sum(part.nbytes for part in self._parts)

    def compare(self, got: np.ndarray) -> Comparison:
        name = f"Output {self.number}"
        if got.shape != self._shape or got.dtype != self._dtype:
            wanted = f"{self._dtype.name}{list(self._shape)}"
            told = f"{got.dtype.name}{list(got.shape)} where the reference gives {wanted}"
            return _failed("structure", f"{name} is {told}.", self.number)
        if not self._parts:
            return Comparison("", f"{name} is empty.", 0.0, 0.0, 0.0, self.number)
        seen = (np.real(got), np.imag(got)) if len(self._parts) > 1 else (got,)
        return _worst([part.compare(values) for part, values in zip(self._parts, seen, strict=True)])


class _Values:
    """Real values: which elements are not finite, and what each of the others may be off."""

    def __init__(
        self, number: int, own: np.ndarray, oracle: np.ndarray, spacing: tuple[float, float], tolerance: Tolerance
    ) -> None:
        own, oracle = (np.asarray(a).astype(np.float64) for a in (own, oracle))
        self.number, self.oracle = number, oracle
        self._own_classes, self._classes = _classes(own), _classes(oracle)
        self._contested = self._own_classes != self._classes
        self._counted = ~self._contested & (self._classes == 0)
        self._contested_share = float(self._contested.mean())
        self._plain, self._right = bool(self._counted.all()), oracle
        if not self._plain:
            own, self._right = (np.where(self._counted, a, 0.0) for a in (own, oracle))
        self._budget, self._norm_budget = _budgets(own, self._right, spacing, tolerance)

    @property
    def nbytes(self) -> int:
        return (2 if self._plain else 3) * self._budget.nbytes + 4 * self._classes.nbytes

    def compare(self, got: np.ndarray) -> Comparison:
        got = np.asarray(got).astype(np.float64)
        if not (self._plain and np.isfinite(got).all()):
            told = self._not_finite(got)
            if told is not None:
                return told
            got = np.where(self._counted, got, 0.0)
        return self._errors(got)

    def _not_finite(self, got: np.ndarray) -> Comparison | None:
        classes = _classes(got)
        other = classes != self._classes
        wrong = np.where(self._contested, (classes != self._own_classes) & other, other)
        if wrong.any():
            return _non_finite(self.number, got, self.oracle, wrong)
        if self._contested_share <= CONTESTED_LIMIT:
            return None
        told = (
            f"This is the task, not the kernel: output {self.number} of the reference itself is not finite in its own "
            f"dtype for {self._contested_share:.0%} of the elements, so there is nothing to compare; "
            "make the inputs smaller or compute in a wider dtype."
        )
        return _failed(CONTESTED, told, self.number)

    def _errors(self, got: np.ndarray) -> Comparison:
        oracle = self._right
        error = np.abs(got - oracle)
        ratios = error / self._budget
        at = np.unravel_index(int(np.argmax(ratios)), ratios.shape)
        ratio, norm_ratio = float(ratios[at]), _rms(error) / self._norm_budget
        facts: dict[str, Any] = {
            "ratio": ratio, "norm_ratio": norm_ratio, "max_abs_error": float(error.max()), "leaf": self.number,
            "index": tuple(int(i) for i in at), "got": float(got[at]), "expected": float(oracle[at]),
        }  # fmt: skip
        where = f"element {list(facts['index'])} of output {self.number}"
        place = f"{where} is {got[at]:.6g}, expected {oracle[at]:.6g}"
        if ratio > 1:
            share = float((ratios > 1).mean())
            told = f"Wrong values: {place}, {ratio:.3g} times the allowed error ({share:.2%} of the elements are off)."
            return Comparison("values", told, **facts)
        if norm_ratio > 1:
            told = f"Too imprecise overall: rms error {norm_ratio:.3g} times the allowed one (worst: {place})."
            return Comparison("norm", told, **facts)
        return Comparison("", f"Worst error {max(ratio, norm_ratio):.2g} of the allowed one.", **facts)


def _budgets(
    own: np.ndarray, oracle: np.ndarray, spacing: tuple[float, float], tolerance: Tolerance
) -> tuple[np.ndarray, float]:
    """What each element may be off, and the root mean square."""
    own_error = np.abs(own - oracle)
    relative, smallest = spacing
    row_rms = np.sqrt(_by_row(oracle * oracle, np.mean))
    floor = relative * (np.abs(oracle) + row_rms) / 2 + smallest
    mine = (tolerance.atol or 0.0) + (tolerance.rtol or 0.0) * np.abs(oracle)
    near = np.maximum(row_own := _by_row(own_error, np.max), _typical(row_own, row_rms) * row_rms)
    budget = np.maximum(np.maximum(tolerance.factor * near, floor), mine)
    return budget, max(tolerance.factor * _rms(own_error), relative * _rms(oracle) + smallest, _rms(mine))


def _non_finite(number: int, got: np.ndarray, oracle: np.ndarray, wrong: np.ndarray) -> Comparison:
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    told = f"element {list(at)} of output {number} is {got[at]}, expected {oracle[at]:.6g}"
    return Comparison(
        "non-finite", f"Wrong values: {told} ({wrong.mean():.2%} of the elements).", math.inf, math.inf, math.inf,
        number, at, float(got[at]), float(oracle[at]),
    )  # fmt: skip


def _classes(a: np.ndarray) -> np.ndarray:
    """0 finite, 1 NaN, 2 +inf, 3 -inf."""
    classes = np.zeros(a.shape, np.uint8)
    if not np.isfinite(a).all():
        classes[np.isnan(a)], classes[np.isposinf(a)], classes[np.isneginf(a)] = 1, 2, 3
    return classes


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
