"""A function cut into the regions that kernels serve, and what moving data between them costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from maxkernel_nb.authors.recipes.aligned import Aligned
from maxkernel_nb.authors.recipes.base import itemsize
from maxkernel_nb.authors.recipes.graph import LAYOUT_OPS, REDUCTIONS
from maxkernel_nb.authors.recipes.regions import Region, flops, regions, row_of
from maxkernel_nb.errors import Declined

_MOST = 6  # kernels a function
_CORE = frozenset({"attention", "recurrence", "delta"})  # what XLA does in a square of positions, or step by step
_LOOKS = 40  # regions tried for one more kernel
_SMALL = 0.05  # share of the products' work below which a product is no kernel beside others


@dataclass
class Partition:
    """``found``: regions without a node in common, in the order found; ``reasons``: why others are left to XLA."""

    found: list[Region] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)

    def in_order(self) -> list[Region]:
        """A region comes after those it reads: roots are numbered in topological order."""
        return sorted(self.found, key=lambda region: region.root)


def partitioned(aligned: Aligned, serve: Callable[[Region, Sequence[Region]], None], most: int = _MOST) -> Partition:
    """The heaviest region that ``serve(region, beside)`` does not decline, then the heaviest of the rest, and so on."""
    made = Partition()
    while len(made.found) < most:
        region = _next(aligned, made, serve)
        if region is None:
            break
        made.found.append(region)
    return made


def _next(
    aligned: Aligned, made: Partition, serve: Callable[[Region, Sequence[Region]], None]
) -> Region | None:
    for looks, region in enumerate(regions(outside(aligned, made.found))):
        if made.found and looks >= _LOOKS:
            return None
        try:
            if made.found:
                _worth_a_kernel(aligned, region)
            serve(region, made.found)
            return region
        except Declined as reason:
            made.reasons.setdefault(region.recipe, str(reason))
    return None


def outside(aligned: Aligned, found: Sequence[Region]) -> Aligned:
    """What is left to XLA: the kernels' results are given, what they read is wanted."""
    if not found:
        return aligned
    roots = {region.root for region in found}
    return aligned.rest(roots, (*aligned.outputs, *(c for c in plain_cuts(aligned, found) if c not in roots)))


def plain_cuts(aligned: Aligned, found: Sequence[Region]) -> list[int]:
    """What kernels read that is no argument of the function, each once."""
    return list(dict.fromkeys(c for region in found for c in region.cuts if aligned[c].op != "param"))


def _worth_a_kernel(aligned: Aligned, region: Region) -> None:
    """One more kernel beside others: a product alone is XLA's own strength, and a small one is not worth a start."""
    inside, base = _inside(aligned, region), region.root
    while aligned[base].op in LAYOUT_OPS:
        base = aligned.inputs(base)[0]
    if region.recipe == "matmul" and aligned[base].op == "dot":
        raise Declined("a product with nothing to fuse is left to XLA")
    if _work(aligned, inside) < _SMALL * _work(aligned, aligned.live()) and region.recipe != "rows":
        raise Declined("it is a small share of the work")
    if region.recipe == "rows" and not any(aligned[n].op == "dot" or _reduces_long_rows(aligned, n) for n in inside):
        raise Declined("no long row is reduced in it")


def _reduces_long_rows(aligned: Aligned, number: int) -> bool:
    """Sums over short runs of the last axis are left to XLA: their values would lie across the lanes."""
    row = row_of(aligned, number) if aligned[number].op in REDUCTIONS else None
    return row is not None and row[1] >= 128


def _inside(aligned: Aligned, region: Region) -> Sequence[int]:
    return [n for n in aligned.rest(region.cuts, (region.root,)).live() if n not in region.cuts]


def _work(aligned: Aligned, nodes: Sequence[int]) -> float:
    return sum(flops(aligned, n) for n in nodes if aligned[n].op == "dot")


def _products(aligned: Aligned, region: Region) -> int:
    return sum(aligned[n].op == "dot" for n in _inside(aligned, region))


