"""Recipe: a convolution as a matrix product over shifted pixels, everything after it on an image kept in VMEM."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Literal

from maxkernel_nb.authors.base import TuningSpace
from maxkernel_nb.authors.recipes import conv_source
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
from maxkernel_nb.authors.recipes.conv_batch import split_at_batch
from maxkernel_nb.authors.recipes.conv_reader import ImageReader, convolution_of
from maxkernel_nb.authors.recipes.expressions import Expression
from maxkernel_nb.authors.recipes.graph import Graph
from maxkernel_nb.authors.recipes.views import volume
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import KernelTask, Plan
from maxkernel_nb.tpu.chips import chip as chip_named

_SPACE = (512, 1024, 2048, 4096)


class ConvMatch(Match):
    """``out = body(convolution)``: image [n, c, *space] (parameter ``image``), window [o, c, *size]. Sizes are those of
    the timing case. Leaf kinds: ``col`` one value a channel, ``scalar``. ``out_kind``: see ``ImageReader``;
    ``out_rank``: axes of the result.
    """

    image: int
    window: int
    image_shape: tuple[int, ...]
    window_shape: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    pixels: int
    channels: int
    dtype: str  # of image and window
    out_dtype: str
    out_kind: Literal["full", "col", "row", "one"]
    out_rank: int
    precision: str = ""
    body: Expression
    count: int = 0  # pixels of all images
    after: Expression | None = None  # from the body's value (``acc``), where statistics of the batch are needed

    @property
    def kernel_dtype(self) -> str:
        """What the kernel writes: not rounded before statistics of the batch."""
        return "float32" if self.after else self.out_dtype

    @property
    def space(self) -> tuple[int, ...]:
        """The image's own space with its padding."""
        return tuple(s + a + b for s, (a, b) in zip(self.image_shape[2:], self.pads, strict=True))

    @property
    def span(self) -> int:
        """Places of the flattened image that hold a result: the first axis is short, the others keep their length."""
        return (self.space[0] - self.window_shape[2] + 1) * volume(self.space[1:])

    @property
    def halo(self) -> int:
        """How far the window reaches past a place, in whole lanes."""
        reach = 0
        for size, width in zip(self.space, self.window_shape[2:], strict=True):
            reach = reach * size + width - 1
        return pad_up(reach, 128)

    @property
    def depth(self) -> int:
        return self.image_shape[1] * volume(self.window_shape[2:])

    @property
    def passes(self) -> int:
        return conv_source.passes(self.body, self.out_kind)


