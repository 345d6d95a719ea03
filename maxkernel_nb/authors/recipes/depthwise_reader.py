"""Reading a depthwise convolution: sums of shifted inputs, channel by channel, however they are spelled."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from maxkernel_nb.authors.recipes.blocks import FLOATS
from maxkernel_nb.authors.recipes.expressions import Leaf, Reader, describe
from maxkernel_nb.authors.recipes.graph import LAYOUT_OPS, Graph, Node
from maxkernel_nb.authors.recipes.views import Indices, flat, sample_points, step_back, volume
from maxkernel_nb.errors import Declined

MOST_TAPS = 64


class ShiftReader(Reader):
    """Reads on all axes of a result of ``shape``. Leaf kinds: ``at D0 D1 ...`` the input that many places further
    along each axis, zero outside; ``tap kc I`` and ``tap ck I`` the I-th value of each channel of a window stored taps
    first or channels first; ``row`` one value a channel; ``scalar``.
    """

    def __init__(self, graph: Graph, shape: tuple[int, ...], channel: int) -> None:
        super().__init__(graph)
        self.shape, self.channel = shape, channel
        self.points = sample_points(shape)

    def read(self, number: int, indices: Indices) -> str:
        return super().read(*self.base(number, indices))

    def base(self, number: int, indices: Indices) -> tuple[int, Indices]:
        """Through layout ops; an index outside an input stays one where axes of length one come and go."""
        while self.graph[number].op in LAYOUT_OPS:
            node, source = self.graph[number], self.graph[self.graph[number].inputs[0]]
            if node.op == "reshape" and _long(node.shape) == _long(source.shape) and node.shape:
                kept = iter([i for i, s in zip(indices, node.shape, strict=True) if s != 1])
                none = np.zeros_like(indices[0])
                number, indices = node.inputs[0], tuple(none if s == 1 else next(kept) for s in source.shape)
            else:
                number, indices = step_back(self.graph, number, indices)
        return number, indices

    def leaf(self, number: int, indices: Indices) -> str | None:
        node = self.graph[number]
        if node.op == "param":
            return self.add_leaf(Leaf(param=node.attr("index"), kind=self.kind(number, node, indices)))
        if node.op != "other":
            return None
        if node.attr("primitive") == "pad":
            return self.padded(node, indices)
        return self.convolved(number, node, indices) if node.attr("primitive") == "conv_general_dilated" else None

    def kind(self, number: int, node: Node, indices: Indices) -> str:
        if node.dtype not in FLOATS:
            raise Declined(f"it reads a {node.dtype} input, this recipe takes float32 and bfloat16")
        if node.size == 1:
            return "scalar"
        if node.shape == self.shape:
            further = [np.unique(i - p) for i, p in zip(indices, self.points, strict=True)]
            if all(len(f) == 1 for f in further) and not further[self.channel][0]:
                return "at " + " ".join(str(f[0]) for f in further)
        position, channel = flat(indices, node.shape), self.points[self.channel]
        channels, taps = self.shape[self.channel], node.size // self.shape[self.channel]
        if node.size == channels and np.array_equal(np.broadcast_to(position, channel.shape), channel):
            return "row"
        if taps * channels == node.size and 1 < taps <= MOST_TAPS:
            for order, rest in (("kc", (position - channel) / channels), ("ck", position - channel * taps)):
                if len(set(rest)) == 1 and rest[0] in range(taps):
                    return f"tap {order} {int(rest[0])}"
        raise Declined(f"{describe(self.graph, number)} is neither the result's shape, shifted, nor the same for all "
                       "places of a channel")

    def padded(self, node: Node, indices: Indices) -> str:
        source, value = node.inputs
        config = self.equation(node)["padding_config"]
        if any(low < 0 or high < 0 or inner for low, high, inner in config):
            raise Declined("it pads between values or crops")
        if self.graph[value].op != "const" or self.graph[value].attr("value") != 0:
            raise Declined("it pads with something other than zeros")
        return self.outside(source, tuple(i - int(low) for i, (low, _, _) in zip(indices, config, strict=True)))

    def outside(self, number: int, indices: Indices) -> str:
        """A value that is zero where the indices lie outside it."""
        base, _ = self.base(number, indices)
        node = self.graph[base]
        if node.op != "param" and not (node.op == "other" and node.attr("primitive") == "pad"):
            raise Declined(f"what it shifts is computed on the way ({describe(self.graph, base)}), this recipe takes "
                           "inputs")
        return self.read(number, indices)

    def convolved(self, number: int, node: Node, indices: Indices) -> str:
        """A depthwise convolution as the sum over its taps."""
        how, (image, window) = self.equation(node), node.inputs
        numbers = how["dimension_numbers"]
        batch, feature, *space = numbers.out_spec
        channels = node.shape[feature]
        if how["feature_group_count"] != channels or self.graph[image].shape[numbers.lhs_spec[1]] != channels:
            raise Declined("the convolution mixes channels")
        if set(how["window_strides"]) != {1} or set(how["lhs_dilation"]) != {1}:
            raise Declined("the depthwise convolution is strided or transposed")
        size = [self.graph[window].shape[a] for a in numbers.rhs_spec[2:]]
        if volume(tuple(size)) > MOST_TAPS:
            raise Declined(f"a depthwise window of {volume(tuple(size))} taps: at most {MOST_TAPS} are unrolled")
        total, none = "", np.zeros_like(indices[0])
        for tap in itertools.product(*map(range, size)):
            places = [indices[a] + t * d - int(low) for a, t, d, (low, _)
                      in zip(space, tap, how["rhs_dilation"], how["padding"], strict=True)]
            x = self.outside(image, _placed(numbers.lhs_spec, [indices[batch], indices[feature], *places]))
            w = self.read(window, _placed(numbers.rhs_spec, [indices[feature], none, *(none + t for t in tap)]))
            product = self.step("mul", (x, w))
            total = self.step("add", (total, product)) if total else product
        return total

    def equation(self, node: Node) -> dict[str, Any]:
        return dict(self.graph.equations[node.attr("serial")].params)


def _placed(axes: tuple[int, ...], values: list[np.ndarray]) -> Indices:
    """``values`` in the order of the axes they belong to."""
    return tuple(values[axes.index(axis)] for axis in range(len(axes)))


def _long(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(s for s in shape if s != 1)
