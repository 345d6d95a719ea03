"""Cheap wrong answers to a task, as functions of its inputs: a task is weak when one of them passes all its checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from maxkernel_nb.evaluate import inputs
from maxkernel_nb.evaluate.wire import dtype_named
from maxkernel_nb.task import ArgSpec, Case

Arrays = list[np.ndarray]
Function = Callable[[Sequence[np.ndarray]], Arrays]
OTHER = 7919  # added to a seed: another draw
# Two steps down from each dtype: the first one down is what a kernel's matrix unit may be given.
_LOWER = {"float64": "bfloat16", "float32": "float8_e4m3fn", "bfloat16": "float4_e2m1fn", "float16": "float4_e2m1fn"}


def wrong_answers(
    case: Case, seed: int, arrays: Arrays, result: Arrays, call: Function, shortcuts: Mapping[str, Function]
) -> dict[str, Callable[[], Arrays]]:
    """By name. ``result``: the reference's own on ``arrays``; ``shortcuts``: the reference with a step left out."""
    other = inputs.draw(case, seed + OTHER)
    answers: dict[str, Callable[[], Arrays]] = {
        "all zeros": lambda: [np.zeros_like(a) for a in result],
        "all ones": lambda: [np.ones_like(a) for a in result],
        "another draw's result": lambda: call(other),
    }
    if any(a.size > 1 for a in result):
        answers["the mean everywhere"] = lambda: [_filled(a, np.mean) for a in result]
        answers["mid-range everywhere"] = lambda: [_filled(a, _middle) for a in result]
        answers["the first row repeated"] = lambda: [_first_repeated(a) for a in result]
    for k, spec in enumerate(case.args):
        answers[f"{spec.name} ignored"] = partial(_with, call, arrays, k, _other(arrays[k], other[k], spec))
    if any(a.dtype.name in _LOWER for a in arrays):
        answers["inputs two precisions lower"] = lambda: call([_coarse(a) for a in arrays])
    answers |= {name: partial(function, arrays) for name, function in shortcuts.items()}
    return answers


def _with(call: Function, arrays: Arrays, k: int, value: np.ndarray) -> Arrays:
    return call([*arrays[:k], value, *arrays[k + 1 :]])


def _other(array: np.ndarray, other: np.ndarray, spec: ArgSpec) -> np.ndarray:
    """Another value the argument could have had: another draw, or for a constant its opposite (0 or 1)."""
    if np.array_equal(other, array):
        return np.ones_like(array) if not array.astype(bool).any() else np.zeros_like(array)
    return other


def _filled(array: np.ndarray, reduce: Callable[[np.ndarray], float]) -> np.ndarray:
    return array if array.dtype.kind == "c" else np.full_like(array, reduce(array.astype(np.float64)))


def _middle(array: np.ndarray) -> float:
    return float(array.min() + array.max()) / 2


def _first_repeated(array: np.ndarray) -> np.ndarray:
    axis = next((i for i, size in enumerate(array.shape) if size > 1), None)
    return array if axis is None else np.broadcast_to(np.take(array, [0], axis), array.shape)


def _coarse(array: np.ndarray) -> np.ndarray:
    """Rounded to the mantissa of a type two steps lower; the range is kept, each array by its largest element."""
    lower = _LOWER.get(array.dtype.name)
    if lower is None or not array.size:
        return array
    wide = array.astype(np.float64)
    scale = float(np.abs(wide).max()) or 1.0
    top = 1.0 if lower == "bfloat16" else {"float8_e4m3fn": 448.0, "float4_e2m1fn": 6.0}[lower]
    return ((wide / scale * top).astype(dtype_named(lower)).astype(np.float64) * scale / top).astype(array.dtype)
