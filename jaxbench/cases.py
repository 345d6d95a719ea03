"""Which sizes a kernel is checked at: small ones with the structure of the full size, and one that no tile divides.

A task file may state them (``CASES``: changes of its full sizes by name), where sizes depend on each other or on the
reference's constants. For all others they follow from what the file's ``SMOKE`` makes smaller: rows and columns of a
few tiles, differing between cases, and smaller images. What the reference itself refuses is never proposed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import jax

from jaxbench.registry import BenchTask
from jaxbench.spec import Dims
from maxkernel_nb.errors import TaskError

WORK_LIMIT = 0.6e9  # operations in one check case: seconds in interpret mode
TRIES = 60
# For rows and columns, by their order in the file; the first that the reference accepts within the limit is taken.
LARGE = {"small": (128, 256), "medium": (256, 384, 128), "wide": (384, 128, 256), "ragged": (187, 250, 141)}
SPACE = {"small": (0.75,), "medium": (1.0, 0.5), "wide": (0.5, 1.0), "ragged": (0.85, 0.7)}  # of the smoke size
BATCH = {"small": 1, "medium": 2, "wide": 1, "ragged": 2}
TILE, SPATIAL = 128, 8
RAGGED = "ragged"  # the name of the case that a kernel may decline


def case_dims(bench: BenchTask) -> dict[str, Dims]:
    """Sizes by case name: at least three check cases and, where the reference has one, ``ragged``.

    Raises ``TaskError`` when fewer are found.
    """
    if bench.cases:
        return {name: bench.full.but(**changes) for name, changes in bench.cases.items()}
    found: dict[str, Dims] = {}
    for kind in LARGE:
        dims = _first(bench, kind, [_shapes(bench, d) for d in found.values()])
        if dims is not None:
            found[kind] = dims
    if len(found) - (RAGGED in found) < 3:
        raise TaskError(f"{bench.id} has only {len(found)} check cases; state CASES in its file.")
    return found


def _first(bench: BenchTask, kind: str, seen: list[object]) -> Dims | None:
    """The first proposal within the limit of work, else the one with the least."""
    least: tuple[int, Dims] | None = None
    for dims, _ in zip(_proposals(bench, kind), range(TRIES), strict=False):
        if _shapes(bench, dims) in seen or not _accepted(bench, dims):
            continue
        work = bench.flops_formula(dims)
        if work <= WORK_LIMIT:
            return dims
        least = min(least or (work, dims), (work, dims), key=lambda pair: pair[0])
    return least and least[1]


def _proposals(bench: BenchTask, kind: str) -> Iterator[Dims]:
    free = [n for n in bench.full if bench.smoke[n] != bench.full[n] and n not in bench.static()]
    choices = [_choices(name, int(bench.smoke[name]), kind, number) for number, name in enumerate(free)]
    for sizes in product(*choices):
        if kind != RAGGED or any(size % SPATIAL for size in sizes if size > SPATIAL):
            yield bench.full.but(**dict(zip(free, sizes, strict=True)))


def _choices(name: str, smoke: int, kind: str, number: int) -> list[int]:
    if smoke >= TILE:
        sizes = list(LARGE[kind])
        turned = sizes[number % len(sizes) :] + sizes[: number % len(sizes)]
        return list(dict.fromkeys([*turned, TILE, TILE // 2]))
    if name.startswith("batch"):
        return [BATCH[kind]]
    if name in ("depth", "height", "width"):
        return list(dict.fromkeys(max(SPATIAL - 2, math.floor(smoke * part)) for part in (*SPACE[kind], 1.0)))
    return [smoke]


def _accepted(bench: BenchTask, dims: Dims) -> bool:
    structs = [jax.ShapeDtypeStruct(s.shape, s.dtype_for("bfloat16")) for s in bench.inputs(dims)]
    if any(0 in s.shape for s in structs):
        return False
    try:
        result = jax.eval_shape(bench.function("full"), *structs)
    except (TypeError, ValueError):
        return False
    return len(result.shape) == len(bench.output().shape) and 0 not in result.shape


def _shapes(bench: BenchTask, dims: Dims) -> object:
    return [spec.shape for spec in bench.inputs(dims)]
