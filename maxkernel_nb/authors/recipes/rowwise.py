"""Recipe: row by row: norms, softmax, reductions and elementwise chains that read every value once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from maxkernel_nb.authors.base import TuningSpace
from maxkernel_nb.authors.recipes import rowwise_source
from maxkernel_nb.authors.recipes.base import (
    MIB,
    VMEM_MARGIN,
    Bound,
    Match,
    Recipe,
    algebra_text,
    bound_text,
    check_axes,
    check_vmem,
    itemsize,
    pad_up,
)
from maxkernel_nb.authors.recipes.block_case import BlockCase, read_cases
from maxkernel_nb.authors.recipes.blocks import FLOATS, BlockReader, output_form
from maxkernel_nb.authors.recipes.expressions import Expression, Leaf, describe
from maxkernel_nb.authors.recipes.graph import REDUCTIONS, Graph
from maxkernel_nb.authors.recipes.views import Indices, base_of, sample_points, volume
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import KernelTask, Plan
from maxkernel_nb.tpu.chips import chip as chip_named

_WIDEST = 512  # columns of a weight that is kept in VMEM whole


class RowwiseMatch(Match):
    """``out = body(leaves)`` on rows [m, n]; leaf kinds: ``full`` [m, n], ``row`` [1, n], ``col`` [m, 1], ``scalar``,
    and ``matrix`` [n, n], a weight that rows are multiplied with.

    ``shaped_by``: the parameter whose leading axes are the rows. ``output_form``: how the result is shaped from
    [m, n] or [m, 1].
    """

    m: int
    n: int
    dtypes: tuple[str, ...]
    out_dtype: str
    out_kind: Literal["full", "col"]
    output_form: Literal["lead_tail", "lead_n", "m_n", "lead", "lead_1", "m", "m_1"]
    shaped_by: int
    rank: int  # of ``shaped_by``
    tail_rank: int  # its axes that make up a row
    body: Expression


class RowwiseRecipe(Recipe):
    name = "rows"
    title = "row by row in one pass"
    match_type = RowwiseMatch
    limits = (
        "reductions run over whole rows (the last axes), so a few rows have to fit the VMEM",
        "float32 and bfloat16 inputs; products of rows only with square bfloat16 weights up to 512 wide, beside others",
        "one result, shaped like the rows or with one value a row",
    )

    def recognise(self, traces: Mapping[str, Any], task: KernelTask) -> RowwiseMatch:
        _, expression, fields = read_cases(traces, task, _recognise_case)
        return RowwiseMatch(body=expression, **fields)

    def space(self, match: RowwiseMatch) -> TuningSpace:
        values = [v for v in (16, 32, 64, 128, 256, 512, 1024, 2048) if v < 2 * pad_up(match.m, 16)] or [16]
        limit = chip_named(match.chip).vmem_bytes - VMEM_MARGIN
        fitting = tuple(v for v in values if self.vmem_bytes(match, {"BLOCK_M": v}) <= limit)
        if not fitting:
            raise Declined(f"not even 16 rows of {match.n} elements fit the VMEM of {match.chip}")
        # about 4 MiB a step hides the start of a copy; more only lengthens the first and the last
        best = sorted(fitting, key=lambda v: abs(self._moved(match, v) - 4 * MIB))
        return TuningSpace(axes={"BLOCK_M": fitting}, seeds=tuple({"BLOCK_M": v} for v in best[:4]))

    def check(self, match: RowwiseMatch, params: dict[str, int]) -> None:
        check_axes(params, TuningSpace(axes={"BLOCK_M": ()}))
        rows = params["BLOCK_M"]
        if rows < 16 or rows % 16:
            raise Declined(f"BLOCK_M={rows} is not a multiple of 16, the tile of the TPU's registers")
        check_vmem(self.vmem_bytes(match, params), chip_named(match.chip))

    def _moved(self, match: RowwiseMatch, rows: int) -> int:
        area = {"full": rows * match.n, "row": 8 * match.n, "col": rows * 128, "scalar": 0, "matrix": match.n**2}
        moved = sum(area[leaf.kind] * itemsize(match.dtypes[leaf.param]) for leaf in match.body.leaves)
        return moved + area[match.out_kind] * itemsize(match.out_dtype)

    def vmem_bytes(self, match: RowwiseMatch, params: dict[str, int]) -> int:
        rows = min(params["BLOCK_M"], pad_up(match.m, 16))
        # the values between two reductions over a row do not fit the registers: a few float32 copies of a block
        reductions = sum(step.op in REDUCTIONS or step.op == "dot" for step in match.body.steps)
        return 2 * self._moved(match, rows) + rows * pad_up(match.n, 128) * 4 * min(3, 1 + reductions)

    def bound(self, match: RowwiseMatch) -> Bound:
        sizes = {"full": match.m * match.n, "row": match.n, "col": match.m, "scalar": 1, "matrix": match.n**2}
        moved = sum(sizes[leaf.kind] * itemsize(match.dtypes[leaf.param]) for leaf in match.body.leaves)
        products = sum(step.op == "dot" for step in match.body.steps)
        moved += sizes[match.out_kind] * itemsize(match.out_dtype)
        return Bound(flops=2.0 * products * match.m * match.n**2, hbm_bytes=float(moved))

    def plan(self, match: RowwiseMatch, params: dict[str, int]) -> Plan:
        chip, bound = chip_named(match.chip), self.bound(match)
        steps, rows = len(match.body.steps), min(params["BLOCK_M"], match.m)
        return Plan(
            strategy="whole rows in VMEM, every value read once and written once",
            summary=(
                algebra_text(match)
                + f"{match.m} rows of {match.n} elements, {steps} operations on {rows} rows at a time while they are "
                f"in VMEM, in float32. At least {bound.hbm_bytes / 1e6:.1f} MB: no kernel on {chip.name} can take less "
                f"than {bound.milliseconds(chip):.3f} ms."
            ),
            attacks=bound.attacks(chip),
            tiling=params,
            grid="blocks of rows, all independent",
            memory=f"{rows} rows of {match.n} elements of every array",
            pipelining="Pallas double-buffers: the next rows are fetched while these are worked on",
            recipe=self.name,
            spec=match.to_dict(),
        )

    def render(self, match: RowwiseMatch, params: dict[str, int]) -> str:
        limit = self.vmem_limit(match, params)
        return rowwise_source.render(match, params, bound_text(self.bound(match), match.chip), limit)


# Recognition


class RowReader(BlockReader):
    """Reads products of rows with a square weight too: rows stay rows of the same width."""

    def compute(self, number: int, indices: Indices) -> str:
        return self.product(number, indices) if self.graph[number].op == "dot" else super().compute(number, indices)

    def product(self, number: int, indices: Indices) -> str:
        node = self.graph[number]
        rows, weight = node.inputs
        last = len(self.graph[rows].shape) - 1
        along = node.attr("contract") == ((last,), (0,)) and not node.attr("batch")[0]
        if not along or self.graph[weight].op != "param" or self.graph[weight].shape != (self.n, self.n):
            raise Declined(f"{describe(self.graph, number)} is no product of rows of {self.n} with a square weight")
        if self.n > _WIDEST or set(node.attr("operands")) != {"bfloat16"} or node.attr("precision"):
            raise Declined(f"{describe(self.graph, number)} is not of bfloat16 with a weight of at most {_WIDEST}")
        outer, self.col = self.col, sample_points((self.n,), len(self.row), seed=3)[0]
        at = (*(np.broadcast_to(i, self.row.shape) for i in indices[:-1]), self.col)
        child, place = base_of(self.graph, rows, at)
        if self.graph[child].op == "const" or self.place(child, place) != "full":
            raise Declined(f"{describe(self.graph, number)} is of rows that are all the same")
        argument = self.read(rows, at)
        self.col = outer
        return self.step("dot", (argument, self.add_leaf(Leaf(param=self.graph[weight].attr("index"), kind="matrix"))))


def _recognise_case(graph: Graph) -> BlockCase:
    products = graph.live("dot")
    if len(products) == 1 and not any(graph.live(op) for op in REDUCTIONS):
        raise Declined("it has a matrix product alone, this recipe serves those of rows beside others or reductions")
    if len(graph.outputs) != 1:
        raise Declined(f"it returns {len(graph.outputs)} arrays, this recipe writes one")
    if graph.output_dtypes[0] not in FLOATS:
        raise Declined(f"it returns {graph.output_dtypes[0]}, this recipe writes float32 and bfloat16")
    lead, tail = _split(graph)
    m, n = volume(lead), volume(tail)
    points = sample_points((m, n))
    reader = RowReader(graph, None, (m, n), (points[0], points[1]))
    output = graph.outputs[0]
    shape = graph[output].shape
    kind, result = reader.read_output(output, shape)
    params = sorted((node for node in graph.nodes if node.op == "param"), key=lambda p: p.attr("index"))
    read = [leaf.param for leaf in reader.leaves if leaf.kind == "full"]
    if not read:
        raise Declined("no input is read whole, row by row")
    shaped_by = next((i for i in read if params[i].shape == (*lead, *tail)), read[0])
    rank = len(params[shaped_by].shape)
    return BlockCase(reader, result, {"n": n, "m": m}, {
        "dtypes": tuple(p.dtype for p in params), "out_dtype": graph.output_dtypes[0], "out_kind": kind,
        "output_form": output_form(kind, shape, lead, tail), "shaped_by": shaped_by, "rank": rank,
        "tail_rank": len(tail),
    })  # fmt: skip


def _split(graph: Graph) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of the rows' index and of a row: by the largest value that is reduced, else the result's last axis."""
    found = [n for op in sorted(REDUCTIONS) for n in graph.live(op)]
    if not found:
        shape = graph[graph.outputs[0]].shape
        if not shape:
            raise Declined("it returns a single number and reduces nothing")
        return shape[:-1], shape[-1:]
    largest = max(found, key=lambda n: graph[graph[n].inputs[0]].size)
    axes, shape = graph[largest].attr("axes"), graph[graph[largest].inputs[0]].shape
    if axes != tuple(range(len(shape) - len(axes), len(shape))):
        raise Declined(f"it reduces axes {list(axes)} of {list(shape)}, not the last ones")
    cut = len(shape) - len(axes)
    return shape[:cut], shape[cut:]
