"""Recipe: a depthwise convolution as shifted multiply-adds on the VPU, with everything elementwise around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxkernel_nb.authors.base import TuningSpace
from maxkernel_nb.authors.recipes import depthwise_source
from maxkernel_nb.authors.recipes.base import (
    MIB,
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
from maxkernel_nb.authors.recipes.blocks import FLOATS
from maxkernel_nb.authors.recipes.depthwise_reader import ShiftReader
from maxkernel_nb.authors.recipes.expressions import Expression
from maxkernel_nb.authors.recipes.graph import Graph
from maxkernel_nb.authors.recipes.views import volume
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import KernelTask, Plan
from maxkernel_nb.tpu.chips import chip as chip_named


class DepthwiseMatch(Match):
    """``out = body(shifted inputs)`` on [*lead, *space, channels] (``channels_last``) or [*lead, channels, *space].

    ``lead``: the number of leading axes. ``batch``, ``space``, ``channels``: sizes of the timing case. Leaf kinds: see
    ``ShiftReader``. ``image``: the parameter whose shape is the result's.
    """

    image: int
    rank: int
    lead: int
    channels_last: bool
    batch: int
    channels: int
    space: tuple[int, ...]
    dtypes: tuple[str, ...]
    out_dtype: str
    body: Expression

    @property
    def places(self) -> int:
        return volume(self.space)

    def shift(self, kind: str) -> tuple[int, ...]:
        """Of a leaf ``at ...``, along the space axes."""
        first = self.lead if self.channels_last else self.lead + 1
        return tuple(map(int, kind.split()[1:]))[first : first + len(self.space)]

    def shifts(self, param: int) -> list[str]:
        return [leaf.kind for leaf in self.body.leaves if leaf.param == param and leaf.kind.startswith("at")]

    @property
    def halo(self) -> int:
        """Places kept on either side of a block, in whole tiles."""
        shifts = [self.shift(leaf.kind) for leaf in self.body.leaves if leaf.kind.startswith("at")]
        far = 0
        for axis, size in enumerate(self.space):
            far = far * size + max(abs(shift[axis]) for shift in shifts)
        return pad_up(far, 16 if self.channels_last else 128)

    @property
    def images(self) -> list[int]:
        return sorted({leaf.param for leaf in self.body.leaves if leaf.kind.startswith("at")})


class DepthwiseRecipe(Recipe):
    name = "depthwise"
    title = "depthwise convolution as shifted multiply-adds"
    match_type = DepthwiseMatch
    limits = (
        "each channel by itself; stride 1; zeros around the input, and as many results as inputs",
        "what is shifted is an input of the function, float32 or bfloat16",
        "at most 64 taps, which are unrolled; around them elementwise operations only",
    )

    def recognise(self, traces: Mapping[str, Any], task: KernelTask) -> DepthwiseMatch:
        _, expression, fields = read_cases(traces, task, _recognise_case)
        return DepthwiseMatch(body=expression, **fields)

    def space(self, match: DepthwiseMatch) -> TuningSpace:
        most = pad_up(match.places, match.halo)
        places = tuple(sorted({min(pad_up(v, match.halo), most) for v in (512, 1024, 2048, 4096)}))
        unit = 128 if match.channels_last else 16
        channels = tuple(sorted({min(v, pad_up(match.channels, unit)) for v in
                                 ((128, 256, 512) if match.channels_last else (16, 32, 64, 128))}))
        limit = chip_named(match.chip).vmem_bytes - VMEM_MARGIN
        points = [{"BLOCK_T": t, "BLOCK_C": c} for t in places for c in channels]
        fitting = [p for p in points if self.vmem_bytes(match, p) <= limit]
        if not fitting:
            raise Declined(f"not even {places[0]} places of {channels[0]} channels fit the VMEM of {match.chip}")
        # 2 MiB a copy hides a step's start; long blocks repeat little of their neighbours'
        best = sorted(fitting, key=lambda p: (abs(self._block_bytes(match, p) - 2 * MIB), -p["BLOCK_T"]))
        return TuningSpace(axes={"BLOCK_T": places, "BLOCK_C": channels}, seeds=tuple(best[:4]))

    def check(self, match: DepthwiseMatch, params: dict[str, int]) -> None:
        check_axes(params, TuningSpace(axes={"BLOCK_T": (), "BLOCK_C": ()}))
        unit = 128 if match.channels_last else 16
        for name, whole in (("BLOCK_T", match.halo), ("BLOCK_C", unit)):
            if params[name] < whole or params[name] % whole:
                raise Declined(f"{name}={params[name]} is not a multiple of {whole}")
        check_vmem(self.vmem_bytes(match, params), chip_named(match.chip))

    def _block_bytes(self, match: DepthwiseMatch, params: dict[str, int]) -> int:
        return params["BLOCK_T"] * params["BLOCK_C"] * itemsize(match.out_dtype)

    def vmem_bytes(self, match: DepthwiseMatch, params: dict[str, int]) -> int:
        area = params["BLOCK_T"] * params["BLOCK_C"]
        near = (params["BLOCK_T"] + 2 * match.halo) * params["BLOCK_C"]
        copies = sum(near * itemsize(match.dtypes[i]) for i in match.images) + area * itemsize(match.out_dtype)
        return 2 * copies + 4 * near * (2 + min(len(match.body.leaves), 6))

    def bound(self, match: DepthwiseMatch) -> Bound:
        area = match.batch * match.places * match.channels
        moved = sum(itemsize(match.dtypes[i]) for i in match.images) + itemsize(match.out_dtype)
        return Bound(flops=0.0, hbm_bytes=float(area * moved))

    def plan(self, match: DepthwiseMatch, params: dict[str, int]) -> Plan:
        chip, bound = chip_named(match.chip), self.bound(match)
        taps = len([leaf for leaf in match.body.leaves if leaf.kind.startswith("at")])
        return Plan(
            strategy="shifted copies of a block in registers, multiplied and added channel by channel",
            summary=(
                algebra_text(match)
                + f"{match.batch} x {match.places} places of {match.channels} channels. A block is read once with "
                f"{match.halo} places of its neighbours; the {taps} shifted inputs are rotations of it. "
                + at_least(bound, chip)
            ),
            attacks=bound.attacks(chip),
            tiling=params,
            grid="batches, blocks of places, blocks of channels: all independent",
            memory=f"{params['BLOCK_T']} places of {params['BLOCK_C']} channels, and their neighbours, in float32",
            pipelining="Pallas double-buffers: the next block is fetched while this one is worked on",
            recipe=self.name,
            spec=match.to_dict(),
        )

    def render(self, match: DepthwiseMatch, params: dict[str, int]) -> str:
        bound = bound_text(self.bound(match), match.chip)
        return depthwise_source.render(match, params, bound, self.vmem_limit(match, params))


def _recognise_case(graph: Graph) -> BlockCase:
    if len(graph.outputs) != 1:
        raise Declined(f"it returns {len(graph.outputs)} arrays, this recipe writes one")
    if graph.output_dtypes[0] not in FLOATS:
        raise Declined(f"it returns {graph.output_dtypes[0]}, this recipe writes float32 and bfloat16")
    if not any(graph[n].attr("primitive") in ("pad", "conv_general_dilated") for n in graph.live("other")):
        raise Declined("it pads nothing and has no convolution: no input is shifted")
    shape = graph[graph.outputs[0]].shape
    if len(shape) < 2:
        raise Declined(f"the result {list(shape)} has no places and channels")
    try:
        return _read(graph, shape, len(shape) - 1)
    except Declined as reason:
        if len(shape) < 3:
            raise
        try:
            return _read(graph, shape, 1)
        except Declined:
            raise reason from None


def _read(graph: Graph, shape: tuple[int, ...], channel: int) -> BlockCase:
    reader = ShiftReader(graph, shape, channel)
    result = reader.read(graph.outputs[0], reader.points)
    shifts = [tuple(map(int, leaf.kind.split()[1:])) for leaf in reader.leaves if leaf.kind.startswith("at")]
    moved = [axis for axis in range(len(shape)) if any(shift[axis] for shift in shifts)]
    last = channel == len(shape) - 1
    if not moved:
        raise Declined("no input is shifted")
    if not last and min(moved) < channel:
        raise Declined("it shifts along the batch")
    lead = min(moved) if last else channel
    space = shape[lead:-1] if last else shape[channel + 1 :]
    for sizes in zip(*shifts, strict=True):
        if max(map(abs, sizes)) > 256:
            raise Declined(f"it shifts by {max(map(abs, sizes))} places: at most 256 are kept beside a block")
    params = sorted((n for n in graph.nodes if n.op == "param"), key=lambda p: p.attr("index"))
    image = next(leaf.param for leaf in reader.leaves if leaf.kind.startswith("at"))
    return BlockCase(reader, result, {"channels": shape[channel]}, {
        "image": image, "rank": len(shape), "lead": lead, "channels_last": last,
        "dtypes": tuple(p.dtype for p in params), "out_dtype": graph.output_dtypes[0],
    }, sizes={"batch": volume(shape[:lead]), "space": space})
