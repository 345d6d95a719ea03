"""A small dataflow graph: what the recipes' recognisers match on, free of jax's spelling."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

LAYOUT_OPS = frozenset({"reshape", "transpose", "broadcast", "slice"})
REDUCTIONS = frozenset({"reduce_sum", "reduce_max", "reduce_min"})


@dataclass(frozen=True)
class Node:
    """One array value. ``inputs`` are node numbers, ``attrs`` sorted (name, value) pairs.

    Ops: ``param`` (index), ``const`` (value; a splat of the node's shape), ``array`` (index into ``Graph.arrays``),
    ``iota`` (dim), ``broadcast`` (dims), ``reshape``, ``transpose`` (perm), ``slice`` (start, strides), ``dot``
    (contract, batch, precision, operands: their dtypes as the function had them), ``reduce_*`` (axes), ``select``
    (predicate, if true, if false), ``cast`` (between kinds only: a float narrowed or widened is the same real number),
    elementwise ops under their jax primitive's name, and ``other`` (primitive,
    serial: its place in ``equations``) for whatever no recipe reads.
    """

    op: str
    inputs: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str
    attrs: tuple[tuple[str, Any], ...] = ()

    def attr(self, name: str) -> Any:
        return dict(self.attrs)[name]

    @property
    def size(self) -> int:
        size = 1
        for dim in self.shape:
            size *= dim
        return size


@dataclass
class Graph:
    """Nodes in topological order, equal nodes merged. ``outputs`` are node numbers.

    ``output_dtypes`` are the function's own: a last narrowing is no node.
    """

    nodes: list[Node] = field(default_factory=list)
    outputs: tuple[int, ...] = ()
    output_dtypes: tuple[str, ...] = ()
    arrays: list[Any] = field(default_factory=list)
    equations: list[Any] = field(default_factory=list)  # of ``other`` nodes, by their attribute ``serial``
    _known: dict[Node, int] = field(default_factory=dict)

    def __getitem__(self, number: int) -> Node:
        return self.nodes[number]

    def add(self, node: Node) -> int:
        if node not in self._known:
            self._known[node] = len(self.nodes)
            self.nodes.append(node)
        return self._known[node]

    def reachable(self) -> set[int]:
        """Nodes that the outputs depend on."""
        return self.ancestors(*self.outputs)

    def ancestors(self, *roots: int) -> set[int]:
        seen: set[int] = set()
        todo = list(roots)
        while todo:
            number = todo.pop()
            if number not in seen:
                seen.add(number)
                todo.extend(self[number].inputs)
        return seen

    def live(self, op: str) -> list[int]:
        """Numbers of the live nodes of one op, in order."""
        return sorted(n for n in self.reachable() if self[n].op == op)
