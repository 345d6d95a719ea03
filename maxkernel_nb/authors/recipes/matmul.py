"""Recipe: one matrix product with any elementwise epilogue, row reductions included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from maxkernel_nb.authors.base import TuningSpace
from maxkernel_nb.authors.recipes import matmul_rows_source, matmul_source
from maxkernel_nb.authors.recipes.base import (
    MIB,
    STEP_MS,
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
from maxkernel_nb.authors.recipes.blocks import FLOATS, BlockReader, output_form
from maxkernel_nb.authors.recipes.expressions import Expression, describe
from maxkernel_nb.authors.recipes.graph import Graph
from maxkernel_nb.authors.recipes.matmul_rows import RowSplit, reciprocals, split
from maxkernel_nb.authors.recipes.views import base_of, flat, sample_points, unflatten, volume
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import KernelTask, Plan
from maxkernel_nb.tpu.chips import chip as chip_named

# Bytes of columns up to which whole rows are quicker. Modelled on v6e, a softmax of [8192, n]: n = k = 1024 takes
# 0.036 ms against 0.043 block by block, 2048 takes 0.110 against 0.120; [4096, 8192] with k = 8192
# takes 1.80 against 0.76.
FEW = 16 * MIB
PASSES = {"HIGH": 3, "HIGHEST": 6}  # of bfloat16 products for one of float32
WHOLE = "int8"  # added up in int32
EIGHTHS = ("float8_e4m3fn", "float8_e5m2")
# Multiplied at twice the rate of bfloat16: the chips that state such a rate. Others widen on the way into the unit.
TWICE = {"int8": ("v5e", "v5p", "v6e"), "float8_e4m3fn": ("v7x",), "float8_e5m2": ("v7x",)}


class MatmulMatch(Match):
    """``out = epilogue(rows @ columns)``: rows [m, k] from parameter ``lhs``, columns [k, n] from ``rhs``.

    ``lhs_form`` is ``mk`` or ``km``, ``rhs_form`` ``kn`` or ``nk``: how the parameter lies. Leaf kinds: ``full``
    [m, n], ``row`` [1, n], ``col`` [m, 1], ``scalar``. ``output_form`` says how the result is shaped from [m, n]
    or [m, 1]. ``second``: the parameter of other columns that the same rows are multiplied by (a gated layer's two
    halves), or -1; the epilogue knows that product as ``acc2``. ``batch``: how many such products one call makes, over
    ``batch_rank`` leading axes of both parameters; ``full`` and ``col`` leaves have one block for each of them.
    """

    lhs: int
    rhs: int
    lhs_form: Literal["mk", "km"]
    rhs_form: Literal["kn", "nk"]
    lhs_rank: int
    rhs_rank: int
    m: int
    n: int
    k: int
    batch: int = 1
    batch_rank: int = 0
    dtypes: tuple[str, ...]  # of every parameter
    out_dtype: str
    out_kind: Literal["full", "col"]
    output_form: Literal["lead_tail", "lead_n", "m_n", "lead", "lead_1", "m", "m_1"]
    precision: str = ""
    narrowed: tuple[bool, bool] = (False, False)  # float32 inputs that the function multiplies as bfloat16
    second: int = -1
    whole_rows: bool = False  # a reduction over n
    by_columns: bool = False  # that is taken while blocks of columns are multiplied (``matmul_rows``)
    epilogue: Expression

    @property
    def fold(self) -> int:
        """The step that reduces a row at the very end, so that blocks of columns can be reduced one by one; or -1."""
        return fold_of(self.epilogue) if self.whole_rows and not self.by_columns else -1

    @property
    def holds_rows(self) -> bool:
        """A block holds whole rows of the product."""
        return self.whole_rows and not self.by_columns and self.fold < 0

    @property
    def split(self) -> RowSplit | None:
        return split(self.epilogue) if self.by_columns else None

    @property
    def products(self) -> int:
        return 1 if self.second < 0 else 2

    @property
    def dots_dtype(self) -> str:
        sides = zip((self.lhs, self.rhs), self.narrowed, strict=True)
        pair = {"bfloat16" if narrow else self.dtypes[i] for i, narrow in sides}
        if len(pair) == 1:
            return pair.pop()
        return "float32" if "float32" in pair else "bfloat16"

    @property
    def rate(self) -> float:
        """Products a cycle, as multiples of what the chip makes of bfloat16."""
        return 2.0 if self.chip in TWICE.get(self.dots_dtype, ()) else 1.0

    @property
    def rows_unit(self) -> int:
        """Rows of a register tile of the narrowest type that lies in blocks of rows."""
        across = [self.dtypes[leaf.param] for leaf in self.epilogue.leaves if leaf.kind == "full"]
        return 32 if min(map(itemsize, (self.dtypes[self.lhs], self.out_dtype, *across))) == 1 else 16


class MatmulRecipe(Recipe):
    name = "matmul"
    title = "matrix product with a fused epilogue"
    match_type = MatmulMatch
    limits = (
        "one product of two inputs as they are (nothing computed on them first), or two that share their rows",
        "batch dimensions lead in both inputs and in the result, and each product in the batch has one row axis",
        "a row that is reduced and used again has to fit the VMEM; a reduction at the very end does not need that",
        "float32, bfloat16, float8 and int8 inputs; whole numbers are made floats at once, before or after the product",
        "float8 is twice as fast on v7x, int8 on v5e, v5p and v6e; elsewhere they only halve what is read",
    )

    def recognise(self, traces: Mapping[str, Any], task: KernelTask) -> MatmulMatch:
        _, expression, fields = read_cases(traces, task, _recognise_case)
        match = MatmulMatch(epilogue=expression, **fields)
        return _by_columns(match) if self._takes_columns(match) else match

    def others(self, match: MatmulMatch) -> tuple[MatmulMatch, ...]:
        if match.by_columns:
            return (match.model_copy(update={"by_columns": False}),)
        return (_by_columns(match),) if self._can_take_columns(match) else ()

    def _takes_columns(self, match: MatmulMatch) -> bool:
        """True where that is also the better kernel."""
        columns = match.products * match.k * match.n * itemsize(match.dtypes[match.rhs])
        if match.holds_rows and columns <= FEW:  # all of them stay in VMEM, and a row is done in one step
            return False
        return self._can_take_columns(match)

    def _can_take_columns(self, match: MatmulMatch) -> bool:
        """True where blocks of columns can be reduced one by one: one core, and the kept rows fit its VMEM."""
        found = split(match.epilogue) if match.whole_rows and not match.batch_rank else None
        if found is None or (match.out_kind == "full" and chip_named(match.chip).device_cores > 1):
            return False
        streamed = _by_columns(match)
        return any(self.works(streamed, point) for point in _guesses(streamed))

    def space(self, match: MatmulMatch) -> TuningSpace:
        axes = _axes(match)
        seeds = [p for p in _guesses(match) if all(p[k] in axes[k] for k in axes) and self.works(match, p)]
        if not seeds:
            raise Declined(f"no block size fits the VMEM of {match.chip} (rows of {match.n} elements)")
        return TuningSpace(axes=axes, seeds=tuple(seeds[:8]))

    def works(self, match: MatmulMatch, params: dict[str, int]) -> bool:
        return self.vmem_bytes(match, params) <= chip_named(match.chip).vmem_bytes - VMEM_MARGIN

    def check(self, match: MatmulMatch, params: dict[str, int]) -> None:
        space = TuningSpace(axes=_axes(match))
        check_axes(params, space)
        if match.by_columns and params["BLOCK_K"] < match.k:
            raise Declined(f"BLOCK_K={params['BLOCK_K']} cuts the depth of {match.k}, which this kernel takes whole")
        for name, unit in (("BLOCK_M", match.rows_unit), ("BLOCK_N", 128), ("BLOCK_K", 128)):
            if name in params and (params[name] < unit or params[name] % unit):
                raise Declined(f"{name}={params[name]} is not a multiple of {unit}, the tile of the TPU's registers")
        check_vmem(self.vmem_bytes(match, params), chip_named(match.chip))

    def vmem_bytes(self, match: MatmulMatch, params: dict[str, int]) -> int:
        bm, bn, bk = block_shape(match, params)
        moving = bm * bk * itemsize(match.dtypes[match.lhs])
        moving += match.products * bk * bn * itemsize(match.dtypes[match.rhs])
        area = {"full": bm * bn, "row": 8 * bn, "col": bm * 128, "scalar": 0}
        moving += sum(area[leaf.kind] * itemsize(match.dtypes[leaf.param]) for leaf in match.epilogue.leaves)
        moving += area[match.out_kind] * itemsize(match.out_dtype)
        accumulator = match.products * bm * bn * 4 + (bm * 512 if match.fold >= 0 else 0)
        if (found := match.split) is not None:
            accumulator = bm * pad_up(match.n, bn) * 4 if found.held else 0
            accumulator += bm * 512 * (len(found.kept) + 2 * len(found.first))
        # the product itself, and one f32 temporary of the epilogue that does not fit the registers
        temporaries = bm * bn * 4 * (2 + match.products if match.epilogue.steps else 1)
        sides = ((match.lhs, bm * bk), (match.rhs, match.products * bk * bn))
        widened = sum(size for i, size in sides if match.dtypes[i] != match.dots_dtype) * itemsize(match.dots_dtype)
        return 2 * moving + accumulator + temporaries + widened

    def bound(self, match: MatmulMatch) -> Bound:
        m, n, k = match.m * match.batch, match.n, match.k
        sizes = {"full": m * n, "row": n, "col": m, "scalar": 1}
        read = m * k * itemsize(match.dtypes[match.lhs])
        read += match.products * match.batch * k * n * itemsize(match.dtypes[match.rhs])
        read += sum(sizes[leaf.kind] * itemsize(match.dtypes[leaf.param]) for leaf in match.epilogue.leaves)
        written = sizes[match.out_kind] * itemsize(match.out_dtype)
        return Bound(flops=2.0 * match.products * m * n * k / match.rate, hbm_bytes=float(read + written))

    def bound_with(self, match: MatmulMatch, params: dict[str, int]) -> Bound:
        """Each operand is fetched once per block of the other, less what is kept where the blocks turn round."""
        bm, bn, bk = block_shape(match, params)
        least, depth = self.bound(match), -(-match.k // bk)
        down, across = -(-match.m // bm), -(-match.n // bn)
        left = match.m * match.k * itemsize(match.dtypes[match.lhs])
        right = match.products * match.k * match.n * itemsize(match.dtypes[match.rhs])
        if match.by_columns:
            again = right * (down - 1) * (1 - 1 / across)
        elif depth > 1:
            again = (left * (across - 1) + right * (down - 1)) * (1 - 1 / depth)
        else:  # the outer axis' operand stays for all of its steps; the renderer takes the cheaper order
            rows_outer = right * (down - 1) * (1 - 1 / across)
            again = rows_outer if match.fold >= 0 else min(rows_outer, left * (across - 1) * (1 - 1 / down))
        return Bound(flops=least.flops, hbm_bytes=least.hbm_bytes + again * match.batch)

    def estimate_ms(self, match: MatmulMatch, params: dict[str, int]) -> float:
        """Steps of the grid, each as long as its products or its copies, and the copies that nothing hides."""
        chip = chip_named(match.chip)
        bm, bn, bk = rendered_blocks(match, params)
        bm, bn = pad_up(bm, 16), pad_up(bn, 128)
        steps = match.batch * -(-match.m // bm) * -(-match.n // bn) * -(-match.k // bk)
        each = PASSES.get(match.precision, 1) if match.dots_dtype == "float32" else 1 / match.rate
        passes = match.products * each
        padded = 2.0 * bm * pad_up(bn, chip.mxu_size) * pad_up(bk, chip.mxu_size) * passes
        work = 1e3 * padded / (chip.device_tflops * 1e12)
        if bk < match.k:  # the accumulator is read and written by every step
            work += 1e-6 * match.products * bm * bn / 1024 / chip.clock_ghz
        moved = self.bound_with(match, params).hbm_bytes / (chip.device_hbm_gbs * 1e6)
        first = (bm * bk + match.products * bk * bn) * itemsize(match.dtypes[match.lhs]) / (chip.device_hbm_gbs * 1e6)
        last = bm * bn * itemsize(match.out_dtype) / (chip.device_hbm_gbs * 1e6) if match.out_kind == "full" else 0.0
        return max(steps * work, moved) + steps * STEP_MS + first + last

    def plan(self, match: MatmulMatch, params: dict[str, int]) -> Plan:
        chip, bound = chip_named(match.chip), self.bound(match)
        bm, bn, bk = block_shape(match, params)
        left, right = (match.signature.params[i] for i in (match.lhs, match.rhs))
        steps = len(match.epilogue.steps)
        both = f" and times `{match.signature.params[match.second]}`, its rows read once" if match.second >= 0 else ""
        whole_k = bk >= match.k
        return Plan(
            strategy=(
                "two products of the same rows, everything after them in one kernel" if match.second >= 0
                else "one product, everything after it in the same kernel" if steps else "tiled product"
            ),
            summary=(
                algebra_text(match)
                + (f"{match.batch} products of " if match.batch_rank else "")
                + f"`{left}` [{match.m}, {match.k}] times `{right}` [{match.k}, {match.n}]{both}, "
                + (f"then {steps} operations on each block while it is in VMEM. " if steps else "nothing after it. ")
                + _narrow_text(match)
                + ("Reductions run along whole rows, so a block holds them whole. " if match.holds_rows else "")
                + at_least(bound, chip)
            ),
            attacks=bound.attacks(chip),
            tiling=params,
            grid=(
                "(m, n) blocks, results one block of rows behind" if match.by_columns and match.out_kind == "full"
                else "(m, n) blocks" if whole_k else "(m, n, k) blocks, k innermost"
            ),
            memory=f"blocks {bm}x{bk} and {bk}x{bn}, result {bm}x{bn} in float32, all in VMEM",
            pipelining="Pallas double-buffers each block: the next is fetched while this one is multiplied",
            recipe=self.name,
            spec=match.to_dict(),
        )

    def render(self, match: MatmulMatch, params: dict[str, int]) -> str:
        text, limit = bound_text(self.bound(match), match.chip), self.vmem_limit(match, params)
        blocks, found = block_shape(match, params), match.split
        if found is not None:
            return matmul_rows_source.render(match, params, blocks, text, limit, found)
        return matmul_source.render(match, params, blocks, bound_text=text, vmem_limit=limit)


def _by_columns(match: MatmulMatch) -> MatmulMatch:
    return match.model_copy(update={"by_columns": True, "epilogue": reciprocals(match.epilogue)})


def _narrow_text(match: MatmulMatch) -> str:
    kind = match.dots_dtype
    if kind not in TWICE:
        return ""
    faster = "twice as fast as" if match.rate > 1 else "no faster than"
    return f"{kind} is multiplied as it is, on {match.chip} {faster} bfloat16. "


def fold_of(epilogue: Expression) -> int:
    """The place of the only reduction over rows, if what follows it needs nothing else of the product; else -1."""
    places = [i for i, step in enumerate(epilogue.steps) if step.op.startswith("reduce_")]
    if len(places) != 1:
        return -1
    before = {f"%{i}" for i in range(places[0])} | {"acc", "acc2"}
    wide = {f"@{i}" for i, leaf in enumerate(epilogue.leaves) if leaf.kind in ("full", "row")}
    used = {argument for step in epilogue.steps[places[0] + 1 :] for argument in step.args} | {epilogue.result}
    return -1 if used & (before | wide) else places[0]


def block_shape(match: MatmulMatch, params: dict[str, int]) -> tuple[int, int, int]:
    """(rows, columns, depth) of one step on the timing case."""
    bm = min(params["BLOCK_M"], pad_up(match.m, match.rows_unit))
    bn = match.n if match.holds_rows else min(params["BLOCK_N"], pad_up(match.n, 128))
    return bm, bn, min(params["BLOCK_K"], match.k)


def rendered_blocks(match: MatmulMatch, params: dict[str, int]) -> tuple[int, int, int]:
    """As ``block_shape``, in the sizes that the rendered module's ``_block`` really takes."""
    bm, bn, bk = block_shape(match, params)
    whole_k = params["BLOCK_K"] >= match.k
    if match.batch_rank:
        return min(bm, match.m), min(bn, match.n), match.k if whole_k else _halved(match.k, bk, 128)
    return (
        _halved(match.m, bm, match.rows_unit), match.n if match.holds_rows else _halved(match.n, bn, 128),
        match.k if whole_k else _halved(match.k, bk, 128),
    )


