"""Reading a graph point by point: follow index arrays through layout ops, evaluate what needs no input.

A recogniser asks "where does element ``i`` of this value come from?" for a few hundred sampled ``i`` at once. That
answers questions about layout (transposed, repeated, split into heads, sliced ...) without a rule for each spelling.
"""

from __future__ import annotations

import math

import numpy as np

from maxkernel_nb.authors.recipes.canonical import ELEMENTWISE, evaluate_op
from maxkernel_nb.authors.recipes.graph import LAYOUT_OPS, Graph
from maxkernel_nb.errors import Declined

Indices = tuple[np.ndarray, ...]  # one int64 array per axis, all of one length


def sample_points(sizes: tuple[int, ...], count: int = 512, seed: int = 0) -> Indices:
    """``count`` random points of a box, the corners of every axis well represented."""
    rng = np.random.default_rng(seed)
    points = [rng.integers(0, size, count) for size in sizes]
    for axis, size in enumerate(sizes):
        edges = rng.random(count)
        points[axis] = np.where(edges < 0.1, 0, np.where(edges > 0.9, size - 1, points[axis]))
    return tuple(p.astype(np.int64) for p in points)


def flat(indices: Indices, shape: tuple[int, ...]) -> np.ndarray:
    """Row-major position of each point."""
    position = np.zeros(indices[0].shape if indices else (1,), np.int64)
    for index, size in zip(indices, shape, strict=True):
        position = position * size + index
    return position


def unflatten(position: np.ndarray, shape: tuple[int, ...]) -> Indices:
    axes = []
    for size in reversed(shape):
        axes.append(position % size)
        position = position // size
    return tuple(reversed(axes))


def step_back(graph: Graph, number: int, indices: Indices) -> tuple[int, Indices]:
    """One layout op undone: its input, and where in it the points come from."""
    node = graph[number]
    source = graph[node.inputs[0]]
    if node.op == "reshape":
        if not node.shape:
            return node.inputs[0], tuple(np.zeros(1, np.int64) for _ in source.shape)
        return node.inputs[0], unflatten(flat(indices, node.shape), source.shape)
    if node.op == "transpose":
        back: list[np.ndarray] = [np.zeros(0)] * len(indices)
        for position, axis in enumerate(node.attr("perm")):
            back[axis] = indices[position]
        return node.inputs[0], tuple(back)
    if node.op == "broadcast":
        picked = (indices[dim] for dim in node.attr("dims"))
        return node.inputs[0], tuple(i * 0 if s == 1 else i for i, s in zip(picked, source.shape, strict=True))
    starts, strides = node.attr("start"), node.attr("strides")
    return node.inputs[0], tuple(s + i * t for i, s, t in zip(indices, starts, strides, strict=True))


def base_of(graph: Graph, number: int, indices: Indices) -> tuple[int, Indices]:
    """Through all layout ops, down to the first node that computes something (or a parameter)."""
    while graph[number].op in LAYOUT_OPS:
        number, indices = step_back(graph, number, indices)
    return number, indices


def is_positional(graph: Graph, number: int) -> bool:
    """True if the value depends on positions and constants only, not on any input."""
    allowed = ELEMENTWISE | LAYOUT_OPS | {"iota", "const", "array"}
    return all(graph[n].op in allowed for n in graph.ancestors(number))


def evaluate(graph: Graph, number: int, indices: Indices) -> np.ndarray:
    """Values of a positional node at the points. Raises ``Declined`` for an op numpy has no word for here."""
    number, indices = base_of(graph, number, indices)
    node = graph[number]
    length = indices[0].shape if indices else (1,)
    if node.op == "const":
        return np.full(length, node.attr("value"))
    if node.op == "array":
        return np.asarray(graph.arrays[node.attr("index")])[indices]
    if node.op == "iota":
        return indices[node.attr("dim")]
    args = []
    for source in node.inputs:
        # scalars may meet arrays without a broadcast op between them
        at = indices if graph[source].shape == node.shape else tuple(i * 0 for i in indices[: len(graph[source].shape)])
        args.append(evaluate(graph, source, at))
    value = evaluate_op(node.op, args, dict(node.attrs))
    if value is None:
        raise Declined(f"the mask uses {node.op}, which is not evaluated here")
    return value


def volume(shape: tuple[int, ...]) -> int:
    return math.prod(shape)
