"""Arrays for a case, drawn from a seed: the same everywhere. Without jax, but for cases that a function makes."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator, Sequence
from enum import StrEnum

import numpy as np

from maxkernel_nb.evaluate.executor import JobRefused
from maxkernel_nb.evaluate.wire import dtype_named
from maxkernel_nb.task import ArgSpec, Case
from maxkernel_nb.tasks.draws import fitted
from maxkernel_nb.tasks.makers import make_arrays
from maxkernel_nb.values import content_hash

LARGE = 64.0  # a power of two: exact in every float type


class Variant(StrEnum):
    """``DRAWN``: as the task says. ``ZEROS``: drawn floats are zero. ``LARGE``: drawn floats times 64."""

    DRAWN = "drawn"
    ZEROS = "zeros"
    LARGE = "large"


def draw(case: Case, seed: int, variant: Variant = Variant.DRAWN) -> list[np.ndarray]:
    """One array for each argument, in order. A function of the case, the seed and the argument's name only."""
    if case.maker:
        return [_edge(array, variant) for array in make_arrays(case, seed)]
    return [draw_argument(spec, case.name, seed, variant) for spec in case.args]


def _edge(array: np.ndarray, variant: Variant) -> np.ndarray:
    """A made argument on an edge: floats are scaled; integers are indices or lengths and stay."""
    if variant is Variant.DRAWN or array.dtype.kind in "iub":
        return array
    factor = {Variant.ZEROS: 0.0, Variant.LARGE: LARGE}[variant]
    return (array.astype(np.float64) * factor).astype(array.dtype)


@contextlib.contextmanager
def unchanged(arrays: Sequence[np.ndarray]) -> Iterator[None]:
    """Around a run. Raises ``JobRefused`` when the run wrote into the arrays it was given."""
    before = [_sum(a) for a in arrays]
    yield
    for number, (was, array) in enumerate(zip(before, arrays, strict=True)):
        if was != _sum(array):
            told = f"Running it changes argument {number}, which the caller keeps; a kernel may write only its results."
            raise JobRefused("inputs-changed", told)


def _sum(array: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def cotangents(results: Sequence[tuple[tuple[int, ...], str]], case: str, seed: int) -> list[np.ndarray]:
    """One normal array for each result (shape, dtype name) that is a float: what a gradient is asked for."""
    named = [ArgSpec(name=f"cotangent {n}", shape=shape, dtype=dtype) for n, (shape, dtype) in enumerate(results)]
    return [draw_argument(spec, case, seed) for spec in named if is_float(spec.dtype)]


def is_float(dtype: str) -> bool:
    return dtype_named(dtype).kind not in "iubc" and not dtype.startswith(("int", "uint"))  # int4 is of kind V


def draw_argument(spec: ArgSpec, case: str, seed: int, variant: Variant = Variant.DRAWN) -> np.ndarray:
    dtype = dtype_named(spec.dtype)
    values = _values(spec, np.random.Generator(np.random.PCG64(_entropy(spec, case, seed))))
    if spec.draw.kind == "normal" and dtype.kind not in "iub":
        values = values * {Variant.DRAWN: 1.0, Variant.ZEROS: 0.0, Variant.LARGE: LARGE}[variant]
    if spec.draw.kind == "normal" and dtype.kind in "iu":
        info = np.iinfo(dtype)
        values = np.clip(np.rint(values), info.min, info.max)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values).astype(dtype).reshape(spec.shape)


def _values(spec: ArgSpec, rng: np.random.Generator) -> np.ndarray:
    how, size = spec.draw, spec.shape
    match how.kind:
        case "normal":
            wide = np.float64 if spec.dtype == "float64" else np.float32
            return rng.standard_normal(size, dtype=wide) * wide(how.std) + wide(how.mean)
        case "integers":
            return rng.integers(how.low, max(how.high, how.low + 1), size)
        case "bernoulli":
            return rng.random(size) < how.mean
        case "constant":
            return np.full(size, how.mean)
        case _:
            return fitted(how, size, rng)


def _entropy(spec: ArgSpec, case: str, seed: int) -> int:
    return int(content_hash([case, seed, spec.name, list(spec.shape), spec.dtype])[:32], 16)
