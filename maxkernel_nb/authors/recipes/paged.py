"""Recipe: attention over a paged key/value cache: decoding, and steps that decode and prefill together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxkernel_nb.authors.base import TuningSpace
from maxkernel_nb.authors.recipes import paged_source
from maxkernel_nb.authors.recipes.base import (
    VMEM_MARGIN,
    Bound,
    Match,
    Recipe,
    bound_text,
    check_axes,
    check_vmem,
    itemsize,
    pad_up,
)
from maxkernel_nb.authors.recipes.paged_reader import MOST_WORK, Roles, suggest, tried, work
from maxkernel_nb.authors.recipes.signature import signature_of
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import KernelTask, Plan
from maxkernel_nb.tpu.chips import chip as chip_named

_FLOATS = ("float32", "bfloat16")


class PagedMatch(Match):
    """Parameter numbers as in ``Roles``; ``decode_count`` slots bring one query each (-1: every slot, unpacked), the
    ``prefill_count`` after them up to ``prefill_width``. Sizes: of the timing case, ``pages`` of ``page`` keys a slot.
    """

    queries: int
    keys: int
    values: int = -1
    lengths: int
    table: int
    starts: int = -1
    active: int = -1
    scaled: bool = True
    decode_count: int = -1
    prefill_count: int = 0
    prefill_width: int = 0
    slots: int
    pages: int
    page: int
    heads: int
    kv_heads: int
    head_dim: int
    dtype: str

    @property
    def simple(self) -> bool:
        return self.decode_count < 0

    @property
    def decoding(self) -> int:
        return self.slots if self.simple else self.decode_count


class PagedRecipe(Recipe):
    name = "paged"
    title = "attention over a paged key/value cache"
    match_type = PagedMatch
    limits = (
        "the function's arguments are the cache's pages, a page table, lengths and queries, and nothing else",
        "every active sequence has at least one key, and no more queries than keys",
        "packed queries come from one loop over single queries and one over a fixed number of them",
        "keys and values of one prefilling sequence's head have to fit the VMEM",
    )

    def recognise(self, traces: Mapping[str, Any], task: KernelTask) -> PagedMatch:
        timing = traces[task.timing_case.name]
        if not all(hasattr(t, "jaxpr") for t in traces.values()):
            raise Declined("a part of a function is no whole step over a cache")
        if len(timing.out_avals) != 1:
            raise Declined(f"it returns {len(timing.out_avals)} arrays, this recipe writes one")
        found = {name: suggest(closed) for name, closed in traces.items()}
        roles = found[task.timing_case.name]
        if any(r != roles for r in found.values()):
            raise Declined("its inputs play different parts in different shape cases")
        smallest = min(traces, key=lambda name: work(traces[name], found[name]))
        if work(traces[smallest], roles) > MOST_WORK:
            raise Declined("no shape case is small enough to be tried on a CPU")
        return _match(timing, tried(traces[smallest], roles), task)

    def space(self, match: PagedMatch) -> TuningSpace:
        axes = _axes(match)
        limit = chip_named(match.chip).vmem_bytes - VMEM_MARGIN
        names = ("PAGES", "BLOCK_Q", "BLOCK_K", "ROWS")
        points = [dict(zip(names, values, strict=True)) for values in (
            (16, 512, 1024, 256), (8, 512, 1024, 256), (16, 512, 2048, 256), (32, 512, 1024, 128), (8, 256, 512, 128),
            (4, 128, 256, 128), (1, 128, 128, 128),
        )]
        seeds: list[dict[str, int]] = []
        for point in points:
            fitted = {n: max((v for v in axes[n] if v <= point[n]), default=axes[n][0]) for n in axes}
            if fitted not in seeds and self.vmem_bytes(match, fitted) <= limit:
                seeds.append(fitted)
        if not seeds:
            keys = match.pages * match.page
            raise Declined(f"keys and values of one head ({keys} keys) do not fit the VMEM of {match.chip}")
        return TuningSpace(axes=axes, seeds=tuple(seeds))

    def check(self, match: PagedMatch, params: dict[str, int]) -> None:
        check_axes(params, TuningSpace(axes=_axes(match)))
        for name in sorted(set(params) & {"BLOCK_Q", "BLOCK_K", "ROWS"}):
            if params[name] < 128 or params[name] % 128:
                raise Declined(f"{name}={params[name]} is not a multiple of 128, the width of the TPU's registers")
        if "PAGES" in params:
            rows = params["PAGES"] * match.page * match.kv_heads
            if not 1 <= params["PAGES"] <= 64:
                raise Declined(f"PAGES={params['PAGES']}: each page is an operand of its own, 1 to 64 of them")
            if rows * (2 if match.values < 0 else 1) < 128:
                raise Declined(f"PAGES={params['PAGES']} gives {rows} keys a step, less than a register is wide")
        check_vmem(self.vmem_bytes(match, params), chip_named(match.chip))

    def vmem_bytes(self, match: PagedMatch, params: dict[str, int]) -> int:
        size, d = itemsize(match.dtype), pad_up(match.head_dim, 128)
        need = 0
        if "PAGES" in params:
            rows = params["PAGES"] * match.page * match.kv_heads * (2 if match.values < 0 else 1)
            moved = rows * d * size * (1 if match.values < 0 else 2)
            heads = pad_up(match.heads, 16)
            need = 3 * moved + heads * rows * (3 * 4 + size) + 8 * rows * 4 + heads * (3 * d + 256) * 4
        if "BLOCK_Q" in params:
            keys = pad_up(match.pages * match.page, params["BLOCK_K"])
            rows = min(params["BLOCK_Q"], pad_up(match.prefill_width, 128))
            whole = 2 * (2 * keys * d * size + 2 * rows * d * size)
            need = max(need, whole + rows * (d + 256) * 4 + rows * params["BLOCK_K"] * (3 * 4 + size))
        return need

    def bound(self, match: PagedMatch) -> Bound:
        """All pages of the sequences that are read, in full: their lengths are data."""
        keys, size = match.pages * match.page, itemsize(match.dtype)
        sequences = match.decoding + match.prefill_count
        queries = match.decoding + match.prefill_count * match.prefill_width
        moved = 2 * sequences * keys * match.kv_heads * match.head_dim * size
        moved += 2 * queries * match.heads * match.head_dim * size
        pairs = match.decoding * keys + match.prefill_count * match.prefill_width * (keys - match.prefill_width // 2)
        return Bound(flops=4.0 * match.heads * match.head_dim * pairs, hbm_bytes=float(moved))

    def plan(self, match: PagedMatch, params: dict[str, int]) -> Plan:
        chip, bound = chip_named(match.chip), self.bound(match)
        count = match.prefill_count
        prefill = f", {count} prefilling up to {match.prefill_width} queries" if count else ""
        return Plan(
            strategy="pages straight from the cache through a page table read ahead",
            summary=(
                f"{match.decoding} sequences decoding{prefill}, up to {match.pages * match.page} keys each; "
                f"{match.heads} query heads share {match.kv_heads} key heads. Pages are fetched where they lie, pages "
                f"after a sequence's end are not; all heads of a page are one matrix. Full sequences take at least "
                f"{bound.milliseconds(chip):.3f} ms on {chip.name}."
            ),
            attacks=bound.attacks(chip),
            tiling=params,
            grid="blocks of pages, sequence after sequence" + ("; (sequence, key head, rows)" if count else ""),
            memory="PAGES pages at a time; running maximum, sum and result of a sequence in VMEM",
            pipelining="the next pages are fetched during the current ones: the table says ahead where they lie",
            recipe=self.name,
            spec=match.to_dict(),
        )

    def render(self, match: PagedMatch, params: dict[str, int]) -> str:
        limit = self.vmem_limit(match, params, spare=1 / 2)
        return paged_source.render(match, params, bound_text(self.bound(match), match.chip), limit)


def _match(timing: Any, roles: Roles, task: KernelTask) -> PagedMatch:
    avals = [v.aval for v in timing.jaxpr.invars]
    queries, keys, table = (avals[i] for i in (roles.queries, roles.keys, roles.table))
    dtypes = {str(avals[i].dtype) for i in (roles.queries, roles.keys, roles.values) if i >= 0}
    if len(dtypes) > 1 or str(queries.dtype) not in _FLOATS or str(timing.out_avals[0].dtype) != str(queries.dtype):
        raise Declined(f"queries and pages are {', '.join(sorted(dtypes))}: this recipe takes one float dtype")
    if timing.out_avals[0].shape != queries.shape:
        raise Declined("its result is not shaped like the queries")
    singles = sum(n for n, w in roles.groups if w == 1)
    prefill = next(((n, w) for n, w in roles.groups if w > 1), (0, 0))
    return PagedMatch(
        signature=signature_of(task), chip=task.chip, queries=roles.queries, keys=roles.keys, values=roles.values,
        lengths=roles.lengths, table=roles.table, starts=roles.starts, active=roles.active, scaled=roles.scaled,
        decode_count=singles if roles.groups else -1, prefill_count=prefill[0], prefill_width=prefill[1],
        slots=table.shape[0], pages=table.shape[1], page=keys.shape[1], heads=queries.shape[1],
        kv_heads=keys.shape[2] // (2 if roles.joined else 1), head_dim=keys.shape[3], dtype=str(queries.dtype),
    )


def _axes(match: PagedMatch) -> dict[str, tuple[int, ...]]:
    axes: dict[str, tuple[int, ...]] = {}
    if match.decode_count != 0:
        rows = match.page * match.kv_heads * (2 if match.values < 0 else 1)
        axes["PAGES"] = tuple(p for p in (1, 2, 4, 8, 16, 32) if p <= max(match.pages, 1) and p * rows >= 128) or (32,)
    if match.prefill_count:
        axes["BLOCK_Q"] = tuple(v for v in (128, 256, 512, 1024) if v <= pad_up(match.prefill_width, 128))
        axes["ROWS"] = tuple(v for v in (128, 256, 512) if v <= axes["BLOCK_Q"][-1])
        axes["BLOCK_K"] = tuple(v for v in (128, 256, 512, 1024, 2048) if v <= pad_up(match.pages * match.page, 128))
    return axes
