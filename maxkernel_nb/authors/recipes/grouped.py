"""Recipe: a grouped (ragged) matrix product: rows sorted by group, each group with its own weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxkernel_nb.authors.base import TuningSpace
from maxkernel_nb.authors.recipes import grouped_source
from maxkernel_nb.authors.recipes.aligned import Aligned
from maxkernel_nb.authors.recipes.around import Around, aligned_cases, uses_lax
from maxkernel_nb.authors.recipes.base import (
    STEP_MS,
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
    itemsize,
    pad_up,
)
from maxkernel_nb.authors.recipes.blocks import FLOATS
from maxkernel_nb.authors.recipes.graph import Graph, Node
from maxkernel_nb.authors.recipes.signature import first_lines, signature_of
from maxkernel_nb.authors.recipes.text import comment, fold_raises, indent, vmem_line
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import KernelTask, Plan
from maxkernel_nb.tpu.chips import chip as chip_named


class GroupedMatch(Match):
    """``out[i] = rows[i] @ weights[group of i]``; rows [m, k], weights [groups, k, n]. ``arguments``: source of the
    three inputs; ``before``, ``after``: lines around; ``result``: what is returned.
    """

    m: int
    n: int
    k: int
    groups: int
    dtype: str  # of rows and weights
    out_dtype: str
    arguments: tuple[str, str, str]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    result: str


class GroupedRecipe(Recipe):
    name = "grouped"
    title = "grouped matrix product, rows sorted by group"
    match_type = GroupedMatch
    limits = (
        "one ragged_dot of rows [m, k] and weights [groups, k, n], its depth whole in VMEM",
        "many small groups cost up to a block of rows each",
        "rows and weights both float32 or both bfloat16",
    )

    def recognise(self, traces: Mapping[str, Any], task: KernelTask) -> GroupedMatch:
        aligned = aligned_cases(traces, task, _one_ragged)
        ragged = next(n for n in range(len(aligned)) if _is_ragged(aligned[n]))
        rows, weights, sizes = aligned.inputs(ragged)[:3]
        _check_form(aligned, ragged, (rows, weights, sizes))
        kinds = {aligned[rows].dtype, aligned[weights].dtype}
        dtype = kinds.pop()
        if kinds or dtype not in FLOATS:
            raise Declined(f"rows are {aligned[rows].dtype} and weights {aligned[weights].dtype}: both float32 or both "
                           "bfloat16 are served")
        root = _masked(aligned, ragged, sizes)
        inputs = {rows: dtype, weights: dtype, sizes: aligned[sizes].dtype}
        around = Around(aligned, task, inputs, ("out", "sizes", "rows", "weights"))
        out_dtype = aligned[ragged].dtype
        after: tuple[str, ...] = ()
        result = "out"
        if root == aligned.outputs[0]:
            out_dtype = aligned.graphs[0].output_dtypes[0]
        else:
            after, result = around.finish(root, "out", out_dtype)
        (m, k), (groups, _, n) = aligned[rows].shape, aligned[weights].shape
        return GroupedMatch(
            signature=signature_of(task), chip=task.chip, algebra=algebra_of(traces, task), m=m, n=n, k=k,
            groups=groups, dtype=dtype, out_dtype=out_dtype, before=around.before,
            arguments=(around.names[rows], around.names[weights], around.names[sizes]), after=after, result=result,
        )

    def space(self, match: GroupedMatch) -> TuningSpace:
        axes = {
            "BLOCK_M": tuple(v for v in (128, 256, 512, 1024) if v < 2 * pad_up(match.m, 16)) or (16,),
            "BLOCK_N": tuple(sorted({v for v in (256, 512, 1024, 2048) if v < match.n and match.n % v == 0}
                                    | {pad_up(match.n, 128)})),
        }
        limit = chip_named(match.chip).vmem_bytes - VMEM_MARGIN
        fitting = [p for m in axes["BLOCK_M"] for n in axes["BLOCK_N"]
                   if self.vmem_bytes(match, p := {"BLOCK_M": m, "BLOCK_N": n}) <= limit]
        if not fitting:
            raise Declined(f"no block of depth {match.k} fits the VMEM of {match.chip}")
        return TuningSpace(axes=axes, seeds=tuple(sorted(fitting, key=lambda p: self.estimate_ms(match, p))[:6]))

    def check(self, match: GroupedMatch, params: dict[str, int]) -> None:
        check_axes(params, TuningSpace(axes={"BLOCK_M": (), "BLOCK_N": ()}))
        check_tiles(params, {"BLOCK_M": 16, "BLOCK_N": 128})
        check_vmem(self.vmem_bytes(match, params), chip_named(match.chip))

    def vmem_bytes(self, match: GroupedMatch, params: dict[str, int]) -> int:
        bm, bn = min(params["BLOCK_M"], pad_up(match.m, 16)), min(params["BLOCK_N"], pad_up(match.n, 128))
        return grouped_vmem(bm, bn, match.k, 1, itemsize(match.dtype))

    def bound(self, match: GroupedMatch) -> Bound:
        size = itemsize(match.dtype)
        moved = (match.m + match.groups * match.n) * match.k * size + match.m * match.n * itemsize(match.out_dtype)
        return Bound(flops=2.0 * match.m * match.n * match.k, hbm_bytes=float(moved))

    def bound_with(self, match: GroupedMatch, params: dict[str, int]) -> Bound:
        least = self.bound(match)
        again = match.m * match.k * itemsize(match.dtype) * (-(-match.n // params["BLOCK_N"]) - 1)
        return Bound(flops=least.flops, hbm_bytes=least.hbm_bytes + again)

    def estimate_ms(self, match: GroupedMatch, params: dict[str, int]) -> float:
        return grouped_ms(match.chip, self.bound_with(match, params), (match.m, match.n, match.groups),
                          params["BLOCK_M"], params["BLOCK_N"])

    def plan(self, match: GroupedMatch, params: dict[str, int]) -> Plan:
        chip, bound = chip_named(match.chip), self.bound(match)
        return Plan(
            strategy="each group's weights fetched once, its rows go past them",
            summary=(
                algebra_text(match)
                + f"{match.m} rows in {match.groups} groups, each with its own [{match.k}, {match.n}] weights. The "
                "groups' sizes are read ahead of the grid; within a step the blocks of one group's rows are fetched, "
                f"multiplied and stored in turn. {at_least(bound, chip)}"
            ),
            attacks=bound.attacks(chip),
            tiling=params,
            grid="(blocks of columns, groups in order)",
            memory=f"{params['BLOCK_M']} rows and {params['BLOCK_N']} columns of a group's weights, whole depth",
            pipelining="the next group's weights and the next block of rows are fetched during this one",
            recipe=self.name,
            spec=match.to_dict(),
        )

    def render(self, match: GroupedMatch, params: dict[str, int]) -> str:
        limit = self.vmem_limit(match, params)
        header = comment(
            f"{match.signature.entry}: a product of rows sorted by group as a Pallas TPU kernel.",
            f"Tiles: {params['BLOCK_M']} rows and {params['BLOCK_N']} columns of whole depth. Each group's weights are "
            "fetched once and its rows go past them, however many there are.",
            f"Bound for {match.m} rows, {match.groups} groups of [{match.k}, {match.n}] weights: "
            f"{bound_text(self.bound(match), match.chip)}.",
        )
        rows, weights, sizes = match.arguments
        call = f"_grouped({rows}, {weights}, {sizes}, jnp.{match.out_dtype})"
        plain = not match.after and match.result == "out"
        body = [*first_lines(match.signature), *match.before, f"{'return' if plain else 'out ='} {call}"]
        if not plain:
            body += [*match.after, f"return {match.result}"]
        entry = f"def {match.signature.entry}({match.signature.header}):\n" + indent("\n".join(body))
        constants = [f"{name} = {value}" for name, value in params.items()]
        constants.append(vmem_line(limit))
        constants.append("TILE = 16  # rows of one tile in HBM: where a copy may begin")
        parts = [grouped_source.GROUPED, entry]
        return fold_raises(grouped_source.module(header, constants, parts, uses_lax(body)))


def grouped_vmem(bm: int, bn: int, k: int, weights: int, size: int) -> int:
    moving = (2 * bm + weights * bn) * pad_up(k, 128) * size + bm * bn * 4
    return 2 * moving + (weights + 2) * bm * bn * 4


def grouped_ms(chip_name: str, bound: Bound, sizes: tuple[int, int, int], bm: int, bn: int) -> float:
    """``sizes``: (rows, columns, groups). Shared blocks are multiplied twice; short ones keep the MXU half idle."""
    chip, (m, n, groups) = chip_named(chip_name), sizes
    visits = -(-m // bm) + groups
    work = bound.compute_s(chip) * visits * max(bm, chip.mxu_size) / m
    steps = visits * -(-n // bn)
    return 1e3 * max(work, bound.hbm_bytes / (chip.device_hbm_gbs * 1e9)) + steps * STEP_MS


def check_tiles(params: dict[str, int], units: dict[str, int]) -> None:
    for name, unit in units.items():
        if params[name] < unit or params[name] % unit:
            raise Declined(f"{name}={params[name]} is not a multiple of {unit}, the tile of the TPU's registers")


def _one_ragged(graph: Graph) -> None:
    count = sum(_is_ragged(graph[n]) for n in graph.reachable())
    if count != 1:
        raise Declined(f"it has {count} ragged products, this recipe serves exactly one")


def _is_ragged(node: Node) -> bool:
    return node.op == "other" and node.attr("primitive") in ("ragged_dot_general", "ragged_dot")


def _check_form(aligned: Aligned, ragged: int, inputs: tuple[int, int, int]) -> None:
    equation = aligned.graphs[0].equations[aligned[ragged].attr("serial")]
    how = equation.params.get("ragged_dot_dimension_numbers")
    plain = ((((1,), (1,)), ((), ())), (0,), (0,))
    got = how and (
        tuple(tuple(tuple(s) for s in pair) for pair in how.dot_dimension_numbers),
        tuple(how.lhs_ragged_dimensions), tuple(how.rhs_group_dimensions),
    )
    shapes = [aligned[i].shape for i in inputs]
    if (got is not None and got != plain) or [len(s) for s in shapes] != [2, 3, 1]:
        raise Declined("the ragged product is not of rows [m, k] and weights [groups, k, n]")
    if equation.params.get("group_offset") is not None:
        raise Declined("the ragged product starts at a group offset")


def _masked(aligned: Aligned, ragged: int, sizes: int) -> int:
    """The product, or what sets the rows after the last group to zero: the kernel does that anyway."""
    users = aligned.users()[ragged]
    if len(users) != 1 or aligned[users[0]].op != "select":
        return ragged
    mask, kept, other = aligned.inputs(users[0])
    zero = aligned[other]
    if kept != ragged or zero.op != "const" or zero.attr("value") != 0.0:
        return ragged
    number = mask
    while aligned[number].op in ("broadcast", "reshape"):
        number = aligned.inputs(number)[0]
    if aligned[number].op != "lt":
        return ragged
    rows, total = aligned.inputs(number)
    while aligned[total].op in ("broadcast", "reshape"):
        total = aligned.inputs(total)[0]
    counted = aligned[rows].op == "iota" and len(aligned[rows].shape) == 1
    summed = aligned[total].op == "reduce_sum" and aligned.inputs(total) == (sizes,)
    return users[0] if counted and summed else ragged
