"""Recipe: a transposed convolution phase by phase, as products with a window spread along the last axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxkernel_nb.authors.base import TuningSpace
from maxkernel_nb.authors.recipes import transposed_source
from maxkernel_nb.authors.recipes.base import (
    VMEM_MARGIN,
    Bound,
    Match,
    Recipe,
    algebra_text,
    at_least,
    bound_text,
    check_axes,
    check_vmem,
    itemsize,
    pad_up,
)
from maxkernel_nb.authors.recipes.block_case import BlockCase, read_cases
from maxkernel_nb.authors.recipes.expressions import Expression
from maxkernel_nb.authors.recipes.graph import Graph
from maxkernel_nb.authors.recipes.transposed_reader import TransposedReader, transposed_of
from maxkernel_nb.authors.recipes.views import volume
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import KernelTask, Plan
from maxkernel_nb.tpu.chips import chip as chip_named


class TransposedMatch(Match):
    """``out = body(convolution)``: image [n, c, *space] (parameter ``image``), result [n, channels, *stride * space].

    ``edge``, ``swapped``, ``flipped``: see ``Transposed``. Sizes are those of the timing case; ``width``: of the
    result's last axis. Leaf kinds: see ``TransposedReader``.
    """

    image: int
    window: int
    image_shape: tuple[int, ...]
    size: tuple[int, ...]
    stride: int
    edge: tuple[int, ...]
    swapped: bool
    flipped: bool
    channels: int
    width: int
    dtype: str  # of image and window
    out_dtype: str
    precision: str = ""
    body: Expression

    @property
    def space(self) -> tuple[int, int, int]:
        """Depth (1 for images), height and width of the image."""
        deep = self.image_shape[2:]
        return deep if len(deep) == 3 else (1, *deep)  # type: ignore[return-value]

    @property
    def taps(self) -> tuple[int, int]:
        """Taps of the window that meet a result, along depth and height."""
        each = [-(-k // self.stride) for k in self.size[:-1]]
        return (each[0], each[1]) if len(each) == 2 else (1, each[0])

    @property
    def phases(self) -> int:
        return self.stride ** (len(self.size) - 1)

    @property
    def high(self) -> int:
        """Rows of the image's height, in whole tiles of the registers."""
        return pad_up(self.space[1], 16)