def choices(aligned: Aligned, found: Sequence[Region]) -> list[list[Region]]:
    """Which of the regions are kernels: the likeliest first. The judge's time of the whole tells them apart.

    XLA fuses a product with what ends it, so likely are those of two products, and the rows that a kernel reads:
    XLA would write those in passes of their own.
    """
    core = [r for r in found if r.recipe in _CORE] or list(found[:1])
    pairs = [r for r in found if r in core or _products(aligned, r) > 1]
    read = {cut for r in pairs for cut in r.cuts}
    fed = [r for r in found if r in pairs or (r.recipe == "rows" and r.root in read)]
    made: list[list[Region]] = []
    for choice in (fed, core, list(found), pairs):
        if choice not in made:
            made.append(choice)
    return made


def plain_work(aligned: Aligned, found: Sequence[Region]) -> tuple[float, float]:
    """(FLOPs of products, bytes of parameters read and of kernels' inputs written) outside them, timing case."""
    rest = outside(aligned, found)
    live = rest.live()
    roots = {region.root for region in found}
    made = [c for c in plain_cuts(aligned, found) if c not in roots]
    work = _work(rest, live)
    read = [n for n in live if aligned[n].op == "param" and any(n in rest.inputs(u) for u in live)]
    cuts = {cut: dtype for region in found for cut, dtype in region.cuts.items()}
    size = sum(aligned[n].size * itemsize(aligned[n].dtype) for n in read)
    return work, float(size + sum(aligned[c].size * itemsize(cuts[c]) for c in made))


def read_as(aligned: Aligned, root: int) -> str:
    """The dtype a kernel writes its result in: the narrower one of the products that are all that read it."""
    if root == aligned.outputs[0]:
        return aligned.graphs[0].output_dtypes[0]
    users, todo, found = aligned.users(), [root], set()
    while todo:
        number = todo.pop()
        for user in users[number]:
            if aligned[user].op in LAYOUT_OPS:
                todo.append(user)
            elif aligned[user].op == "dot":
                read = zip(aligned.inputs(user), aligned[user].attr("operands"), strict=True)
                found |= {dtype for source, dtype in read if source == number}
            else:
                found.add(aligned[root].dtype)
    return found.pop() if len(found) == 1 else aligned[root].dtype


def layout_bytes(aligned: Aligned, found: Sequence[Region]) -> float:
    """Bytes read and written by layout changes next to kernels, at most: XLA may join one with its neighbour."""
    rest = outside(aligned, found)
    total = 0
    for region in found:
        for cut, dtype in region.cuts.items():
            total += _moved(aligned, _chain_above(rest, cut)) * itemsize(dtype)
        total += _moved(aligned, _chain_below(rest, region.root)) * itemsize(aligned[region.root].dtype)
    return float(total)


def _chain_above(rest: Aligned, number: int) -> list[int]:
    chain = []
    while rest[number].op in LAYOUT_OPS:
        chain.append(number)
        number = rest.inputs(number)[0]
    return chain


def _chain_below(rest: Aligned, root: int) -> list[int]:
    chain: list[int] = []
    users = rest.users()
    above = users[root]
    while len(above) == 1 and rest[above[0]].op in LAYOUT_OPS:
        chain.append(above[0])
        above = users[above[0]]
    return chain


def _moved(aligned: Aligned, chain: list[int]) -> int:
    """Elements read and written by a chain of layout ops that XLA does in one go; 0 where nothing moves."""
    if not any(_moves(aligned, n) for n in chain):
        return 0
    return 2 * max(aligned[n].size for n in chain)


def _moves(aligned: Aligned, number: int) -> bool:
    """Axes of one do not count; a new last axis is a new tiling."""
    node, source = aligned[number], aligned[aligned.inputs(number)[0]]
    if node.op == "transpose":
        kept = [p for p in node.attr("perm") if source.shape[p] != 1]
        return kept != sorted(kept)
    if node.op == "reshape":
        old, new = ([s for s in n.shape if s != 1] for n in (source, node))
        return old[-1:] != new[-1:]
    return node.op == "slice" and node.shape != source.shape
