"""Reading what follows a convolution: values over the channels and pixels of one image, reductions over either."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from maxkernel_nb import compat
from maxkernel_nb.authors.recipes.blocks import FLOATS
from maxkernel_nb.authors.recipes.expressions import Leaf, Reader, describe
from maxkernel_nb.authors.recipes.graph import Graph
from maxkernel_nb.authors.recipes.views import Indices, flat, sample_points, unflatten, volume
from maxkernel_nb.errors import Declined

PRIMITIVE = "conv_general_dilated"


@dataclass(frozen=True)
class Convolution:
    """``image`` [n, c, *space] and ``window`` [o, c, *size]: parameters. ``pads``: zeros around each space axis."""

    number: int
    image: int
    window: int
    dtype: str
    pads: tuple[tuple[int, int], ...]
    precision: str
    image_shape: tuple[int, ...]
    window_shape: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def axes(self) -> int:
        return len(self.pads)


def convolution_of(graph: Graph) -> Convolution:
    """The graph's only convolution. Raises ``Declined`` if it is strided, dilated, grouped or of computed values."""
    found = [n for n in graph.live("other") if graph[n].attr("primitive") == PRIMITIVE]
    if len(found) != 1:
        raise Declined(f"it has {len(found)} convolutions, this recipe serves exactly one")
    if graph.live("dot"):
        raise Declined("it has a matrix product beside the convolution")
    node = graph[found[0]]
    how = graph.equations[node.attr("serial")].params
    rank = len(node.shape)
    order, numbers = tuple(range(rank)), how["dimension_numbers"]
    if (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec) != (order, order, order):
        raise Declined("the convolution's axes are not (batch, channels, space) and (out, in, window)")
    if set(how["window_strides"]) != {1} or set(how["rhs_dilation"]) != {1} or set(how["lhs_dilation"]) != {1}:
        raise Declined("the convolution is strided, dilated or transposed")
    if how["feature_group_count"] != 1 or how["batch_group_count"] != 1:
        raise Declined("the convolution is grouped or depthwise")
    if any(side < 0 for pair in how["padding"] for side in pair):
        raise Declined("the convolution crops its input")
    image, window = (graph[i] for i in node.inputs)
    for what, operand in (("image", image), ("window", window)):
        if operand.op != "param":
            raise Declined(f"the convolution's {what} is computed on the way, this recipe takes inputs")
    if image.dtype not in FLOATS or image.dtype != window.dtype:
        raise Declined(f"it convolves {image.dtype} with {window.dtype}: both float32 or both bfloat16 are served")
    return Convolution(
        number=found[0], image=image.attr("index"), window=window.attr("index"), dtype=image.dtype,
        pads=tuple((int(a), int(b)) for a, b in how["padding"]),
        precision=compat.precision_name(how.get("precision")),
        image_shape=image.shape, window_shape=window.shape, shape=node.shape,
    )


@dataclass
class Place:
    """Sampled coordinates: image, channel and pixel of each point."""

    image: np.ndarray
    channel: np.ndarray
    pixel: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))


