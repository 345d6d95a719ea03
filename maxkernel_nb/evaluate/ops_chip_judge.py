"""In the judge worker: outputs from a chip at full size, against the reference there and the oracle here.

Rows spread over each output are held against the float64 oracle by the rule of ``numerics``; where whole outputs came,
every element must also be as near to the chip's own reference as that rule and the reference's own error allow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from maxkernel_nb.evaluate import wire
from maxkernel_nb.evaluate.numerics import FLOOR_UNITS, compare
from maxkernel_nb.task import Case, Tolerance
from maxkernel_nb.tpu.chip.session import row_numbers

Arrays = list[np.ndarray]
Oracle = Callable[[bytes, Case, int, bool], Arrays]
# Without an oracle at this size: what two honest programs may differ by, relative to an output's rms. A TPU multiplies
# float32 in passes of bfloat16 unless told otherwise.
_APART = 2.0**-6


def compared(args: dict[str, Any], buffers: tuple[bytes, ...], oracle: Oracle) -> dict[str, Any]:
    """Buffers: the oracle's export (empty: none), then the candidate's and the reference's outputs. The answer has the
    facts of a ``Comparison`` and how it was made (``with_oracle``, ``whole``)."""
    case, tolerance = Case.from_dict(args["case"]), Tolerance.from_dict(args["tolerance"])
    exported, *rest = buffers
    arrays = wire.arrays(args["outputs"], rest)
    half = len(arrays) // 2
    got, own = arrays[:half], arrays[half:]
    wide = oracle(exported, case, args["seed"], args["wide"]) if exported else None
    whole = wide is None or all(a.shape == w.shape for a, w in zip(own, wide, strict=True))
    facts = {"passed": True, "kind": "", "ratio": 0.0}
    if wide is not None:
        facts = _rows_compared(got, own, wide, tolerance)
    if facts["passed"] and whole:
        apart = _apart(got, own, wide, tolerance)
        facts = {**facts, **apart} if not apart["passed"] else {**facts, "apart": apart["apart"]}
    return {"sentence": "Right.", **facts, "with_oracle": wide is not None, "whole": whole}


def _rows_compared(got: Arrays, own: Arrays, wide: Arrays, tolerance: Tolerance) -> dict[str, Any]:
    sampled = [_rows(w) for w in wide]
    shaped = [[_rows(a) if a.shape == w.shape else a for a, w in zip(side, wide, strict=True)] for side in (got, own)]
    result = compare(shaped[0], shaped[1], sampled, tolerance)
    return {"passed": result.passed, "kind": result.kind, "sentence": result.sentence, "ratio": _finite(result.ratio)}


def _rows(array: np.ndarray) -> np.ndarray:
    shape = array.shape if array.ndim > 1 else (1, max(1, array.size))
    return array.reshape(-1, shape[-1])[row_numbers(shape)]


def _apart(got: Arrays, own: Arrays, wide: Arrays | None, tolerance: Tolerance) -> dict[str, Any]:
    """Every element against the chip's reference. ``apart``: largest difference over what is allowed."""
    worst = 0.0
    for number, (a, b) in enumerate(zip(got, own, strict=True)):
        x, y = (np.asarray(v).astype(np.float64) for v in (a, b))
        if not np.array_equal(np.isfinite(x), np.isfinite(y)):
            return _wrong(f"output {number} is not finite in other places than the reference's.", np.inf)
        allowed = _allowed(b, None if wide is None else wide[number], tolerance)
        ratio = np.abs(np.where(np.isfinite(x), x, 0) - np.where(np.isfinite(y), y, 0)) / allowed(y)
        worst = max(worst, float(ratio.max(initial=0.0)))
        if worst > 1:
            at = [int(i) for i in np.unravel_index(int(np.argmax(ratio)), ratio.shape)]
            share = float((ratio > 1).mean())
            told = f"element {at} of output {number} is {x[tuple(at)]:.6g} where the reference on the same device gives"
            return _wrong(f"{told} {y[tuple(at)]:.6g}; {share:.2%} of the elements are off.", worst)
    return {"passed": True, "apart": worst}


def _allowed(own: np.ndarray, wide: np.ndarray | None, tolerance: Tolerance) -> Callable[[np.ndarray], np.ndarray]:
    import ml_dtypes

    if own.dtype.kind in "iub":
        return lambda y: np.full(y.shape, 0.5)
    info = ml_dtypes.finfo(own.dtype)
    rms = float(np.sqrt(np.mean(np.square(np.where(np.isfinite(own), own, 0).astype(np.float64)))))
    relative = float(info.eps) * FLOOR_UNITS.get(own.dtype.itemsize, 32.0)
    error = _APART * rms
    if wide is not None:
        error = (tolerance.factor + 1) * float(np.max(np.abs(_rows(own).astype(np.float64) - _rows(wide)), initial=0.0))
    mine = tolerance.atol or 0.0
    return lambda y: error + mine + (relative + (tolerance.rtol or 0.0)) * (np.abs(y) + rms) + float(info.tiny)


def _wrong(sentence: str, apart: float) -> dict[str, Any]:
    told = f"Wrong values at full size: {sentence}"
    return {"passed": False, "kind": "values", "sentence": told, "apart": _finite(apart)}


def _finite(value: float) -> float:
    return float(min(value, 1e300))
