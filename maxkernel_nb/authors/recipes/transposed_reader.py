"""Reading a transposed convolution and what follows it: values over channels and places, reductions over the width."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from maxkernel_nb import compat
from maxkernel_nb.authors.recipes.blocks import FLOATS
from maxkernel_nb.authors.recipes.conv_reader import PRIMITIVE
from maxkernel_nb.authors.recipes.expressions import Leaf, Reader, describe
from maxkernel_nb.authors.recipes.graph import Graph
from maxkernel_nb.authors.recipes.views import Indices, base_of, flat, sample_points, unflatten, volume
from maxkernel_nb.errors import Declined


@dataclass(frozen=True)
class Transposed:
    """``image`` [n, c, *space] and ``window``: parameters. The window is [c, o, *size] where ``swapped``, else
    [o, c, *size], and mirrored in every axis of space where ``flipped``. ``edge``: zeros before the spread image.
    """

    number: int
    image: int
    window: int
    dtype: str
    stride: int
    edge: tuple[int, ...]
    swapped: bool
    flipped: bool
    precision: str
    image_shape: tuple[int, ...]
    size: tuple[int, ...]
    shape: tuple[int, ...]


def transposed_of(graph: Graph) -> Transposed:
    """The graph's only convolution. Raises ``Declined`` if it is not a transposed one that this recipe serves."""
    found = [n for n in graph.live("other") if graph[n].attr("primitive") == PRIMITIVE]
    if len(found) != 1:
        raise Declined(f"it has {len(found)} convolutions, this recipe serves exactly one")
    node = graph[found[0]]
    how = graph.equations[node.attr("serial")].params
    stride = _stride(how, len(node.shape))
    image, window = (graph[i] for i in node.inputs)
    if image.op != "param":
        raise Declined("the convolution's image is computed on the way, this recipe takes inputs")
    if image.dtype not in FLOATS or image.dtype != window.dtype:
        raise Declined(f"it convolves {image.dtype} with {window.dtype}: both float32 or both bfloat16 are served")
    if any(o != stride * i for o, i in zip(node.shape[2:], image.shape[2:], strict=True)):
        raise Declined(f"{list(image.shape[2:])} becomes {list(node.shape[2:])}: this recipe makes space {stride} "
                       "times as long")
    param, swapped, flipped = _window(graph, node.inputs[1])
    return Transposed(
        number=found[0], image=image.attr("index"), window=param, dtype=image.dtype, stride=stride,
        edge=tuple(int(low) for low, _ in how["padding"]), swapped=swapped, flipped=flipped,
        precision=compat.precision_name(how.get("precision")), image_shape=image.shape, size=window.shape[2:],
        shape=node.shape,
    )


def _stride(how: Any, rank: int) -> int:
    order, numbers = tuple(range(rank)), how["dimension_numbers"]
    if (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec) != (order, order, order):
        raise Declined("the convolution's axes are not (batch, channels, space) and (out, in, window)")
    if set(how["window_strides"]) != {1} or set(how["rhs_dilation"]) != {1}:
        raise Declined("the convolution is strided or dilated")
    if how["feature_group_count"] != 1 or how["batch_group_count"] != 1:
        raise Declined("the convolution is grouped or depthwise")
    strides = set(how["lhs_dilation"])
    if strides == {1} or len(strides) != 1:
        raise Declined("the convolution is not transposed, with one stride for all axes")
    if rank not in (4, 5):
        raise Declined(f"a transposed convolution over {rank - 2} axes: 2-D and 3-D are served")
    return int(strides.pop())


def _window(graph: Graph, number: int) -> tuple[int, bool, bool]:
    """The parameter behind the window, whether its first axes are swapped and whether its space is mirrored."""
    shape = graph[number].shape
    points = sample_points(shape)
    base, found = number, points
    while True:
        base, found = base_of(graph, base, found)
        node = graph[base]
        if node.op != "other" or node.attr("primitive") != "rev":
            break
        mirrored = graph.equations[node.attr("serial")].params["dimensions"]
        found = tuple(s - 1 - i if a in mirrored else i for a, (i, s) in enumerate(zip(found, node.shape, strict=True)))
        base = node.inputs[0]
    if node.op == "param" and len(node.shape) == len(shape):
        for swapped, flipped in itertools.product((False, True), repeat=2):
            lead = points[1::-1] if swapped else points[:2]
            rest = [s - 1 - i if flipped else i for i, s in zip(points[2:], shape[2:], strict=True)]
            if all(np.array_equal(f, w) for f, w in zip(found, (*lead, *rest), strict=True)):
                return node.attr("index"), swapped, flipped
    raise Declined(f"the convolution's window ({describe(graph, base)}) is no input, mirrored or with its first axes "
                   "swapped")