class ImageReader(Reader):
    """Kinds of values in a block: ``full`` [channels, pixels], ``col`` one a channel, ``row`` one a pixel, ``one`` one
    an image, ``scalar``. Reductions become steps named ``pixels_``, ``group_``, ``image_``, ``down_`` (over channels)
    and ``batch_`` (over the pixels of all images).
    """

    def __init__(self, graph: Graph, convolution: Convolution) -> None:
        super().__init__(graph)
        self.convolution = convolution
        self.n, self.o = convolution.shape[:2]
        self.p = volume(convolution.shape[2:])
        self.at_points = Place(*sample_points((self.n, self.o, self.p)))

    def read_output(self, number: int, shape: tuple[int, ...]) -> tuple[str, str]:
        space, at = self.convolution.shape[2:], self.at_points
        wanted = {
            "full": [(self.n, self.o, *space)], "row": [(self.n, 1, *space), (self.n, *space)],
            "col": [(self.n, self.o, *(1,) * more) for more in (0, len(space))],
            "one": [(self.n, *(1,) * more) for more in (0, len(space) + 1)],
        }
        position = {
            "full": (at.image * self.o + at.channel) * self.p + at.pixel, "row": at.image * self.p + at.pixel,
            "col": at.image * self.o + at.channel, "one": at.image,
        }
        kind = next((k for k, shapes in wanted.items() if shape in shapes), None)
        if kind is None:
            raise Declined(f"the result {list(shape)} is neither the convolution's nor one value a channel or pixel")
        return kind, self.read(number, unflatten(position[kind], shape))

    def key(self, number: int, indices: Indices) -> Any:
        self.place(number, indices)
        return number

    def place(self, number: int, indices: Indices) -> str:
        """How a value lies over the images, checked at the sampled points."""
        node, at = self.graph[number], self.at_points
        if node.size == 1:
            return "scalar"
        position = flat(indices, node.shape)
        channel = at.image * self.o + at.channel
        for kind, size, where in (
            ("full", self.n * self.o * self.p, channel * self.p + at.pixel), ("col", self.o, at.channel),
            ("col", self.n * self.o, channel), ("row", self.n * self.p, at.image * self.p + at.pixel),
            ("one", self.n, at.image),
        ):
            if node.size == size and np.array_equal(np.broadcast_to(position, where.shape), where):
                return kind
        groups = node.size // self.n
        if node.size % self.n == 0 and 0 < groups < self.o and self.o % groups == 0:
            where = at.image * groups + at.channel // (self.o // groups)
            if np.array_equal(np.broadcast_to(position, where.shape), where):
                return "col"  # one value a group of channels, held in each of them
        raise Declined(f"{describe(self.graph, number)} does not lie along the channels or pixels of an image")

    def leaf(self, number: int, indices: Indices) -> str | None:
        node = self.graph[number]
        if number == self.convolution.number:
            return "acc"
        if node.op != "param":
            return None
        if node.dtype not in FLOATS or node.size not in (1, self.o):
            what = f"{node.dtype}{list(node.shape)}"
            raise Declined(f"it reads an input {what} after the convolution: one value a channel is served")
        return self.add_leaf(Leaf(param=node.attr("index"), kind=self.place(number, indices)))

    def reduction(self, number: int, indices: Indices) -> str:
        node = self.graph[number]
        source, axes, outer = self.graph[node.inputs[0]], node.attr("axes"), self.at_points
        count = volume(tuple(source.shape[a] for a in axes))
        drawn = sample_points((count,), len(outer.pixel), seed=1)[0]
        word, inner, extra = self._reduced(number, self.place(number, indices), count, drawn)
        rest = iter([np.broadcast_to(i, outer.pixel.shape) for i in indices] or [0 * drawn] * len(source.shape))
        placed = dict(zip(axes, unflatten(drawn, tuple(source.shape[a] for a in axes)), strict=True))
        at = tuple(placed[a] if a in placed else next(rest) for a in range(len(source.shape)))
        self.at_points = inner
        argument = self.read(node.inputs[0], at)
        self.at_points = outer
        return self.step(f"{word}_{node.op[7:]}", (argument, *extra))

    def _reduced(self, number: int, kind: str, count: int, drawn: np.ndarray) -> tuple[str, Place, tuple[str, ...]]:
        """What is reduced, by the result's kind and how many values go into one."""
        node, at = self.graph[number], self.at_points
        whole = kind == "one" or node.size == 1
        # the first axis is named even where a case has one image
        if kind == "col" and node.size == self.o and 0 in node.attr("axes") and count == self.n * self.p:
            return "batch", Place(drawn // self.p, at.channel, drawn % self.p), ()
        if count == self.p and (whole or node.size == self.n * self.o):
            return "pixels", Place(at.image, at.channel, drawn), ()
        if kind == "row" and count == self.o:
            return "down", Place(at.image, drawn, at.pixel), ()
        if whole and count == self.o * self.p:
            return "image", Place(at.image, drawn // self.p, drawn % self.p), ()
        if whole and count == self.o:
            return "down", Place(at.image, drawn, at.pixel), ()
        size = self.o // max(node.size // self.n, 1)
        if kind == "col" and count == size * self.p and node.op == "reduce_sum":
            channel = at.channel // size * size + drawn // self.p
            return "group", Place(at.image, channel, drawn % self.p), (self.constant(size, "int32"),)
        raise Declined(f"{describe(self.graph, number)} reduces neither channels nor pixels of an image")
