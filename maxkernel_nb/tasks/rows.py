"""How the reference can be had at full size on a CPU: whole where that is cheap, else on a few of its rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from maxkernel_nb.compat import equations, is_number
from maxkernel_nb.errors import TaskError
from maxkernel_nb.task import Case
from maxkernel_nb.tasks.tracing import Traced, Tracer
from maxkernel_nb.tasks.work import work

CHEAP = 4e9  # operations: well under a second in float64 on two cores
DEAR = 2e11  # operations, of the oracle once for a task: seconds
ELEMENTS = 1 << 27  # in the largest array between: 1 GB in float64
ROWS = (64, 8, 2, 1)
_PER_ELEMENT = 256  # comparing one element in numpy weighs as much as this many operations
_MOST = 2  # parts of one task: each is exported twice


@dataclass(frozen=True)
class Part:
    """``case``: the timing case, ``args`` cut to ``rows`` rows (none: whole). ``work``: of running and comparing it."""

    case: Case
    args: tuple[int, ...]
    rows: int
    work: float


def parts(case: Case, tracer: Tracer) -> list[Part]:
    """The best first: whole if cheap, on rows, whole if dear. Whether rows stand alone is for the judge to ask."""
    whole = _affordable(case, (), 0, tracer(case.args))
    if whole is not None and whole.work <= CHEAP:
        return [whole]
    on_rows = [] if case.maker else list(_on_rows(case, tracer))
    return [*on_rows, *([whole] if whole is not None else [])][:_MOST]


def _on_rows(case: Case, tracer: Tracer) -> Iterator[Part]:
    """For all arguments that lead with the outputs' first axis, then for each alone: the most rows that are cheap."""
    outputs = [aval.shape for aval in tracer(case.args).closed.out_avals]
    if not outputs or any(not s or s[0] != outputs[0][0] for s in outputs):
        return
    count = outputs[0][0]
    leading = tuple(k for k, a in enumerate(case.args) if len(a.shape) > 1 and a.shape[0] == count)
    for args in (leading, *((k,) for k in leading if len(leading) > 1)):
        made = [p for n in ROWS if n < count and args and (p := _cut(case, args, n, tracer, outputs)) is not None]
        if made:
            yield next((p for p in made if p.work <= CHEAP), made[-1])


def _cut(case: Case, args: tuple[int, ...], rows: int, tracer: Tracer, outputs: list[Any]) -> Part | None:
    """None where the function refuses fewer rows, or answers with other shapes than fewer rows."""
    changed = tuple(
        a.model_copy(update={"shape": (rows, *a.shape[1:])}) if k in args else a for k, a in enumerate(case.args)
    )
    try:
        traced = tracer(changed)
    except TaskError:
        return None
    if [v.shape for v in traced.closed.out_avals] != [(rows, *s[1:]) for s in outputs]:
        return None
    return _affordable(case.model_copy(update={"args": changed}), args, rows, traced)


def _affordable(case: Case, args: tuple[int, ...], rows: int, traced: Traced) -> Part | None:
    elements = sum(math.prod(a.shape) for a in case.args) + sum(math.prod(v.shape) for v in traced.closed.out_avals)
    cost = max(work(traced.closed), _PER_ELEMENT * elements)
    sizes = [math.prod(v.aval.shape) for e in equations(traced.closed) for v in e.outvars if is_number(v.aval)]
    return Part(case, args, rows, cost) if cost <= DEAR and max(sizes, default=0) <= ELEMENTS else None