class TransposedRecipe(Recipe):
    name = "transposed"
    title = "transposed convolution phase by phase, its window spread along the last axis"
    match_type = TransposedMatch
    limits = (
        "channels before space, 2-D or 3-D, one stride, which makes space so many times as long",
        "the window, spread to a matrix from the image's last axis to the result's, has to fit the VMEM: short rows",
        "after it elementwise operations and reductions over the last axis; inputs of one value a channel or place",
    )

    def recognise(self, traces: Mapping[str, Any], task: KernelTask) -> TransposedMatch:
        _, expression, fields = read_cases(traces, task, _recognise_case)
        return TransposedMatch(body=expression, **fields)

    def space(self, match: TransposedMatch) -> TuningSpace:
        if (depth := match.image_shape[1] * match.space[2]) % 128:
            raise Declined(f"rows of {match.image_shape[1]} channels x {match.space[2]} places are {depth} long, no "
                           "multiple of the 128 lanes")
        channels = [c for c in (2, 4, 8, 16) if c < match.channels and c * match.width % 128 == 0]
        if match.channels <= 16 or not channels:
            channels.append(match.channels)
        deep = match.space[0]
        depths = [d for d in range(1, deep + 1) if deep % d == 0 and d * match.high <= 1024] or [1]
        points = [{"BLOCK_O": o, "BLOCK_D": d} for o in channels for d in depths]
        limit = chip_named(match.chip).vmem_bytes - VMEM_MARGIN
        fitting = [p for p in points if self.vmem_bytes(match, p) <= limit]
        if not fitting:
            raise Declined(f"the window spread over rows of {match.width} does not fit the VMEM of {match.chip}")
        best = sorted(fitting, key=lambda p: (abs(p["BLOCK_O"] * match.width - 512),
                                              abs(p["BLOCK_D"] * match.high - 512)))
        return TuningSpace(axes={"BLOCK_O": tuple(channels), "BLOCK_D": tuple(depths)}, seeds=tuple(best[:4]))

    def check(self, match: TransposedMatch, params: dict[str, int]) -> None:
        check_axes(params, TuningSpace(axes={"BLOCK_O": (), "BLOCK_D": ()}))
        lanes = params["BLOCK_O"] * match.width
        if params["BLOCK_O"] < 1 or (lanes % 128 and params["BLOCK_O"] < match.channels):
            raise Declined(f"BLOCK_O={params['BLOCK_O']} makes rows of {lanes}, no multiple of the 128 lanes")
        if params["BLOCK_D"] < 1:
            raise Declined(f"BLOCK_D={params['BLOCK_D']} is no number of slices")
        check_vmem(self.vmem_bytes(match, params), chip_named(match.chip))

    def vmem_bytes(self, match: TransposedMatch, params: dict[str, int]) -> int:
        deep, _, wide = match.space
        size, depth = itemsize(match.dtype), match.image_shape[1] * wide
        lanes, taps = pad_up(params["BLOCK_O"] * match.width, 128), volume(match.taps)
        near = (deep + match.taps[0] + 1) * match.high * (match.taps[1] + 1) * depth * size
        window = match.phases * taps * match.size[-1] * pad_up(match.image_shape[1], 16) * lanes * size
        result = params["BLOCK_O"] * params["BLOCK_D"] * match.phases * match.high * pad_up(match.width, 128)
        spread = match.phases * taps * depth * lanes * size
        rows = params["BLOCK_D"] * match.high
        product = (match.stride + 1) * rows * lanes * 4 + match.stride * match.high * lanes * 4
        return 2 * (near + window + result * itemsize(match.out_dtype)) + spread + 2 * product

    def bound(self, match: TransposedMatch) -> Bound:
        n, c = match.image_shape[:2]
        met = volume(tuple(
            sum(0 <= i * match.stride + edge - k < match.stride * length for i in range(length) for k in range(window))
            for length, window, edge in zip(match.image_shape[2:], match.size, match.edge, strict=True)
        ))
        size = itemsize(match.dtype)
        out = n * match.channels * volume(match.image_shape[2:]) * match.stride ** len(match.size)
        read = (volume(match.image_shape) + c * match.channels * volume(match.size)) * size
        return Bound(flops=2.0 * n * c * match.channels * met, hbm_bytes=float(read + out * itemsize(match.out_dtype)))

    def bound_with(self, match: TransposedMatch, params: dict[str, int]) -> Bound:
        """With the zeros of the spread window, which the MXU multiplies too."""
        least = self.bound(match)
        n, c, deep, wide = match.image_shape[0], match.image_shape[1], match.space[0], match.space[2]
        rows = n * deep * match.high * match.phases
        done = 2.0 * rows * volume(match.taps) * c * wide * match.channels * match.width
        return Bound(flops=max(least.flops, done), hbm_bytes=least.hbm_bytes)

    def plan(self, match: TransposedMatch, params: dict[str, int]) -> Plan:
        chip, bound = chip_named(match.chip), self.bound(match)
        return Plan(
            strategy="each phase of the result as plain products, rows of the image times the spread window",
            summary=(
                algebra_text(match)
                + f"{match.image_shape[0]} images, {match.phases} phases of the leading axes, each the sum of "
                f"{volume(match.taps)} products: rows of {match.image_shape[1]} channels x {match.space[2]} places "
                f"with a matrix that holds the window along the last axis and gives {params['BLOCK_O']} channels x "
                f"{match.width} places. Rows come out whole, so what follows needs no other layout. "
                + at_least(bound, chip)
            ),
            attacks=bound.attacks(chip),
            tiling=params,
            grid="blocks of channels, for each all images, for each slices of depth",
            memory=f"an image with its neighbours, the spread window of {params['BLOCK_O']} channels, a phase's result",
            pipelining="the next image is fetched while this one is worked on",
            recipe=self.name,
            spec=match.to_dict(),
        )

    def render(self, match: TransposedMatch, params: dict[str, int]) -> str:
        bound = bound_text(self.bound(match), match.chip)
        return transposed_source.render(match, params, bound, self.vmem_limit(match, params))


def _recognise_case(graph: Graph) -> BlockCase:
    if len(graph.outputs) != 1:
        raise Declined(f"it returns {len(graph.outputs)} arrays, this recipe writes one")
    own = transposed_of(graph)
    reader = TransposedReader(graph, own)
    result = reader.read_output(graph.outputs[0])
    return BlockCase(reader, result, {"width": reader.v, "channels": reader.o}, {
        "image": own.image, "window": own.window, "stride": own.stride, "edge": own.edge, "swapped": own.swapped,
        "flipped": own.flipped, "size": own.size, "dtype": own.dtype, "precision": own.precision,
        "out_dtype": graph.output_dtypes[0],
    }, sizes={"image_shape": own.image_shape})
