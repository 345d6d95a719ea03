"""Recipe: attention without a softmax (retention, Mamba-2's SSD, linear attention) in chunks with a running state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from maxkernel_nb.authors.base import TuningSpace
from maxkernel_nb.authors.recipes import recurrence_source
from maxkernel_nb.authors.recipes.attention_match import Layout
from maxkernel_nb.authors.recipes.base import (
    VMEM_MARGIN,
    Bound,
    Match,
    Recipe,
    algebra_of,
    algebra_text,
    bound_text,
    check_axes,
    check_vmem,
    in_every_case,
    itemsize,
    pad_up,
)
from maxkernel_nb.authors.recipes.expressions import unify
from maxkernel_nb.authors.recipes.recurrence_reader import FoundDecay, recognise_case
from maxkernel_nb.authors.recipes.signature import signature_of
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import KernelTask, Plan
from maxkernel_nb.tpu.chips import chip as chip_named

_FLOATS = ("float32", "bfloat16")


class RecurrenceMatch(Match):
    """``(scale * q k^T * decay / norm) v`` over earlier positions.

    The decay from key j to query i is ``exp(x[i] - x[j])``: ``x`` is the parameter ``travelled`` ([batch, heads,
    length], -1 without), or each head's ``slopes`` times the position. ``norm``: what the weights are divided by.
    """

    q: int
    k: int
    v: int
    travelled: int = -1
    slopes: tuple[float, ...] = ()
    layouts: tuple[Layout, Layout, Layout, Layout]
    batch: int
    heads: int
    length: int
    head_dim: int
    v_dim: int
    scale: str = ""
    norm: Literal["", "sum", "abs_of_sum", "sum_of_abs"] = ""
    floor: float | None = None
    eps: float | None = None
    dtypes: tuple[str, ...]
    out_dtype: str

    @property
    def linear(self) -> bool:
        """True where weights and divisor are linear in the past, so that a state of fixed size holds it."""
        return self.norm != "sum_of_abs"

    @property
    def turned(self) -> bool:
        """True where vectors are shorter than a register is wide: XLA stores such arrays with positions along lanes."""
        return self.linear and max(self.head_dim, self.v_dim) < 128 and set(self.layouts) == {"bhsd"}


class RecurrenceRecipe(Recipe):
    name = "recurrence"
    title = "attention without a softmax, in chunks"
    match_type = RecurrenceMatch
    limits = (
        "queries, keys and values are inputs as they are, as many heads of each",
        "the decay is one for each head and step, given by the head or by an input's running sum",
        "weights are divided by nothing, by their sum or by the sum of their sizes",
    )

    def recognise(self, traces: Mapping[str, Any], task: KernelTask) -> RecurrenceMatch:
        found = in_every_case(traces, task, recognise_case, _shape_free)
        first = found[0]
        batch, heads, length, head_dim, v_dim = first.sizes
        dtypes = [first.dtypes[i] for i in first.names[:3]]
        if any(d not in _FLOATS for d in dtypes) or len(set(dtypes)) > 1:
            raise Declined(f"queries, keys and values are {', '.join(dtypes)}: this recipe takes one float dtype")
        if "bsm" in first.layouts and len({f.sizes[1] for f in found}) > 1:
            raise Declined("heads are merged with their elements, and their number follows the shapes")
        scale = "" if all(f.scale == 1 for f in found) else unify(
            [f.scale for f in found], first.scale_dtype, [{"head_dim": f.sizes[3]} for f in found]
        )
        return RecurrenceMatch(
            signature=signature_of(task), chip=task.chip, algebra=algebra_of(traces, task), q=first.names[0],
            k=first.names[1], v=first.names[2], travelled=first.names[3], slopes=shared_slopes(found),
            layouts=first.layouts, batch=batch, heads=heads, length=length, head_dim=head_dim, v_dim=v_dim,
            scale=scale, norm=first.norm, floor=first.floor, eps=first.eps,  # type: ignore[arg-type]
            dtypes=first.dtypes, out_dtype=first.out_dtype,
        )

    def space(self, match: RecurrenceMatch) -> TuningSpace:
        axes = _axes(match)
        limit = chip_named(match.chip).vmem_bytes - VMEM_MARGIN
        if match.linear:
            wanted = [{"CHUNK": c, "HEADS": h} for c, h in ((256, 8), (256, 4), (128, 8), (512, 4), (256, 1), (128, 1))]
        else:
            wanted = [{"CHUNK": c} for c in (1024, 512, 256, 128)]
        seeds: list[dict[str, int]] = []
        for point in wanted:
            point = {n: max((v for v in axes[n] if v <= value), default=axes[n][0]) for n, value in point.items()}
            if point not in seeds and self.vmem_bytes(match, point) <= limit:
                seeds.append(point)
        if not seeds:
            raise Declined(f"keys and values of one head ({match.length}) do not fit the VMEM of {match.chip}")
        return TuningSpace(axes=axes, seeds=tuple(seeds))

    def check(self, match: RecurrenceMatch, params: dict[str, int]) -> None:
        check_axes(params, TuningSpace(axes=_axes(match)))
        if params["CHUNK"] < 128 or params["CHUNK"] % 128:
            raise Declined(f"CHUNK={params['CHUNK']} is not a multiple of 128, the width of the TPU's registers")
        if not 1 <= params.get("HEADS", 1) <= 16:
            raise Declined(f"HEADS={params['HEADS']} is not between 1 and 16: each head is written out in the program")
        check_vmem(self.vmem_bytes(match, params), chip_named(match.chip))

    def vmem_bytes(self, match: RecurrenceMatch, params: dict[str, int]) -> int:
        chunk, group = min(params["CHUNK"], pad_up(match.length, 128)), params.get("HEADS", 1)
        d, dv = pad_up(match.head_dim, 128), pad_up(match.v_dim, 128)
        size, out = itemsize(match.dtypes[match.q]), itemsize(match.out_dtype)
        keys = chunk if match.linear else pad_up(match.length, chunk)
        moving = group * (chunk * (d * size + dv * out) + keys * (d + dv) * size) + 8 * max(keys, chunk) * 4
        state = group * (d * dv + 8 * d) * 4
        temporaries = chunk * chunk * (4 + 4 + 4 + size) + 6 * chunk * max(d, dv) * 4
        return 2 * moving + state + temporaries

    def bound(self, match: RecurrenceMatch) -> Bound:
        heads, length = match.batch * match.heads, match.length
        if match.linear:  # each position updates and reads the state once
            flops = 4.0 * heads * length * match.head_dim * match.v_dim
        else:
            flops = 2.0 * heads * (length * (length + 1) // 2) * (match.head_dim + match.v_dim)
        size, out = itemsize(match.dtypes[match.q]), itemsize(match.out_dtype)
        moved = heads * length * (2 * match.head_dim * size + match.v_dim * (size + out))
        moved += 4 * heads * length if match.travelled >= 0 else 0
        return Bound(flops=flops, hbm_bytes=float(moved))

    def plan(self, match: RecurrenceMatch, params: dict[str, int]) -> Plan:
        chip, bound = chip_named(match.chip), self.bound(match)
        strategy = "chunks with a running state" if match.linear else "every causal pair, weights in VMEM"
        decay = "an input's running sum" if match.travelled >= 0 else "each head's rate" if match.slopes else "nothing"
        return Plan(
            strategy=strategy,
            summary=(
                f"{algebra_text(match)}{match.batch} x {match.heads} heads, {match.length} positions of "
                f"{match.head_dim}; weights decay by {decay}. "
                + ("What lies before a chunk reaches it through a state of fixed size: the work grows with the length, "
                   "not its square. " if match.linear else
                   "The divisor sums sizes, so every pair is visited, but only the diagonal needs an exponential. ")
                + f"No kernel on {chip.name} can take less than {bound.milliseconds(chip):.3f} ms."
            ),
            attacks=bound.attacks(chip),
            tiling=params,
            grid="(groups of heads, chunks in order)" if match.linear else "(head, chunk of queries), all independent",
            memory="the state of each head in VMEM" if match.linear else "keys and values of a head whole in VMEM",
            pipelining="the next chunk is fetched during the current one",
            recipe=self.name,
            spec=match.to_dict(),
        )

    def render(self, match: RecurrenceMatch, params: dict[str, int]) -> str:
        limit = self.vmem_limit(match, params, spare=1 / 2)
        return recurrence_source.render(match, params, bound_text(self.bound(match), match.chip), limit)


def _axes(match: RecurrenceMatch) -> dict[str, tuple[int, ...]]:
    sizes = (128, 256, 512) if match.linear else (128, 256, 512, 1024)
    chunks = tuple(v for v in sizes if v <= pad_up(match.length, 128))
    if not match.linear:
        return {"CHUNK": chunks}
    return {"CHUNK": chunks, "HEADS": tuple(v for v in (1, 2, 4, 8, 16) if match.heads % v == 0)}


def _shape_free(found: FoundDecay) -> tuple[Any, ...]:
    return (found.names, found.layouts, found.norm, found.floor, found.eps, found.dtypes, found.out_dtype,
            found.slopes is None)


def shared_slopes(found: Sequence[Any]) -> tuple[float, ...]:
    """The longest case's; the others must be its beginning."""
    if found[0].slopes is None:
        return ()
    longest = max((f.slopes or () for f in found), key=len)
    for f in found:
        pairs = zip(f.slopes or (), longest, strict=False)
        if any(abs(a - b) > 1e-6 * abs(b) for a, b in pairs):
            raise Declined("the decay of a head follows the shapes")
    return tuple(longest)