def _halved(size: int, limit: int, unit: int) -> int:
    return size if size <= unit else min(limit, pad_up(-(-size // 2), unit))


def _axes(match: MatmulMatch) -> dict[str, tuple[int, ...]]:
    def steps(size: int, unit: int, values: tuple[int, ...]) -> tuple[int, ...]:
        # a block is at most half of its axis (two steps), so larger values would only repeat that one; the rows of
        # one product in a batch may be a block: the next product is another step
        most = 2 * size if match.batch_rank and unit < 128 else 2 * pad_up(-(-size // 2), unit)
        useful = tuple(v for v in values if v < most)
        return useful or (unit,)

    depth = steps(match.k, 128, (256, 512, 1024, 2048, 4096))
    axes = {
        "BLOCK_M": steps(match.m, match.rows_unit, (128, 256, 512, 1024, 2048)),
        "BLOCK_N": steps(match.n, 128, (256, 512, 1024, 2048)),
        "BLOCK_K": tuple(sorted({*depth, pad_up(match.k, 128)})),
    }
    if match.holds_rows:
        del axes["BLOCK_N"]
    if match.by_columns:
        axes["BLOCK_K"] = (pad_up(match.k, 128),)
    return axes


def _guesses(match: MatmulMatch) -> list[dict[str, int]]:
    """Good first points, best first: whole depth saves accumulator traffic, wide blocks save HBM traffic."""
    axes = _axes(match)
    deepest = [k for k in axes["BLOCK_K"] if k <= 8192][::-1]
    if match.holds_rows:
        shapes = [(m, 0) for m in (512, 256, 1024, 128)]
    else:
        shapes = [(1024, 512), (2048, 512), (512, 512), (1024, 1024), (2048, 1024), (256, 256)]
    points: list[dict[str, int]] = []
    depths = axes["BLOCK_K"] if match.by_columns else (*deepest[:1], 2048, 1024, 256)
    for k in depths:
        for m, n in shapes:
            point = {"BLOCK_M": _nearest(axes["BLOCK_M"], m), "BLOCK_K": _nearest(axes["BLOCK_K"], k)}
            if not match.holds_rows:
                point["BLOCK_N"] = _nearest(axes["BLOCK_N"], n)
            if point not in points:
                points.append(point)
    return points


def _nearest(values: tuple[int, ...], wanted: int) -> int:
    return max((v for v in values if v <= wanted), default=values[0])


# Recognition


def _recognise_case(graph: Graph) -> BlockCase:
    dots = graph.live("dot")
    if len(dots) == 2 and dots[0] not in graph.ancestors(dots[1]):
        return _read_pair(graph, *dots)
    if len(dots) != 1:
        raise Declined(f"it has {len(dots)} matrix products, this recipe serves one, or two of the same rows")
    if len(graph.outputs) != 1:
        raise Declined(f"it returns {len(graph.outputs)} arrays, this recipe writes one")
    if any(graph[dots[0]].attr("batch")):
        return _read_product(graph, dots[0], rows_side=0)
    try:
        return _read_product(graph, dots[0], rows_side=0)
    except Declined as first:
        try:
            return _read_product(graph, dots[0], rows_side=1)
        except Declined:
            raise first from None


def _read_pair(graph: Graph, first: int, second: int) -> BlockCase:
    """Two products of the same rows that meet in an elementwise expression: a gated layer's two halves."""
    if len(graph.outputs) != 1:
        raise Declined(f"it returns {len(graph.outputs)} arrays, this recipe writes one")
    reads = [_operands(graph, dot, 0) for dot in (first, second)]
    (lhs, rhs), (lhs2, rhs2) = reads
    alike = [
        lhs == lhs2, rhs[1] == rhs2[1], graph[first].shape == graph[second].shape,
        graph[first].attr("precision") == graph[second].attr("precision"),
        graph[first].attr("operands") == graph[second].attr("operands"),
        _param_dtype(graph, rhs[0]) == _param_dtype(graph, rhs2[0]),
    ]
    if not all(alike):
        raise Declined("its two matrix products differ in their rows, sizes or types, so they cannot share one kernel")
    return _read_product(graph, first, rows_side=0, second=(second, rhs2[0]))


@dataclass(frozen=True)
class _Layout:
    """Sizes of a product's axes: ``over`` of its batch, ``lead`` and ``tail`` of its result (batch included)."""

    over: tuple[int, ...]
    lead: tuple[int, ...]
    tail: tuple[int, ...]
    points: tuple[np.ndarray, np.ndarray, np.ndarray]


def _layout(graph: Graph, dot: int, rows_side: int) -> _Layout:
    node = graph[dot]
    if any(len(side) != 1 for side in node.attr("contract")):
        raise Declined("the product contracts several dimensions at once")
    batches = node.attr("batch")
    free = [
        tuple(s for axis, s in enumerate(graph[i].shape) if axis not in (*node.attr("contract")[side], *batches[side]))
        for side, i in enumerate(node.inputs)
    ]
    over = tuple(graph[node.inputs[0]].shape[axis] for axis in batches[0])
    if over and any(len(side) != 1 for side in free):
        raise Declined("a product in a batch has several row or column axes")
    lead, tail = (*over, *free[rows_side]), free[1 - rows_side]
    k = graph[node.inputs[0]].shape[node.attr("contract")[0][0]]
    row, col, depth = sample_points((volume(lead), volume(tail), k))
    return _Layout(over, lead, tail, (row, col, depth))


def _operands(graph: Graph, dot: int, rows_side: int) -> tuple[tuple[int, bool], tuple[int, bool]]:
    """(parameter, contraction first?) of the rows and of the columns."""
    node, lay = graph[dot], _layout(graph, dot, rows_side)
    row, col, depth = lay.points
    forms = []
    for side, across, sizes in ((rows_side, row, lay.lead), (1 - rows_side, col, lay.tail)):
        if lay.over:  # one index more, from the front, on both sides
            across, sizes = row // lay.lead[-1] * sizes[-1] + across % sizes[-1], (*lay.over, sizes[-1])
        forms.append(operand(graph, node.inputs[side], node.attr("contract")[side][0], across, sizes, depth,
                             node.attr("batch")[side], narrow=True))
    return forms[0], forms[1]


def _read_product(graph: Graph, dot: int, rows_side: int, second: tuple[int, int] = (-1, -1)) -> BlockCase:
    """``second``: another product of the same rows, as its node and the parameter of its columns."""
    node = graph[dot]
    lay = _layout(graph, dot, rows_side)
    over, lead, tail, (row, col, _) = lay.over, lay.lead, lay.tail, lay.points
    m, n = volume(lead), volume(tail)
    k = graph[node.inputs[0]].shape[node.attr("contract")[0][0]]
    (lhs, lhs_k_first), (rhs, rhs_k_first) = _operands(graph, dot, rows_side)
    whole = any(_param_dtype(graph, i) == WHOLE for i in (lhs, rhs))
    if whole and not (("float" in node.dtype or node.dtype == "int32") and "float" in graph.output_dtypes[0]):
        raise Declined("an int8 input is served only where the product is a float, or of int32 and made a float later")
    reader = BlockReader(graph, dot, (m, n), (row, col), swapped=bool(rows_side),
                         second=second[0] if second[0] >= 0 else None)
    output = graph.outputs[0]
    out_shape = graph[output].shape
    narrowed = tuple(
        node.attr("operands")[side] == "bfloat16" and _param_dtype(graph, number) == "float32"
        for side, number in ((rows_side, lhs), (1 - rows_side, rhs))
    )
    kind, result = reader.read_output(output, out_shape)
    form = output_form(kind, out_shape, lead, tail)
    if over and (form not in ("lead_tail", "lead", "lead_1") or lhs_k_first):
        raise Declined("the products of a batch are laid out with the rows before the batch, or their rows lie last")
    dims = {"n": n, "k": k, "m": m // volume(over)}
    params = [graph[p] for p in sorted(_params(graph), key=lambda p: graph[p].attr("index"))]
    return BlockCase(reader, result, dims, {
        "batch_rank": len(over),
        "lhs": lhs, "rhs": rhs, "lhs_form": "km" if lhs_k_first else "mk", "rhs_form": "kn" if rhs_k_first else "nk",
        "lhs_rank": len(lead) + 1, "rhs_rank": len(over) + len(tail) + 1, "out_kind": kind, "output_form": form,
        "precision": node.attr("precision"),
        "narrowed": narrowed, "second": second[1],
        "dtypes": tuple(p.dtype for p in params), "out_dtype": graph.output_dtypes[0], "whole_rows": reader.reduces,
    }, sizes={"batch": volume(over)})


def _params(graph: Graph) -> list[int]:
    return [n for n, node in enumerate(graph.nodes) if node.op == "param"]


def _param_dtype(graph: Graph, index: int) -> str:
    return next(graph[n].dtype for n in _params(graph) if graph[n].attr("index") == index)


def operand(
    graph: Graph, number: int, contract: int, across: np.ndarray, sizes: tuple[int, ...], depth: np.ndarray,
    batch: tuple[int, ...] = (), narrow: bool = False,
) -> tuple[int, bool]:
    """(parameter, contraction first?) of one operand, which has to be an input, perhaps transposed or flattened.

    ``batch``: its batch axes, whose sizes are the first of ``sizes``. ``narrow``: it may be of int8, also made a float
    on the way, or of float8.
    """
    points = unflatten(across, sizes)
    placed = dict(zip((*batch, contract), (*points[: len(batch)], depth), strict=True))
    rest = iter(points[len(batch) :])
    indices = [placed[axis] if axis in placed else next(rest) for axis in range(len(sizes) + 1)]
    base, at = base_of(graph, number, tuple(indices))
    if narrow and graph[base].op == "cast" and graph[graph[base].inputs[0]].dtype == WHOLE:
        base, at = base_of(graph, graph[base].inputs[0], at)
    node = graph[base]
    if node.op != "param":
        raise Declined(f"an operand of the product is {describe(graph, base)}, not an input")
    if node.dtype not in (*FLOATS, *((WHOLE, *EIGHTHS) if narrow else ())):
        taken = "float32, bfloat16, float8 and int8" if narrow else "float32 and bfloat16"
        raise Declined(f"an operand of the product is {node.dtype}, this recipe takes {taken}")
    if len(node.shape) != len(sizes) + 1:
        raise Declined(f"an operand of the product is a reshaped input of shape {list(node.shape)}")
    if (at[-1] == depth).all() and (flat(at[:-1], node.shape[:-1]) == across).all():
        return node.attr("index"), False
    depth_at, size = len(batch), node.shape
    others = (*at[:depth_at], *at[depth_at + 1 :])
    if (at[depth_at] == depth).all() and (flat(others, size[:depth_at] + size[depth_at + 1 :]) == across).all():
        return node.attr("index"), True
    raise Declined(f"an operand of the product is a permuted input of shape {list(node.shape)}")
