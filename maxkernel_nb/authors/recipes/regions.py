"""Where a function can be cut: a region that one kernel serves, what it is given, and what is left to XLA."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from maxkernel_nb import compat
from maxkernel_nb.authors.recipes.aligned import Aligned
from maxkernel_nb.authors.recipes.canonical import ELEMENTWISE
from maxkernel_nb.authors.recipes.graph import LAYOUT_OPS, REDUCTIONS

_ROOTS = 10  # places tried to end a region, the furthest first
_WIDE = 512  # below, one number a row, padded to 128 lanes, costs what scaling the rows before would
_FREE = frozenset({"const", "iota", "array"})


@dataclass(frozen=True)
class Region:
    """``root`` is what the kernel computes, ``cuts`` what it is given (node -> dtype), ``recipe`` who may serve it.

    ``scaled``: products of rows that are scaled first: product -> (rows, one scale a row). It is the same to scale
    the product's rows, where a kernel has them in VMEM.
    """

    recipe: str
    root: int
    cuts: dict[int, str]
    scaled: dict[int, tuple[int, int]] = field(default_factory=dict)


def regions(aligned: Aligned) -> Iterator[Region]:
    """Candidates, those around the most work first."""
    dots = sorted((n for n in aligned.live() if aligned[n].op == "dot"), key=lambda n: -flops(aligned, n))
    for recipe in ("attention", "recurrence"):
        for first, second in _pairs(aligned, dots, softmax=recipe == "attention"):
            for root in _roots(aligned, second):
                whole = _cuts(aligned, root, {first, second})
                yield Region(recipe, root, whole)
                if (split := _cuts(aligned, root, {first, second}, as_read=True)) != whole:
                    yield Region(recipe, root, split)
    for pair in _sharing(aligned, dots[:4]):
        shared = _roots(aligned, pair[1])
        scaled = _scaled(aligned, pair)
        for root in (r for r in _roots(aligned, pair[0]) if r in shared):
            if scaled:
                yield Region("matmul", root, _cuts(aligned, root, set(pair), scaled=scaled), scaled)
            yield Region("matmul", root, _cuts(aligned, root, set(pair)))
    for dot in (d for d in dots if _of_rows(aligned, d)):
        for root in _roots(aligned, dot):
            if (cuts := _program_cuts(aligned, root)) is not None:
                yield Region("rows", root, cuts)
    for loop in _loops(aligned):
        for as_read in (False, True):
            yield Region("delta", _laid_out(aligned, loop), _loop_cuts(aligned, loop, as_read))
    for dot in dots[:4]:
        for root in _roots(aligned, dot):
            whole = _cuts(aligned, root, {dot})
            yield Region("matmul", root, whole)
            if (read := _cuts(aligned, root, {dot}, beside_as_read=True)) != whole:
                yield Region("matmul", root, read)
    for reduction in _row_reductions(aligned):
        for root in _roots(aligned, reduction):
            yield Region("rows", root, _row_cuts(aligned, root, reduction))
    if not (dots or aligned.given or any(aligned[n].op in REDUCTIONS for n in aligned.live())):
        yield Region("rows", aligned.outputs[0], _row_cuts(aligned, aligned.outputs[0], aligned.outputs[0]))


def flops(aligned: Aligned, dot: int) -> float:
    node = aligned[dot]
    shape = aligned[aligned.inputs(dot)[0]].shape
    return 2.0 * node.size * math.prod(shape[a] for a in node.attr("contract")[0])


def _pairs(aligned: Aligned, dots: list[int], softmax: bool = True) -> Iterator[tuple[int, int]]:
    """Products of scores and of values: the second depends on the first, with or without an exponential of it."""
    for second in dots:
        above = aligned.ancestors(*aligned.inputs(second))
        exps = [n for n in above if aligned[n].op == "exp"]
        for first in dots:
            if first in above and any(first in aligned.ancestors(e) for e in exps) == softmax:
                yield first, second


def _sharing(aligned: Aligned, dots: list[int]) -> Iterator[tuple[int, int]]:
    """Products of the same rows, neither of which needs the other: the two halves of a gated layer."""
    for first, second in itertools.combinations(sorted(dots), 2):
        rows = {_base(aligned, aligned.inputs(dot)[0]) for dot in (first, second)}
        if len(rows) == 1 and first not in aligned.ancestors(second):
            yield first, second


def _scaled(aligned: Aligned, dots: tuple[int, ...]) -> dict[int, tuple[int, int]]:
    """Products of scaled rows with the rows and the scales, where all of ``dots`` are."""
    found = {dot: pair for dot in dots if (pair := _row_scale(aligned, dot)) is not None}
    return found if len(found) == len(dots) else {}


def _row_scale(aligned: Aligned, dot: int) -> tuple[int, int] | None:
    node, (rows, columns) = aligned[dot], aligned.inputs(dot)
    last = len(aligned[rows].shape) - 1
    if node.attr("contract") != ((last,), (0,)) or node.attr("batch")[0] or len(aligned[columns].shape) != 2:
        return None
    if aligned[rows].op != "mul" or aligned[rows].shape[-1] < _WIDE:
        return None
    for scale, other in (aligned.inputs(rows), reversed(aligned.inputs(rows))):
        if aligned[scale].op == "broadcast":
            source = aligned[aligned.inputs(scale)[0]]
            if all(axis != last or size == 1 for axis, size in zip(aligned[scale].attr("dims"), source.shape,
                                                                   strict=True)):
                return other, scale
    return None


def _loops(aligned: Aligned) -> list[int]:
    """What a loop over time gives at each step, where it carries one array."""
    found = [n for n in aligned.live() if aligned[n].op == "other" and aligned[n].attr("primitive") == "scan"]
    return [n for n in found if aligned[n].attr("output") == 1]


def _laid_out(aligned: Aligned, loop: int) -> int:
    """The loop's result in the order in which it is used, if there is one."""
    users = aligned.users()
    while len(users[loop]) == 1 and aligned[users[loop][0]].op in ("transpose", "reshape"):
        loop = users[loop][0]
    return loop


