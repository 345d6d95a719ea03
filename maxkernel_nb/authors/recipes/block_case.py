"""One block expression read in every shape case: what recipes on [rows, columns] coordinates have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from maxkernel_nb.authors.recipes.base import algebra_of, in_every_case
from maxkernel_nb.authors.recipes.expressions import Expression, Reader, combine
from maxkernel_nb.authors.recipes.graph import Graph
from maxkernel_nb.authors.recipes.signature import signature_of
from maxkernel_nb.task import KernelTask


@dataclass
class BlockCase:
    """``result``: the reader's argument for what is written. ``dims``: sizes by name; ``shape_free``: the rest of a
    match's fields, which must be equal in every case. ``sizes``: fields that are the timing case's. ``rest``: what is
    left of the graph for others to write.
    """

    reader: Reader
    result: str
    dims: dict[str, int]
    shape_free: dict[str, Any]
    rest: Graph | None = None
    sizes: dict[str, Any] = field(default_factory=dict)


def read_cases(
    traces: Mapping[str, Any], task: KernelTask, read: Callable[[Graph], BlockCase]
) -> tuple[list[BlockCase], Expression, dict[str, Any]]:
    """Every case, the one expression of them all, and the fields of a match. Raises ``Declined`` where they differ."""
    found = in_every_case(traces, task, lambda graph, first: read(graph), attrgetter("shape_free"))
    expression = combine(found[0].result, [f.reader for f in found], [f.dims for f in found])
    fields = {
        "signature": signature_of(task), "chip": task.chip, "algebra": algebra_of(traces, task),
        **found[0].dims, **found[0].shape_free, **found[0].sizes,
    }
    return found, expression, fields
