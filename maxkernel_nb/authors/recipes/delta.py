"""Recipe: a state that a loop over time writes (delta rules, gated linear attention), in chunks of steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from maxkernel_nb.authors.base import TuningSpace
from maxkernel_nb.authors.recipes import delta_source
from maxkernel_nb.authors.recipes.base import (
    VMEM_MARGIN,
    Bound,
    Match,
    Recipe,
    algebra_of,
    algebra_text,
    at_least,
    bound_text,
    check_axes,
    check_vmem,
    in_every_case,
    itemsize,
    pad_up,
)
from maxkernel_nb.authors.recipes.delta_reader import recognise_case, shape_free
from maxkernel_nb.authors.recipes.expressions import unify
from maxkernel_nb.authors.recipes.recurrence import shared_slopes
from maxkernel_nb.authors.recipes.signature import signature_of
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import KernelTask, Plan
from maxkernel_nb.tpu.chips import chip as chip_named

_FLOATS = ("float32", "bfloat16")


class DeltaMatch(Match):
    """``S = a S + k u^T`` and ``out = scale * S^T q`` at each step, from zeros; ``u = b (v - a S^T k)`` where
    ``delta``, else ``b v``.

    ``decay`` and ``beta`` are parameter numbers (-1: none); the decay is the parameter's ``form`` (itself if empty), b
    is ``beta_form`` of its own. Or each head has its ``slopes``, log decays a step. ``layouts``: of q, k, v, decay,
    beta and result, a letter an axis.
    """

    q: int
    k: int
    v: int
    decay: int = -1
    beta: int = -1
    form: Literal["", "exp", "logistic"] = ""
    beta_form: Literal["", "logistic"] = ""
    delta: bool = True
    slopes: tuple[float, ...] = ()
    layouts: tuple[str, ...]
    batch: int
    heads: int
    length: int
    head_dim: int
    v_dim: int
    scale: str = ""
    dtypes: tuple[str, ...]
    out_dtype: str

    @property
    def decays(self) -> bool:
        return self.decay >= 0 or bool(self.slopes)

    @property
    def wide(self) -> bool:
        """True where the result is float32, so that products have to keep all bits of such values."""
        return self.out_dtype == "float32"


class DeltaRecipe(Recipe):
    name = "delta"
    title = "a loop over time that writes a state (delta rule, gated linear attention), in chunks"
    match_type = DeltaMatch
    limits = (
        "a lax.scan forwards over time that carries one matrix a head, from zeros, and returns one vector a step",
        "the state decays by one number for each head and step",
        "the result is the state read by a query after it was written",
    )

    def recognise(self, traces: Mapping[str, Any], task: KernelTask) -> DeltaMatch:
        found = in_every_case(traces, task, recognise_case, shape_free)
        first = found[0]
        batch, heads, length, head_dim, v_dim = first.sizes
        dtypes = [first.dtypes[i] for i in first.names if i >= 0]
        if any(d not in _FLOATS for d in dtypes):
            raise Declined(f"its inputs are {', '.join(dtypes)}: this recipe takes float32 and bfloat16")
        scale = "" if all(abs(f.scale - 1) < 1e-9 for f in found) else unify(
            [f.scale for f in found], first.scale_dtype, [{"head_dim": f.sizes[3]} for f in found]
        )
        q, k, v, decay, beta = first.names
        return DeltaMatch(
            signature=signature_of(task), chip=task.chip, algebra=algebra_of(traces, task), q=q, k=k, v=v,
            decay=decay, beta=beta, form=first.form,  # type: ignore[arg-type]
            beta_form=first.beta_form, delta=first.delta, slopes=shared_slopes(found),  # type: ignore[arg-type]
            layouts=first.layouts, batch=batch, heads=heads, length=length, head_dim=head_dim, v_dim=v_dim,
            scale=scale, dtypes=first.dtypes, out_dtype=first.out_dtype,
        )

    def space(self, match: DeltaMatch) -> TuningSpace:
        axes = _axes(match)
        limit = chip_named(match.chip).vmem_bytes - VMEM_MARGIN
        seeds: list[dict[str, int]] = []
        for chunk, heads in _WANTED[match.delta]:
            wanted = {"CHUNK": chunk, "HEADS": heads}
            point = {n: max((v for v in axes[n] if v <= value), default=axes[n][0]) for n, value in wanted.items()}
            if point not in seeds and self.vmem_bytes(match, point) <= limit:
                seeds.append(point)
        if not seeds:
            raise Declined(f"a head's state ({match.head_dim} x {match.v_dim}) does not fit the VMEM of {match.chip}")
        return TuningSpace(axes=axes, seeds=tuple(seeds))

    def check(self, match: DeltaMatch, params: dict[str, int]) -> None:
        check_axes(params, TuningSpace(axes=_axes(match)))
        chunk = params["CHUNK"]
        if chunk < 32 or chunk & (chunk - 1):
            raise Declined(f"CHUNK={chunk} is not a power of two from 32 on: the triangle is inverted by halves")
        if not 1 <= params["HEADS"] <= 16:
            raise Declined(f"HEADS={params['HEADS']} is not between 1 and 16: each head is written out in the program")
        check_vmem(self.vmem_bytes(match, params), chip_named(match.chip))

    def vmem_bytes(self, match: DeltaMatch, params: dict[str, int]) -> int:
        chunk, group = params["CHUNK"], params["HEADS"]
        d, dv, lanes = pad_up(match.head_dim, 128), pad_up(match.v_dim, 128), pad_up(chunk, 128)
        q, k, v = (itemsize(match.dtypes[i]) for i in (match.q, match.k, match.v))
        moving = group * chunk * (d * (q + k) + dv * (v + itemsize(match.out_dtype))) + 2 * pad_up(group, 8) * lanes * 4
        state = group * d * dv * 4
        temporaries = group * (6 * chunk * lanes + 6 * chunk * max(d, dv)) * 4
        return 2 * moving + state + temporaries

    def bound(self, match: DeltaMatch) -> Bound:
        """Each position reads the state with its key (delta rule) and its query, and writes it once."""
        steps = match.batch * match.heads * match.length
        q, k, v = (itemsize(match.dtypes[i]) for i in (match.q, match.k, match.v))
        gates = sum(itemsize(match.dtypes[i]) for i in (match.decay, match.beta) if i >= 0)
        moved = steps * (match.head_dim * (q + k) + match.v_dim * (v + itemsize(match.out_dtype)) + gates)
        flops = (6.0 if match.delta else 4.0) * steps * match.head_dim * match.v_dim
        return Bound(flops=flops, hbm_bytes=float(moved))

    def plan(self, match: DeltaMatch, params: dict[str, int]) -> Plan:
        chip, bound = chip_named(match.chip), self.bound(match)
        inside = (
            "Within a chunk each value is corrected by what the keys before it wrote: a triangular system, whose "
            "inverse is built from blocks of 2, 4, 8 ... rows. " if match.delta else
            "Within a chunk weights are formed as in attention. "
        )
        return Plan(
            strategy="chunks with a running state, the triangle of corrections inverted in VMEM" if match.delta
            else "chunks with a running state",
            summary=(
                f"{algebra_text(match)}A loop of {match.length} steps over {match.batch} x {match.heads} states of "
                f"{match.head_dim} x {match.v_dim} becomes {-(-match.length // params['CHUNK'])} chunks. {inside}"
                f"What lies before a chunk reaches it through the state, which never leaves VMEM. "
                f"{at_least(bound, chip)}"
            ),
            attacks=bound.attacks(chip),
            tiling=params,
            grid="(groups of heads, chunks in order)",
            memory="the state of each head in VMEM, in float32",
            pipelining="the next chunk is fetched during the current one",
            recipe=self.name,
            spec=match.to_dict(),
        )

    def render(self, match: DeltaMatch, params: dict[str, int]) -> str:
        limit = self.vmem_limit(match, params, spare=1 / 2)
        return delta_source.render(match, params, bound_text(self.bound(match), match.chip), limit)


_WANTED = {
    True: ((128, 4), (128, 2), (64, 4), (64, 8), (128, 1), (64, 1)),  # more heads take minutes to compile
    False: ((256, 8), (256, 4), (128, 8), (128, 4), (256, 1), (128, 1), (64, 1)),
}


def _axes(match: DeltaMatch) -> dict[str, tuple[int, ...]]:
    chunks = (32, 64, 128) if match.delta else (32, 64, 128, 256)
    return {
        "CHUNK": tuple(v for v in chunks if v <= max(32, match.length)),
        "HEADS": tuple(v for v in (1, 2, 4, 8, 16) if match.heads % v == 0),
    }