def _loop_cuts(aligned: Aligned, loop: int, as_read: bool) -> dict[int, str]:
    """``as_read``: as the loop takes them, steps first; else before they were laid out so, and a decay before its
    exponential.
    """
    cuts: dict[int, str] = {}
    for operand in aligned.inputs(loop):
        number = operand if as_read else _base(aligned, operand)
        if not as_read and aligned[number].op in ("exp", "logistic"):
            number = _base(aligned, aligned.inputs(number)[0])
        if not _positional(aligned, number):
            cuts.setdefault(number, _kept_dtype(aligned, number))
    return cuts


def _positional(aligned: Aligned, number: int) -> bool:
    return all(aligned[n].op in _FREE or _passes(aligned[n].op) for n in aligned.ancestors(number))


def _roots(aligned: Aligned, anchor: int) -> list[int]:
    """Nodes that everything from the anchor to the results passes through, the furthest first; the anchor last."""
    users, outputs = aligned.users(), set(aligned.outputs)
    after = sorted(_descendants(users, anchor), reverse=True)
    found = [node for node in after if not outputs & _descendants(users, anchor, avoid=node)]
    return found[:_ROOTS] + [n for n in found[_ROOTS:] if n == anchor]


def _descendants(users: dict[int, list[int]], start: int, avoid: int | None = None) -> set[int]:
    seen: set[int] = set()
    todo = [start]
    while todo:
        number = todo.pop()
        if number not in seen and number != avoid:
            seen.add(number)
            todo.extend(users[number])
    return seen


def _cuts(aligned: Aligned, root: int, dots: set[int], as_read: bool = False,
          beside_as_read: bool = False, scaled: Mapping[int, tuple[int, int]] | None = None) -> dict[int, str]:
    """Inputs of a region around products: their operands as they are, and what is not elementwise beside them.

    ``as_read``: operands in the shape that the product reads (a head of packed ones), not the array that holds them;
    ``beside_as_read``: the same of a slice that is read beside the products.
    """
    users = aligned.users()
    inside = set().union(*(_descendants(users, d) for d in dots))
    cuts: dict[int, str] = {}
    todo, seen = [root], set()
    while todo:
        number = todo.pop()
        if number in seen:
            continue
        seen.add(number)
        node = aligned[number]
        if number in dots:
            operands = aligned.inputs(number)
            if scaled and number in scaled:
                rows, scale = scaled[number]
                operands = (rows, *operands[1:])
                todo += aligned.inputs(scale)
            for operand, dtype in zip(operands, node.attr("operands"), strict=True):
                base = _base(aligned, operand)
                if base in inside:
                    todo.append(operand)
                elif as_read:
                    cuts[operand] = dtype
                else:
                    cuts[base] = aligned[base].dtype if _is_param(aligned, base) else dtype
        elif node.op == "param" or (number not in inside and (not _passes(node.op)
                                                              or (beside_as_read and node.op == "slice"))):
            cuts.setdefault(number, _kept_dtype(aligned, number))
        else:
            todo.extend(aligned.inputs(number))
    return cuts


