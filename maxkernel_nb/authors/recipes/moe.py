"""Recipe: mixture of experts written densely (every expert on every token), done sparsely: chosen experts only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from maxkernel_nb.authors.base import TuningSpace
from maxkernel_nb.authors.recipes import moe_source
from maxkernel_nb.authors.recipes.aligned import Aligned
from maxkernel_nb.authors.recipes.around import Around, aligned_cases
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
from maxkernel_nb.authors.recipes.expressions import Expression, Reader, combine
from maxkernel_nb.authors.recipes.graph import Graph
from maxkernel_nb.authors.recipes.grouped import check_tiles
from maxkernel_nb.authors.recipes.signature import signature_of
from maxkernel_nb.authors.recipes.views import Indices, evaluate, is_positional, sample_points, volume
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import KernelTask, Plan
from maxkernel_nb.tpu.chips import chip as chip_named


class MoeMatch(Match):
    """``out[t] = sum_j share[t, j] * (hidden(x[t] @ ups[chosen[t, j]]) @ down[chosen[t, j]])``.

    x [tokens, d], each of ``ups`` [experts, d, width], down [experts, width, d_out]. ``hidden`` reads the products as
    ``acc0``, ``acc1``. ``chosen``, ``share``: source of [tokens, picks] values, made by the lines ``before``.
    """

    x: str
    ups: tuple[str, ...]
    down: str
    chosen: str
    share: str
    tokens: int
    picks: int
    experts: int
    depth: int
    width: int
    out_width: int
    dtype: str
    hidden: Expression
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    result: str


class MoeRecipe(Recipe):
    name = "experts"
    title = "mixture of experts: chosen experts only"
    match_type = MoeMatch
    limits = (
        "experts' answers weighted by one-hot choices times shares: what is not chosen must have no part in the result",
        "an expert is one or two products, something elementwise, and one product more; weights [experts, in, out]",
        "float32 and bfloat16; depth and width of an expert whole in VMEM",
    )

    def recognise(self, traces: Mapping[str, Any], task: KernelTask) -> MoeMatch:
        aligned = aligned_cases(traces, task, _enough_products)
        parts = _parts(aligned)
        inputs = {parts.chosen: "int32", parts.share: "float32"}
        operands = (parts.x, *parts.ups, parts.down)
        dtypes = {aligned[i].dtype for i in operands}
        if len(dtypes) != 1 or any(aligned[i].op != "param" for i in operands):
            raise Declined("tokens and experts' weights are not all inputs of one dtype")
        around = Around(aligned, task, inputs, ("out", "tokens", "chosen", "share", "order", "sizes", "hidden"))
        root = parts.root
        after, result = ((), "out") if root == aligned.outputs[0] else around.finish(root, "out", "float32")
        if root == aligned.outputs[0] and aligned.graphs[0].output_dtypes[0] != "float32":
            result = f"out.astype(jnp.{aligned.graphs[0].output_dtypes[0]})"
        x, up, down = (aligned[i].shape for i in (parts.x, parts.ups[0], parts.down))
        names = {i: task.params[aligned[i].attr("index")] for i in operands}
        return MoeMatch(
            signature=signature_of(task), chip=task.chip, algebra=algebra_of(traces, task), x=names[parts.x],
            ups=tuple(names[i] for i in parts.ups), down=names[parts.down], chosen=around.names[parts.chosen],
            share=around.names[parts.share], tokens=volume(x[:-1]), picks=aligned[parts.chosen].shape[-1],
            experts=up[0], depth=up[1], width=up[2], out_width=down[2], dtype=dtypes.pop(), hidden=parts.hidden,
            before=around.before, after=after, result=result,
        )

    def space(self, match: MoeMatch) -> TuningSpace:
        rows = match.tokens * match.picks
        axes = {
            "BLOCK_M": tuple(v for v in (64, 128, 256, 512, 1024) if v * match.experts <= 2 * rows) or (16,),
            "BLOCK_WIDTH": _columns(match.width), "BLOCK_OUT": _columns(match.out_width),
        }
        limit = chip_named(match.chip).vmem_bytes - VMEM_MARGIN
        if not axes["BLOCK_WIDTH"] or not axes["BLOCK_OUT"]:
            sizes = f"[{match.depth}, {match.width}, {match.out_width}]"
            raise Declined(f"no block of 128 columns divides experts of {sizes}")
        points = [{"BLOCK_M": m, "BLOCK_WIDTH": w, "BLOCK_OUT": o}
                  for m in axes["BLOCK_M"] for w in axes["BLOCK_WIDTH"] for o in axes["BLOCK_OUT"]]
        fitting = [p for p in points if self.vmem_bytes(match, p) <= limit]
        if not fitting:
            raise Declined(f"no block of an expert of [{match.depth}, {match.width}] fits the VMEM of {match.chip}")
        return TuningSpace(axes=axes, seeds=tuple(sorted(fitting, key=lambda p: self.estimate_ms(match, p))[:6]))

    def check(self, match: MoeMatch, params: dict[str, int]) -> None:
        check_axes(params, TuningSpace(axes={"BLOCK_M": (), "BLOCK_WIDTH": (), "BLOCK_OUT": ()}))
        check_tiles(params, {"BLOCK_M": 16, "BLOCK_WIDTH": 128, "BLOCK_OUT": 128})
        check_vmem(self.vmem_bytes(match, params), chip_named(match.chip))

    def vmem_bytes(self, match: MoeMatch, params: dict[str, int]) -> int:
        size = itemsize(match.dtype)
        bm = min(params["BLOCK_M"], pad_up(match.tokens * match.picks, 16))
        widths = (min(params["BLOCK_WIDTH"], match.width), min(params["BLOCK_OUT"], match.out_width))
        up = _vmem(bm, widths[0], match.depth, len(match.ups), size)
        return max(up, _vmem(bm, widths[1], match.width, 1, size))

    def _products(self, match: MoeMatch) -> tuple[Bound, Bound]:
        """Up and down: work, and what each moves at least."""
        rows, size = match.tokens * match.picks, itemsize(match.dtype)
        sizes = ((len(match.ups), match.depth, match.width), (1, match.width, match.out_width))
        up, down = (
            Bound(flops=2.0 * count * rows * k * n, hbm_bytes=float(
                size * (count * match.experts * k * n + rows * k + rows * n))) for count, k, n in sizes
        )
        return up, down

    def bound(self, match: MoeMatch) -> Bound:
        up, down = self._products(match)
        size = itemsize(match.dtype)
        weights = match.experts * match.width * (len(match.ups) * match.depth + match.out_width)
        moved = size * (weights + match.tokens * match.depth) + 4 * match.tokens * match.out_width
        return Bound(flops=up.flops + down.flops, hbm_bytes=float(moved))

    def bound_with(self, match: MoeMatch, params: dict[str, int]) -> Bound:
        up, down = self._products(match)
        return Bound(flops=up.flops + down.flops, hbm_bytes=max(self.bound(match).hbm_bytes,
                                                                up.hbm_bytes + down.hbm_bytes))

    def estimate_ms(self, match: MoeMatch, params: dict[str, int]) -> float:
        """A block of rows is fetched once, all of its expert's weights for each such block."""
        up, down = self._products(match)
        chip, size, bm = chip_named(match.chip), itemsize(match.dtype), params["BLOCK_M"]
        rows = match.tokens * match.picks
        blocks, total = -(-rows // bm) + match.experts - 1, 0.0
        for bound, weight, depth, columns in (
            (up, len(match.ups) * match.depth * match.width, match.depth, match.width // params["BLOCK_WIDTH"]),
            (down, match.width * match.out_width, match.width, match.out_width // params["BLOCK_OUT"]),
        ):
            work = bound.compute_s(chip) * blocks * max(bm, chip.mxu_size) / rows
            moved = bound.hbm_bytes + ((blocks - match.experts) * weight + (blocks * bm - rows) * depth) * size
            total += 1e3 * max(work, moved / (chip.device_hbm_gbs * 1e9)) + blocks * columns * STEP_MS
        return total

    def plan(self, match: MoeMatch, params: dict[str, int]) -> Plan:
        chip, bound = chip_named(match.chip), self.bound(match)
        dense = match.experts / match.picks
        return Plan(
            strategy="tokens laid out by expert, products of chosen experts only",
            summary=(
                algebra_text(match)
                + f"{match.tokens} tokens, {match.picks} of {match.experts} experts each. Experts that a token has not "
                f"chosen have no part in its result, so they are not run: {dense:.3g} times less work than every "
                f"expert on every token. {at_least(bound, chip)}"
            ),
            attacks=bound.attacks(chip),
            tiling=params,
            grid="(blocks of rows, blocks of columns), twice; each block of rows is one expert's",
            memory=f"{params['BLOCK_M']} rows and a block of one expert's columns, whole depth",
            pipelining="the next columns of the expert's weights are fetched while these are multiplied",
            recipe=self.name,
            spec=match.to_dict(),
        )

    def render(self, match: MoeMatch, params: dict[str, int]) -> str:
        limit = self.vmem_limit(match, params)
        return moe_source.render(match, params, bound_text(self.bound(match), match.chip), limit)


def _vmem(bm: int, bn: int, k: int, weights: int, size: int) -> int:
    """Rows, weights and results of this step and the next, and the products in float32; a fifth more is what the
    compiler was seen to ask for.
    """
    moving = (bm + weights * bn) * pad_up(k, 128) * size + bm * bn * size
    return (2 * moving + (weights + 1) * bm * bn * 4) * 6 // 5


def _columns(size: int) -> tuple[int, ...]:
    """Blocks of columns that divide an expert's, so that none reaches past their end."""
    whole = {size} if size <= 2048 and size % 128 == 0 else set()
    return tuple(sorted({v for v in (128, 256, 512, 1024, 2048) if v < size and size % v == 0} | whole))


# Recognition


@dataclass(frozen=True)
class _Parts:
    root: int
    x: int
    ups: tuple[int, ...]
    down: int
    chosen: int
    share: int
    hidden: Expression


class _HiddenReader(Reader):
    """What an expert does between its products, on values alone: ``acc0`` and ``acc1`` are the products."""

    def __init__(self, graph: Graph, ups: tuple[int, ...]) -> None:
        super().__init__(graph)
        self.ups = ups

    def key(self, number: int, indices: Indices) -> Any:
        return number

    def leaf(self, number: int, indices: Indices) -> str | None:
        if number in self.ups:
            return f"acc{self.ups.index(number)}"
        if self.graph[number].op in ("param", "dot", "other"):
            raise Declined("an expert reads more than its own products between them")
        return None


def _enough_products(graph: Graph) -> None:
    if len(graph.live("dot")) < 4:
        raise Declined("no sum over experts weighted by one-hot choices")


def _parts(aligned: Aligned) -> _Parts:
    """Found from the last product that weighs the experts' answers."""
    reason = "no sum over experts weighted by one-hot choices"
    for root in (n for n in range(len(aligned)) if aligned[n].op == "dot"):
        try:
            return _weighed(aligned, root)
        except Declined as declined:
            if len(str(declined)) > 10 and "experts" in str(declined):
                reason = str(declined)
    raise Declined(reason)


def _weighed(aligned: Aligned, root: int) -> _Parts:
    weights, answers = aligned.inputs(root)
    node = aligned[root]
    lead = len(node.shape) - 1
    lined = tuple(range(lead))
    if node.attr("batch") != (lined, lined) or node.attr("contract") != ((lead,), (lead,)):
        raise Declined("not a weighted sum")
    chosen, share = _choices(aligned, weights, lead)
    while aligned[answers].op in ("transpose", "reshape"):
        answers = aligned.inputs(answers)[0]
    if aligned[answers].op != "dot":
        raise Declined("the experts' answers are no product")
    sides, how = aligned.inputs(answers), aligned[answers]
    for weight, side in ((sides[0], 0), (sides[1], 1)):
        if aligned[weight].op == "param" and len(aligned[weight].shape) == 3:
            hidden = sides[1 - side]
            if how.attr("batch")[side] != (0,) or how.attr("contract")[side] != (1,):
                raise Declined("the experts' last weights do not lie as [experts, in, out]")
            if how.attr("batch")[1 - side] != (lead,) or how.attr("contract")[1 - side] != (lead + 1,):
                raise Declined("the experts' hidden values are not [tokens, experts, width]")
            x, ups, products = _ups(aligned, hidden, lead)
            readers = [_read_hidden(g, [aligned.members[p][i] for p in products], aligned.members[hidden][i])
                       for i, g in enumerate(aligned.graphs)]
            expression = combine(readers[0][1], [r[0] for r in readers], [{} for _ in readers])
            return _Parts(root, x, ups, weight, chosen, share, expression)
    raise Declined("the experts' last weights are no input")


def _read_hidden(graph: Graph, products: list[int], hidden: int) -> tuple[Reader, str]:
    reader = _HiddenReader(graph, tuple(products))
    return reader, reader.read(hidden, sample_points(graph[hidden].shape))


def _choices(aligned: Aligned, weights: int, lead: int) -> tuple[int, int]:
    """[tokens, picks] of what is chosen and its share, from ``sum over picks of onehot * share``."""
    node = aligned[weights]
    if node.op != "dot" or node.attr("batch") != (tuple(range(lead)), tuple(range(lead))):
        raise Declined("the experts' weights are not one-hot choices times shares")
    sides = aligned.inputs(weights)
    for hot, share, side in ((sides[0], sides[1], 0), (sides[1], sides[0], 1)):
        number = hot
        while aligned[number].op == "cast":
            number = aligned.inputs(number)[0]
        if aligned[number].op != "eq" or len(aligned[hot].shape) != lead + 2:
            continue
        if node.attr("contract")[side] != (lead,) or node.attr("contract")[1 - side] != (lead,):
            raise Declined("the experts' weights are not a sum over the picks of each token")
        graph, shape = aligned.graphs[0], aligned[hot].shape
        points = sample_points(shape)
        for one, other in (aligned.inputs(number), aligned.inputs(number)[::-1]):
            own = aligned.members[one][0]
            if is_positional(graph, own) and (evaluate(graph, own, points) == points[-1]).all():
                return _laid(aligned, other, shape[:-1]), share
    raise Declined("the experts' weights are not one-hot choices times shares")


def _laid(aligned: Aligned, number: int, shape: tuple[int, ...]) -> int:
    """The [tokens, picks] value that was only given one axis more and repeated along it."""
    while aligned[number].op in ("broadcast", "reshape") and aligned[number].shape != shape:
        kept = (tuple(range(len(shape))), tuple(range(len(shape) + 1)))
        if aligned[number].op == "broadcast" and aligned[number].attr("dims") not in kept:
            break
        number = aligned.inputs(number)[0]
    if aligned[number].shape != shape:
        raise Declined("the choice of experts is laid out otherwise than one list a token")
    return number


def _ups(aligned: Aligned, hidden: int, lead: int) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Tokens, first weights, and the nodes of the first products, in the order of the weights as parameters."""
    found, todo, seen = [], [hidden], set()
    while todo:
        number = todo.pop()
        if number in seen:
            continue
        seen.add(number)
        if aligned[number].op == "dot":
            found.append(number)
        else:
            todo.extend(aligned.inputs(number))
    found.sort()
    if not 1 <= len(found) <= 2:
        raise Declined(f"an expert begins with {len(found)} products, one or two are served")
    tokens, weights = set(), []
    for number in found:
        x, weight = aligned.inputs(number)
        node = aligned[number]
        if any(node.attr("batch")) or node.attr("contract") != ((lead,), (1,)) or len(aligned[weight].shape) != 3:
            raise Declined("the experts' first weights do not lie as [experts, in, out]")
        tokens.add(x)
        weights.append(weight)
    if len(tokens) != 1:
        raise Declined("the experts' first products take different tokens")
    return tokens.pop(), tuple(weights), tuple(found)