class ConvRecipe(Recipe):
    name = "conv"
    title = "convolution as a product over shifted pixels, with all that follows on the image"
    match_type = ConvMatch
    limits = (
        "channels before space, stride 1, no dilation, no groups; padding is added before the kernel",
        "one image with all its results has to fit the VMEM",
        "statistics over the batch are taken outside the kernel, of one value a pixel that it writes",
        "beside image and window only inputs with one value a channel",
    )

    def recognise(self, traces: Mapping[str, Any], task: KernelTask) -> ConvMatch:
        _, expression, fields = read_cases(traces, task, _recognise_case)
        body, after = split_at_batch(expression)
        if after and fields["out_kind"] != "full":
            raise Declined("it takes statistics over the batch and returns less than the convolution's shape")
        return ConvMatch(body=body, after=after, **fields)

    def space(self, match: ConvMatch) -> TuningSpace:
        most = pad_up(match.span, 128)
        values = tuple(sorted({min(v, most) for v in _SPACE}))
        fitting = [v for v in values if self._fits(match, {"BLOCK_P": v})]
        if not fitting:
            raise Declined(f"an image of {list(match.space)} with {match.channels} results a pixel does not fit the "
                           f"VMEM of {match.chip}")
        best = sorted(fitting, key=lambda v: (abs(v - 2048), v))
        return TuningSpace(axes={"BLOCK_P": values}, seeds=tuple({"BLOCK_P": v} for v in best))

    def _fits(self, match: ConvMatch, params: dict[str, int]) -> bool:
        return self.vmem_bytes(match, params) <= chip_named(match.chip).vmem_bytes - VMEM_MARGIN

    def check(self, match: ConvMatch, params: dict[str, int]) -> None:
        check_axes(params, TuningSpace(axes={"BLOCK_P": ()}))
        if params["BLOCK_P"] < 128 or params["BLOCK_P"] % 128:
            raise Declined(f"BLOCK_P={params['BLOCK_P']} is not a multiple of 128, the lanes of the TPU's registers")
        check_vmem(self.vmem_bytes(match, params), chip_named(match.chip))

    def vmem_bytes(self, match: ConvMatch, params: dict[str, int]) -> int:
        block, size = params["BLOCK_P"], itemsize(match.dtype)
        places = pad_up(match.span, block)
        channels = pad_up(match.channels, 8)
        image = pad_up(match.image_shape[1], 32 // size) * (places + match.halo) * size
        rows = {"full": channels, "row": 8}.get(match.out_kind, 0)
        result = rows * places * itemsize(match.kernel_dtype) + channels * 512
        kept = channels * places * 4 if match.passes > 1 else 0
        patches = 2 * pad_up(match.depth, 16) * (block + match.halo) * size
        return 2 * (image + result) + kept + patches + 4 * channels * block * 4

    def bound(self, match: ConvMatch) -> Bound:
        n, size = match.image_shape[0], itemsize(match.dtype)
        read = (volume(match.image_shape) + volume(match.window_shape)) * size
        kinds = {"full": match.channels * match.pixels, "col": match.channels, "row": match.pixels, "one": 1}
        written = n * kinds[match.out_kind] * itemsize(match.out_dtype)
        return Bound(flops=2.0 * n * match.pixels * match.channels * match.depth, hbm_bytes=float(read + written))

    def plan(self, match: ConvMatch, params: dict[str, int]) -> Plan:
        chip, bound = chip_named(match.chip), self.bound(match)
        again = match.passes - 1
        return Plan(
            strategy="the window's shifts stacked into one product, the image kept in VMEM for what follows",
            summary=(
                algebra_text(match)
                + f"{match.image_shape[0]} images, each a matrix [{match.image_shape[1]} channels, {match.span} pixels]"
                f". Shifted by every place of the window it becomes [{match.depth}, pixels], which the MXU multiplies "
                f"with the window as [{match.channels}, {match.depth}]. "
                + (f"The result stays in VMEM for {again} more passes: statistics first. " if again else "")
                + ("Statistics of the batch and what needs them follow in plain JAX. " if match.after else "")
                + at_least(bound, chip)
            ),
            attacks=bound.attacks(chip),
            tiling=params,
            grid="one image a step, all independent",
            memory=f"an image and its results; {params['BLOCK_P']} pixels at a time are worked on",
            pipelining="the next image is fetched while this one is worked on",
            recipe=self.name,
            spec=match.to_dict(),
        )

    def render(self, match: ConvMatch, params: dict[str, int]) -> str:
        bound = bound_text(self.bound(match), match.chip)
        return conv_source.render(match, params, bound, self.vmem_limit(match, params))


def _recognise_case(graph: Graph) -> BlockCase:
    if len(graph.outputs) != 1:
        raise Declined(f"it returns {len(graph.outputs)} arrays, this recipe writes one")
    own = convolution_of(graph)
    reader = ImageReader(graph, own)
    shape = graph[graph.outputs[0]].shape
    kind, result = reader.read_output(graph.outputs[0], shape)
    params = sorted((n for n in graph.nodes if n.op == "param"), key=attrgetter("attrs"))
    if any(p.dtype not in ("float32", "bfloat16") for p in params):
        raise Declined("it has inputs other than float32 and bfloat16")
    return BlockCase(reader, result, {"pixels": reader.p, "channels": reader.o, "count": reader.n * reader.p}, {
        "image": own.image, "window": own.window, "pads": own.pads, "dtype": own.dtype, "precision": own.precision,
        "out_dtype": graph.output_dtypes[0], "out_kind": kind, "out_rank": len(shape),
    }, sizes={"image_shape": own.image_shape, "window_shape": own.window_shape})