def _passes(op: str) -> bool:
    return op in ELEMENTWISE or op in LAYOUT_OPS or op in _FREE


def _kept_dtype(aligned: Aligned, number: int) -> str:
    """What a kernel is given: small values in float32, large ones as the function has them."""
    node = aligned[number]
    if _is_param(aligned, number) or not compat.is_float(node.dtype):
        return node.dtype
    return "float32" if node.size <= 1 << 20 else node.dtype


def _is_param(aligned: Aligned, number: int) -> bool:
    return aligned[number].op == "param" and number not in aligned.given


def _base(aligned: Aligned, number: int) -> int:
    while aligned[number].op in LAYOUT_OPS:
        number = aligned.inputs(number)[0]
    return number


def _row_reductions(aligned: Aligned) -> list[int]:
    """Reductions over last axes, of the largest values first, one for each size of a row."""
    found = []
    for number in aligned.live():
        node = aligned[number]
        if node.op in REDUCTIONS and row_of(aligned, number) is not None:
            found.append(number)
    found.sort(key=lambda n: (-aligned[aligned.inputs(n)[0]].size, n))
    rows, kept = set(), []
    for number in found:
        if (row := row_of(aligned, number)) not in rows:
            rows.add(row)
            kept.append(number)
    return kept[:3]


def row_of(aligned: Aligned, number: int) -> tuple[int, int] | None:
    """(rows, elements of a row) that a reduction works on, or None."""
    axes, shape = aligned[number].attr("axes"), aligned[aligned.inputs(number)[0]].shape
    if axes != tuple(range(len(shape) - len(axes), len(shape))):
        return None
    return math.prod(shape[: len(shape) - len(axes)]), math.prod(shape[a] for a in axes)


def _of_rows(aligned: Aligned, dot: int) -> bool:
    """A product of rows with a square weight: they stay rows of the same width."""
    node, (rows, weight) = aligned[dot], aligned.inputs(dot)
    shape, last = aligned[weight].shape, len(aligned[rows].shape) - 1
    square = aligned[weight].op == "param" and len(shape) == 2 and shape[0] == shape[1]
    return square and node.attr("contract") == ((last,), (0,)) and not node.attr("batch")[0]


def _program_cuts(aligned: Aligned, root: int) -> dict[int, str] | None:
    """Inputs of a region of rows with several products, or one and a reduction; None where it has less."""
    cuts: dict[int, str] = {}
    todo, seen, products, reductions = [root], set(), 0, 0
    width = aligned[root].shape[-1:]
    while todo:
        number = todo.pop()
        if number in seen:
            continue
        seen.add(number)
        node = aligned[number]
        product = node.op == "dot" and node.shape[-1:] == width and _of_rows(aligned, number)
        reduction = node.op in REDUCTIONS and row_of(aligned, number) is not None
        products, reductions = products + product, reductions + reduction
        if product or reduction or (_passes(node.op) and node.op not in ("param", "transpose")):
            todo.extend(aligned.inputs(number))
        else:
            cuts[number] = _kept_dtype(aligned, number)
    return cuts if products > 1 or (products and reductions) else None


def _row_cuts(aligned: Aligned, root: int, reduction: int) -> dict[int, str]:
    rows = row_of(aligned, reduction) if aligned[reduction].op in REDUCTIONS else None
    cuts: dict[int, str] = {}
    todo, seen = [root], set()
    while todo:
        number = todo.pop()
        if number in seen:
            continue
        seen.add(number)
        node = aligned[number]
        same_rows = node.op in REDUCTIONS and row_of(aligned, number) == rows
        if node.op == "param" or not (_passes(node.op) or same_rows):
            cuts[number] = _kept_dtype(aligned, number)
        else:
            todo.extend(aligned.inputs(number))
    return cuts
