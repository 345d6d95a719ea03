"""Reading what a block kernel computes: a graph over [m, n] coordinates, from the result back to its leaves."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from maxkernel_nb import compat
from maxkernel_nb.authors.recipes.expressions import Leaf, Reader, describe
from maxkernel_nb.authors.recipes.graph import Graph
from maxkernel_nb.authors.recipes.views import Indices, base_of, flat, sample_points, unflatten, volume
from maxkernel_nb.errors import Declined

Kind = Literal["full", "row", "col", "scalar"]
FLOATS = ("float32", "bfloat16")


def output_form(kind: str, shape: tuple[int, ...], lead: tuple[int, ...], tail: tuple[int, ...]) -> str:
    m, n = volume(lead), volume(tail)
    full = {"lead_tail": lead + tail, "lead_n": (*lead, n), "m_n": (m, n)}
    col = {"lead": lead, "lead_1": (*lead, 1), "m": (m,), "m_1": (m, 1)}
    for form, wanted in (full if kind == "full" else col).items():
        if shape == wanted:
            return form
    raise Declined(f"the result is reshaped to {list(shape)}")


class BlockReader(Reader):
    """Reads on [m, n] coordinates. ``dot``: the product that the block starts from, if any, and ``second`` one that
    meets it; ``reduces`` is set once a row reduction was met.
    """

    def __init__(
        self, graph: Graph, dot: int | None, sizes: tuple[int, int], points: tuple[np.ndarray, np.ndarray],
        swapped: bool = False, second: int | None = None,
    ) -> None:
        super().__init__(graph)
        self.products = {n: name for n, name in ((dot, "acc"), (second, "acc2")) if n is not None}
        self.dot, (self.m, self.n), (self.row, self.col) = dot, sizes, points
        self.swapped = swapped
        self.reduces = False
        self.kinds: dict[str, str] = {}

    def read_output(self, number: int, shape: tuple[int, ...]) -> tuple[str, str]:
        if volume(shape) == self.m * self.n:
            kind, position = "full", self.row * self.n + self.col
        elif volume(shape) == self.m:
            kind, position = "col", self.row
        else:
            raise Declined(f"the result {list(shape)} is neither the product's shape nor one value per row")
        result = self.read(number, unflatten(position, shape))
        return kind, result

    def key(self, number: int, indices: Indices) -> Any:
        # placed nodes have one value over the block, wherever they are read from
        self.place(number, indices)
        return number

    def place(self, number: int, indices: Indices) -> Kind:
        """How a node lies over the block, checked against the sampled coordinates."""
        node = self.graph[number]
        if number in self.products and self.swapped:
            split = len(self.graph[node.inputs[0]].shape) - 1
            col = flat(indices[:split], node.shape[:split])
            row = flat(indices[split:], node.shape[split:])
            if (row == self.row).all() and (col == self.col).all():
                return "full"
            raise Declined("the product is used transposed or shifted against itself")
        if node.size == 1:
            return "scalar"
        position = flat(indices, node.shape)
        wanted: dict[Kind, tuple[int, np.ndarray]] = {
            "row": (self.n, self.col), "col": (self.m, self.row),
            "full": (self.m * self.n, self.row * self.n + self.col),
        }
        if len(node.shape) > 1:
            wanted = {k: wanted[k] for k in ("full", "row", "col")}  # type: ignore[index]
        for kind, (size, at) in wanted.items():
            if node.size == size and (position == at).all():
                return kind
        groups = node.size // self.m
        runs = node.size % self.m == 0 and 0 < groups <= self.n and self.n % groups == 0
        if runs and (position == self.row * groups + self.col // (self.n // groups)).all():
            return "full"  # one value for a run of columns, held in each of them
        raise Declined(f"{describe(self.graph, number)} does not lie along the rows or columns of a block")

    def leaf(self, number: int, indices: Indices) -> str | None:
        node = self.graph[number]
        if number in self.products:
            return self.products[number]
        if node.op == "cast" and "float" in node.dtype and self.dot is not None:
            base, at = base_of(self.graph, node.inputs[0], indices)
            if base in self.products:  # the block has a product of whole numbers as floats
                self.place(base, at)
                return self.products[base]
        if node.op != "param":
            return None
        if not compat.is_float(node.dtype) or node.dtype not in FLOATS:
            raise Declined(f"it reads a {node.dtype} input, this recipe takes float32 and bfloat16")
        return self.add_leaf(Leaf(param=node.attr("index"), kind=self.place(number, indices)))

    def reduction(self, number: int, indices: Indices) -> str:
        node = self.graph[number]
        source = self.graph[node.inputs[0]]
        axes = node.attr("axes")
        count = volume(tuple(source.shape[a] for a in axes))
        if count < self.n:
            return self.run_reduction(number, indices, count)
        if count != self.n:
            raise Declined(f"{describe(self.graph, number)} does not reduce whole rows of a block")
        outer, self.col = self.col, sample_points((self.n,), len(self.row), seed=1)[0]
        inner = list(indices) if indices else []
        if inner and len(inner[0]) != len(self.row):
            inner = [np.broadcast_to(i, self.row.shape) for i in inner]
        for axis, index in zip(axes, unflatten(self.col, tuple(source.shape[a] for a in axes)), strict=True):
            inner.insert(axis, index)
        child, at = base_of(self.graph, node.inputs[0], tuple(inner))
        if self.graph[child].op == "const" or self.place(child, at) not in ("full", "row"):
            raise Declined(f"{describe(self.graph, number)} reduces a value that is the same along each row")
        argument = self.read(node.inputs[0], tuple(inner))
        self.col, self.reduces = outer, True
        return self.step(node.op, (argument,))

    def run_reduction(self, number: int, indices: Indices, count: int) -> str:
        """A reduction over runs of ``count`` neighbouring columns: its value is held in every column of the run."""
        node = self.graph[number]
        source, axes = self.graph[node.inputs[0]], node.attr("axes")
        if not 2 <= count <= 128 or self.n % count or len(indices) != len(node.shape):
            raise Declined(f"{describe(self.graph, number)} reduces {count} values, not a row nor a short run")
        outer = self.col
        within = sample_points((count,), len(self.row), seed=2)[0]
        inner = [np.broadcast_to(i, self.row.shape) for i in indices]
        for axis, index in zip(axes, unflatten(within, tuple(source.shape[a] for a in axes)), strict=True):
            inner.insert(axis, index)
        self.col = outer // count * count + within
        argument = self.read(node.inputs[0], tuple(inner))
        self.col = outer
        return self.step(node.op.replace("reduce", "run"), (argument, self.constant(count, "int32")))
