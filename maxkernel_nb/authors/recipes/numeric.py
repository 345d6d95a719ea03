"""A graph's value in float64 by numpy: what a rewrite is verified with. Reads no device and traces nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from maxkernel_nb.authors.recipes.canonical import ELEMENTWISE, evaluate_op
from maxkernel_nb.authors.recipes.graph import REDUCTIONS, Graph, Node

_MOST_WORK = 3e8  # multiplications: about a second of numpy
_REDUCE: dict[str, Callable[..., Any]] = {"reduce_sum": np.sum, "reduce_max": np.max, "reduce_min": np.min}
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class NoValue(Exception):
    """The graph has something numpy cannot compute here, or is too large to."""


def agree(one: Graph, other: Graph, tolerance: float = 1e-9) -> bool:
    """True where both graphs give the same numbers on three drawn inputs, or are too large to be evaluated."""
    if _work(one) > _MOST_WORK:
        return True  # the same rules were verified on the smaller cases
    for seed in range(3):
        try:
            left, right = values(one, seed), values(other, seed)
        except NoValue:
            return True
        for a, b in zip(left, right, strict=True):
            scale = float(np.max(np.abs(a), where=np.isfinite(a), initial=0.0))
            if a.shape != b.shape or not np.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
                return False
    return True


def _work(graph: Graph) -> float:
    total = 0.0
    for number in graph.reachable():
        node = graph[number]
        depth = 1
        if node.op == "dot":
            depth = math.prod(graph[node.inputs[0]].shape[a] for a in node.attr("contract")[0])
        total += node.size * depth
    return total


def values(graph: Graph, seed: int, given: Sequence[np.ndarray] = ()) -> list[np.ndarray]:
    """The outputs on drawn inputs, or on those ``given`` for the parameters in order. What no recipe reads (``other``)
    is drawn too, the same in every graph.
    """
    known: dict[int, np.ndarray] = {}
    for number in sorted(graph.reachable()):
        if given and graph[number].op == "param":
            known[number] = given[graph[number].attr("index")]
            continue
        node = graph[number]
        args = [known[i] for i in node.inputs]
        known[number] = np.broadcast_to(_value(graph, node, args, seed), node.shape)
    return [known[n] for n in graph.outputs]


def _value(graph: Graph, node: Node, args: list[np.ndarray], seed: int) -> np.ndarray:
    attrs = dict(node.attrs)
    match node.op:
        case "param" | "other":
            which = attrs["index"] if node.op == "param" else 1000 + attrs.get("serial", 0) + attrs.get("output", 0)
            return _drawn(node, np.random.default_rng((seed, which)))
        case "const":
            return np.asarray(attrs["value"])
        case "array":
            return np.asarray(graph.arrays[attrs["index"]], np.float64)
        case "iota":
            shape = [1] * len(node.shape)
            shape[attrs["dim"]] = -1
            return np.arange(node.shape[attrs["dim"]]).reshape(shape)
        case "reshape":
            return args[0].reshape(node.shape)
        case "transpose":
            return args[0].transpose(attrs["perm"])
        case "broadcast":
            shape = [1] * len(node.shape)
            for dim, size in zip(attrs["dims"], args[0].shape, strict=True):
                shape[dim] = size
            return args[0].reshape(shape)
        case "slice":
            places = zip(attrs["start"], attrs["strides"], node.shape, strict=True)
            return args[0][tuple(slice(a, a + (n - 1) * s + 1, s) for a, s, n in places)]
        case "dot":
            return _dot(args, attrs)
    if node.op in REDUCTIONS:
        return _REDUCE[node.op](args[0], axis=attrs["axes"])
    if node.op in ELEMENTWISE:
        found = evaluate_op(node.op, args, attrs)
        if found is not None:
            return found
    raise NoValue(node.op)


def _drawn(node: Node, rng: np.random.Generator) -> np.ndarray:
    if node.dtype == "bool":
        return rng.random(node.shape) < 0.5
    if node.dtype.startswith(("int", "uint")):
        return rng.integers(0, 3, node.shape)
    return rng.standard_normal(node.shape)


def _dot(args: list[np.ndarray], attrs: dict[str, Any]) -> np.ndarray:
    letters = iter(_LETTERS)
    left = [next(letters) for _ in args[0].shape]
    right = ["" for _ in args[1].shape]
    for pairs in (attrs["contract"], attrs["batch"]):
        for a, b in zip(*pairs, strict=True):
            right[b] = left[a]
    right = [r or next(letters) for r in right]
    batch = [left[a] for a in attrs["batch"][0]]
    shared = {left[a] for a in attrs["contract"][0]}
    rest = [x for x in left if x not in shared and x not in batch] + [x for x in right if x not in left]
    return np.einsum(f"{''.join(left)},{''.join(right)}->{''.join(batch + rest)}", *args, optimize=True)