@dataclass(frozen=True)
class Spot:
    """Sampled coordinates: image, channel, place along all axes of space but the last, and place along that."""

    image: np.ndarray
    channel: np.ndarray
    row: np.ndarray
    column: np.ndarray


class TransposedReader(Reader):
    """Kinds of leaves: ``channel`` one value a channel, ``place`` one a place of the last axis, ``both``, ``scalar``.
    Reductions over the last axis become runs of ``width`` lanes.
    """

    def __init__(self, graph: Graph, own: Transposed) -> None:
        super().__init__(graph)
        self.own = own
        self.n, self.o, self.z, self.v = (*own.shape[:2], volume(own.shape[2:-1]), own.shape[-1])
        self.spot = Spot(*sample_points((self.n, self.o, self.z, self.v)))

    def read_output(self, number: int) -> str:
        if self.graph[number].shape != self.own.shape:
            raise Declined(f"the result {list(self.graph[number].shape)} has not the convolution's shape")
        return self.read(number, unflatten(self._positions()["full"][1], self.own.shape))

    def _positions(self) -> dict[str, tuple[int, np.ndarray]]:
        at = self.spot
        rows = (at.image * self.o + at.channel) * self.z + at.row
        return {
            "full": (self.n * self.o * self.z * self.v, rows * self.v + at.column),
            "col": (self.n * self.o * self.z, rows), "channel": (self.o, at.channel), "place": (self.v, at.column),
            "both": (self.o * self.v, at.channel * self.v + at.column),
        }

    def place(self, number: int, indices: Indices) -> str:
        """How a value lies over the block, checked at the sampled points."""
        node = self.graph[number]
        if node.size == 1:
            return "scalar"
        position = flat(indices, node.shape)
        for kind, (size, where) in self._positions().items():
            if node.size == size and np.array_equal(np.broadcast_to(position, where.shape), where):
                return kind
        raise Declined(f"{describe(self.graph, number)} does not lie along the channels or the last axis")

    def key(self, number: int, indices: Indices) -> Any:
        return number, self.place(number, indices)

    def leaf(self, number: int, indices: Indices) -> str | None:
        node = self.graph[number]
        if number == self.own.number:
            return "acc"
        if node.op != "param":
            return None
        kind = self.place(number, indices)
        if node.dtype not in FLOATS or kind in ("full", "col"):
            raise Declined(f"it reads an input {node.dtype}{list(node.shape)} after the convolution: one value a "
                           "channel or a place of the last axis is served")
        return self.add_leaf(Leaf(param=node.attr("index"), kind=kind))

    def reduction(self, number: int, indices: Indices) -> str:
        node = self.graph[number]
        source, axes = self.graph[node.inputs[0]], node.attr("axes")
        if len(axes) != 1 or source.shape[axes[0]] != self.v or self.place(number, indices) != "col":
            raise Declined(f"{describe(self.graph, number)} does not reduce the last axis")
        outer, drawn = self.spot, sample_points((self.v,), len(self.spot.column), seed=1)[0]
        inner = [np.broadcast_to(i, drawn.shape) for i in indices]
        inner.insert(axes[0], drawn)
        self.spot = replace(outer, column=drawn)
        if self.place(*base_of(self.graph, node.inputs[0], tuple(inner))) != "full":
            raise Declined(f"{describe(self.graph, number)} does not reduce the convolution's last axis")
        argument = self.read(node.inputs[0], tuple(inner))
        self.spot = outer
        return self.step(node.op.replace("reduce", "run"), (argument, self.constant(self.v, "int32")))
