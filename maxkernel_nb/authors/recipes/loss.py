"""Recipe: a linear layer and what a loss reads of its logits: cross-entropy without the logits in HBM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from maxkernel_nb.authors.base import TuningSpace
from maxkernel_nb.authors.recipes import loss_source
from maxkernel_nb.authors.recipes.aligned import Aligned
from maxkernel_nb.authors.recipes.base import (
    STEP_MS,
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
from maxkernel_nb.authors.recipes.blocks import BlockReader
from maxkernel_nb.authors.recipes.canonical import ELEMENTWISE
from maxkernel_nb.authors.recipes.expressions import Expression
from maxkernel_nb.authors.recipes.graph import Graph
from maxkernel_nb.authors.recipes.matmul import operand
from maxkernel_nb.authors.recipes.plain import Plain
from maxkernel_nb.authors.recipes.row_statistics import PRIMITIVE, STATISTICS, Statistics
from maxkernel_nb.authors.recipes.views import sample_points, volume
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import KernelTask, Plan
from maxkernel_nb.tpu.chips import chip as chip_named

_MOST_LOGITS = 1 << 20  # of a step: each is worked on by straight-line code


class LossMatch(Match):
    """``statistics`` of each row of ``logits = epilogue(rows @ columns)`` in a kernel, the rest in plain JAX.

    rows [m, k] from parameter ``lhs``, columns from ``rhs`` as ``rhs_form`` says. ``label``: source of the labels (m
    integers), empty where no value is picked. ``before``, ``after``: lines around the kernel; ``result``: what is
    returned. ``by_lane``: each of a row's 128 lanes keeps statistics of its own until the last block: nothing crosses
    the lanes in a step, but each step rescales 128 sums a row.
    """

    lhs: int
    rhs: int
    rhs_form: Literal["kn", "nk"]
    lhs_rank: int
    m: int
    n: int
    k: int
    dtypes: tuple[str, ...]
    precision: str = ""
    epilogue: Expression
    statistics: tuple[str, ...]
    label: str = ""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    result: str
    by_lane: bool = False


class LossRecipe(Recipe):
    name = "loss"
    title = "linear layer and loss without the logits in HBM"
    match_type = LossMatch
    limits = (
        "one product of two inputs as they are, its rows' depth whole in VMEM",
        "logits may be read by sums, largest, sums of exponentials and one label a row; they are not returned",
        "float32 and bfloat16 inputs, whole-number labels",
    )

    def recognise(self, traces: Mapping[str, Any], task: KernelTask) -> LossMatch:
        found, expression, fields = read_cases(traces, task, _recognise_case)
        aligned = Aligned([f.rest for f in found if f.rest is not None])
        names = {n: (task.params[aligned[n].attr("index")], aligned[n].dtype)
                 for n in range(len(aligned)) if aligned[n].op == "param"}
        words = ("rows", "columns", "m", "n", "k", "block_m", "block_n")
        taken = {*task.params, *task.parameters, *task.static, *STATISTICS, *words}
        plain = Plain(aligned, names, task.static, taken)
        nodes = {n: STATISTICS[aligned[n].attr("output")] for n in range(len(aligned)) if _is_statistic(aligned, n)}
        label = ""
        for number, name in nodes.items():
            if name == "picked":
                own = aligned.inputs(number)[0]
                plain.write(own)
                label = plain.as_dtype(own, "int32")
        before, plain.lines = tuple(plain.lines), []
        for number, name in nodes.items():
            plain.define(number, name, "float32")
        plain.write(*aligned.outputs)
        result = plain.as_dtype(aligned.outputs[0], aligned.graphs[0].output_dtypes[0])
        return LossMatch(
            epilogue=expression,
            statistics=tuple(s for s in STATISTICS if s in nodes.values()), label=label, before=before,
            after=tuple(plain.lines), result=result, **fields,
        )

    def others(self, match: LossMatch) -> tuple[LossMatch, ...]:
        return () if match.by_lane else (match.model_copy(update={"by_lane": True}),)

    def space(self, match: LossMatch) -> TuningSpace:
        axes = {
            "BLOCK_M": tuple(v for v in (128, 256, 512, 1024, 2048) if v < 2 * pad_up(match.m, 16)) or (16,),
            "BLOCK_N": tuple(v for v in (256, 512, 1024, 2048) if v < 2 * pad_up(match.n, 128)) or (128,),
            "PARTS": (1, 2, 4),
        }
        fitting = [{"BLOCK_M": m, "BLOCK_N": n, "PARTS": parts} for m in axes["BLOCK_M"][::-1]
                   for n in axes["BLOCK_N"] for parts in axes["PARTS"] if self._works(match, m, n, parts)]
        if not fitting:
            raise Declined(f"not even {axes['BLOCK_M'][0]} rows of depth {match.k} fit the VMEM of {match.chip}")
        least = min(self.estimate_ms(match, p) for p in fitting)
        # of estimates that are about the same the fewest rows: such a kernel compiles in less than half the time
        seeds = sorted(fitting, key=lambda p: (round(self.estimate_ms(match, p) / least, 2), p["BLOCK_M"]))
        return TuningSpace(axes=axes, seeds=tuple(seeds[:6]))

    def _works(self, match: LossMatch, m: int, n: int, parts: int) -> bool:
        params = {"BLOCK_M": m, "BLOCK_N": n, "PARTS": parts}
        try:
            self._check_parts(params)
        except Declined:
            return False
        return self.vmem_bytes(match, params) <= chip_named(match.chip).vmem_bytes - VMEM_MARGIN

    def check(self, match: LossMatch, params: dict[str, int]) -> None:
        check_axes(params, TuningSpace(axes={"BLOCK_M": (), "BLOCK_N": (), "PARTS": ()}))
        for name, unit in (("BLOCK_M", 16), ("BLOCK_N", 128)):
            if params[name] < unit or params[name] % unit:
                raise Declined(f"{name}={params[name]} is not a multiple of {unit}, the tile of the TPU's registers")
        self._check_parts(params)
        check_vmem(self.vmem_bytes(match, params), chip_named(match.chip))

    def _check_parts(self, params: dict[str, int]) -> None:
        if params["BLOCK_M"] * params["BLOCK_N"] > _MOST_LOGITS:
            raise Declined(f"{params['BLOCK_M']} x {params['BLOCK_N']} logits a step would take minutes to compile")
        if params["PARTS"] < 1 or params["BLOCK_N"] % (128 * params["PARTS"]):
            raise Declined(f"PARTS={params['PARTS']} does not cut {params['BLOCK_N']} columns into whole tiles of 128")

    def vmem_bytes(self, match: LossMatch, params: dict[str, int]) -> int:
        bm, bn = self._blocks(match, params)
        k = pad_up(match.k, 128)
        moving = bm * k * itemsize(match.dtypes[match.lhs]) + bn * k * itemsize(match.dtypes[match.rhs])
        area = {"full": bm * bn, "row": 8 * bn, "col": bm * 128, "scalar": 0}
        moving += sum(area[leaf.kind] * itemsize(match.dtypes[leaf.param]) for leaf in match.epilogue.leaves)
        moving += bm * 512 * (len(match.statistics) + bool(match.label))
        return 2 * moving + 5 * bm * 512 + 3 * bm * bn * 4

    def _blocks(self, match: LossMatch, params: dict[str, int]) -> tuple[int, int]:
        return min(params["BLOCK_M"], pad_up(match.m, 16)), params["BLOCK_N"]

    def bound(self, match: LossMatch) -> Bound:
        m, n, k = match.m, match.n, match.k
        sizes = {"full": m * n, "row": n, "col": m, "scalar": 1}
        moved = m * k * itemsize(match.dtypes[match.lhs]) + k * n * itemsize(match.dtypes[match.rhs])
        moved += sum(sizes[leaf.kind] * itemsize(match.dtypes[leaf.param]) for leaf in match.epilogue.leaves)
        return Bound(flops=2.0 * m * n * k, hbm_bytes=float(moved + 4 * m * len(match.statistics)))

    def bound_with(self, match: LossMatch, params: dict[str, int]) -> Bound:
        least, (bm, _) = self.bound(match), self._blocks(match, params)
        again = match.k * match.n * itemsize(match.dtypes[match.rhs]) * (-(-match.m // bm) - 1)
        return Bound(flops=least.flops, hbm_bytes=least.hbm_bytes + again)

    def estimate_ms(self, match: LossMatch, params: dict[str, int]) -> float:
        chip, (bm, bn) = chip_named(match.chip), self._blocks(match, params)
        steps = -(-match.m // bm) * -(-match.n // bn)
        padded = -(-match.m // bm) * bm * -(-match.n // bn) * bn
        # about 14 vector operations a logit, four a cycle, partly beside the products; four parts spill registers
        beside = padded * 14 / 4 / 1024 / chip.clock_ghz * 1e-6 * {1: 0.9, 2: 0.6}.get(params["PARTS"], 1.2)
        return self.bound_with(match, params).milliseconds(chip) + beside + steps * STEP_MS

    def plan(self, match: LossMatch, params: dict[str, int]) -> Plan:
        chip, bound = chip_named(match.chip), self.bound(match)
        bm, bn = self._blocks(match, params)
        left, right = (match.signature.params[i] for i in (match.lhs, match.rhs))
        names = " and ".join(match.statistics)
        return Plan(
            strategy="logits block by block in VMEM, a few numbers a "
                     + ("lane of each row" if match.by_lane else "row") + " kept of them",
            summary=(
                algebra_text(match)
                + f"`{left}` [{match.m}, {match.k}] times `{right}` gives {match.n} logits a row; of each row only "
                f"{names} are kept, brought up to date with every block, so {match.m * match.n * 2 / 1e9:.2g} GB of "
                f"logits never exist. At least {bound.flops / 1e9:.1f} GFLOP: no kernel on {chip.name} can take less "
                f"than {bound.milliseconds(chip):.3f} ms."
            ),
            attacks=bound.attacks(chip),
            tiling=params,
            grid="(m, n) blocks, n innermost and in order",
            memory=f"{bm} rows and {bn} columns of whole depth {match.k}, {bm} rows' statistics in float32",
            pipelining="Pallas double-buffers the columns; a row block stays for all of its columns",
            recipe=self.name,
            spec=match.to_dict(),
        )

    def render(self, match: LossMatch, params: dict[str, int]) -> str:
        limit = self.vmem_limit(match, params)
        return loss_source.render(match, params, bound_text(self.bound(match), match.chip), limit)


# Recognition


def _is_statistic(aligned: Aligned, number: int) -> bool:
    node = aligned[number]
    return node.op == "other" and node.attr("primitive") == PRIMITIVE


def _recognise_case(graph: Graph) -> BlockCase:
    dots = graph.live("dot")
    if len(dots) != 1:
        raise Declined(f"it has {len(dots)} matrix products, this recipe serves exactly one")
    if len(graph.outputs) != 1:
        raise Declined(f"it returns {len(graph.outputs)} arrays, this recipe writes one")
    dot = dots[0]
    node = graph[dot]
    if any(node.attr("batch")) or any(len(side) != 1 for side in node.attr("contract")):
        raise Declined("the product has batch dimensions or contracts several at once")
    core = _core(graph, dot)
    rest = Statistics(graph, core).rebuilt()
    if not any(n.op == "other" and n.attr("primitive") == PRIMITIVE for n in (rest[i] for i in rest.reachable())):
        raise Declined("nothing is reduced along the rows of the product")
    lead = tuple(s for axis, s in enumerate(graph[node.inputs[0]].shape) if axis not in node.attr("contract")[0])
    tail = tuple(s for axis, s in enumerate(graph[node.inputs[1]].shape) if axis not in node.attr("contract")[1])
    m, n = volume(lead), volume(tail)
    k = graph[node.inputs[0]].shape[node.attr("contract")[0][0]]
    row, col, depth = sample_points((m, n, k))
    lhs, k_first = operand(graph, node.inputs[0], node.attr("contract")[0][0], row, lead, depth)
    rhs, rhs_k_first = operand(graph, node.inputs[1], node.attr("contract")[1][0], col, tail, depth)
    if k_first or len(tail) != 1:
        raise Declined("the rows are read transposed, or the logits have several axes")
    reader = BlockReader(graph, dot, (m, n), (row, col))
    _, result = reader.read_output(core, graph[core].shape)
    params = sorted((p for p in graph.nodes if p.op == "param"), key=lambda p: p.attr("index"))
    return BlockCase(reader, result, {"n": n, "k": k, "m": m}, {
        "lhs": lhs, "rhs": rhs, "rhs_form": "kn" if rhs_k_first else "nk", "lhs_rank": len(lead) + 1,
        "precision": node.attr("precision"), "dtypes": tuple(p.dtype for p in params),
    }, rest)


def _core(graph: Graph, dot: int) -> int:
    """The logits: the product and what is done to each of its values alone, one thing after the other."""
    users: dict[int, list[int]] = {}
    for number in graph.reachable():
        for source in graph[number].inputs:
            users.setdefault(source, []).append(number)
    core, size = dot, graph[dot].size
    while len(after := users.get(core, [])) == 1:
        node = graph[after[0]]
        own = [i for i in node.inputs if i == core]
        others = graph.ancestors(*(i for i in node.inputs if i != core)) if len(node.inputs) > 1 else set()
        plain = node.op in ELEMENTWISE and node.op != "exp" and node.size == size and len(own) == 1
        if not plain or core in others or any(_counts(graph[i]) for i in others):
            break
        core = after[0]
    return core


def _counts(node: Any) -> bool:
    """A position or whole numbers: the beginning of a label, not of a logit."""
    return node.op == "iota" or (node.op == "param" and "float" not in node.dtype)
