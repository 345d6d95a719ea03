"""Taking a sum as early as it can be: through additions, factors and matrix products, down to an operand.

A *view* of a value says how each of its axes is cut into parts and which parts are summed: an average over runs of 16
columns is one axis cut into (n / 16, 16), the second summed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from maxkernel_nb.authors.recipes.graph import Node

if TYPE_CHECKING:
    from maxkernel_nb.authors.recipes.algebra import Rewriter

Part = tuple[int, bool]  # size, summed?
Axis = tuple[Part, ...]


@dataclass(frozen=True)
class View:
    axes: tuple[Axis, ...]

    @property
    def kept(self) -> tuple[int, ...]:
        return tuple(size for axis in self.axes for size, summed in axis if not summed)

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(part for axis in self.axes for part in axis)

    @property
    def count(self) -> int:
        return math.prod(size for size, summed in self.parts if summed)


def pushed_sum(builder: Rewriter, number: int, axes: tuple[int, ...]) -> int:
    shape = builder.graph[number].shape
    view = View(tuple(((size, axis in axes),) for axis, size in enumerate(shape)))
    return _push(builder, number, view)


def _push(b: Rewriter, number: int, view: View) -> int:
    """The sum of a value over the view's summed parts, shaped like its kept parts."""
    node = b.graph[number]
    if not any(summed for _, summed in view.parts):
        return _reshape(b, number, view.kept)
    handler = {
        "add": _both, "sub": _both, "neg": _each, "mul": _scaled, "div": _scaled, "broadcast": _broadcast,
        "transpose": _transpose, "reshape": _reshaped, "dot": _dot,
    }.get(node.op)
    if node.op == "const":
        return b.const(b.value(number) * view.count, view.kept, node.dtype)
    found = handler(b, node, view) if handler else None
    return found if found is not None else _here(b, number, view)


def _here(b: Rewriter, number: int, view: View) -> int:
    cut = _reshape(b, number, tuple(size for size, _ in view.parts))
    axes = tuple(i for i, (_, summed) in enumerate(view.parts) if summed)
    return b.make(Node("reduce_sum", (cut,), view.kept, "float32", (("axes", axes),)), [cut])


def _reshape(b: Rewriter, number: int, shape: tuple[int, ...]) -> int:
    return b.op_reshape({}, [number], shape, b.graph[number].dtype)


def _both(b: Rewriter, node: Node, view: View) -> int | None:
    left, right = (_term(b, i, node, view) for i in node.inputs)
    return b.elementwise(node.op, [left, right], view.kept, "float32")


def _term(b: Rewriter, number: int, node: Node, view: View) -> int:
    value = b.value(number)
    if value is not None:
        return b.const(value * view.count, view.kept, node.dtype)
    return _push(b, number, view)


def _each(b: Rewriter, node: Node, view: View) -> int | None:
    return b.elementwise(node.op, [_push(b, node.inputs[0], view)], view.kept, "float32")


def _scaled(b: Rewriter, node: Node, view: View) -> int | None:
    """A factor that is the same along everything summed comes out of the sum."""
    for factor, rest in ((1, 0), (0, 1)) if node.op == "mul" else ((1, 0),):
        outside = _uniform(b, node.inputs[factor], view)
        if outside is not None:
            inside = _push(b, node.inputs[rest], view)
            return b.elementwise(node.op, [inside, outside], view.kept, "float32")
    return None


def _uniform(b: Rewriter, number: int, view: View) -> int | None:
    """The value at the kept parts, if it does not change along the summed ones."""
    node = b.graph[number]
    if node.op == "const":
        return b.const(b.value(number), view.kept, node.dtype)
    if node.op != "broadcast":
        return None
    source, dims = node.inputs[0], node.attr("dims")
    shape = b.graph[source].shape
    axes = []
    for axis, parts in enumerate(view.axes):
        size = shape[dims.index(axis)] if axis in dims else 1
        if size != 1 and any(summed for _, summed in parts):
            return None
        axes.append(tuple(p if size != 1 else 1 for p, summed in parts if not summed))
    flat = tuple(p for parts in axes for p in parts)
    wide = _reshape(b, source, flat)
    return b.op_broadcast_in_dim({"broadcast_dimensions": tuple(range(len(flat)))}, [wide], view.kept, node.dtype)


def _broadcast(b: Rewriter, node: Node, view: View) -> int | None:
    source, dims = node.inputs[0], node.attr("dims")
    shape = b.graph[source].shape
    times = math.prod(
        size for axis, parts in enumerate(view.axes) for size, summed in parts
        if summed and not (axis in dims and shape[dims.index(axis)] != 1)
    )
    inner = View(tuple(view.axes[d] if s != 1 else ((1, False),) for d, s in zip(dims, shape, strict=True)))
    summed = _push(b, source, inner)
    flat = []
    for axis, parts in enumerate(view.axes):
        wide = axis in dims and shape[dims.index(axis)] != 1
        flat += [size if wide else 1 for size, is_summed in parts if not is_summed]
    summed = _reshape(b, summed, tuple(flat))
    if times != 1:
        factor = b.const(times, (), "float32")
        summed = b.elementwise("mul", [summed, factor], tuple(flat), "float32")
    where = {"broadcast_dimensions": tuple(range(len(flat)))}
    return b.op_broadcast_in_dim(where, [summed], view.kept, "float32")


def _transpose(b: Rewriter, node: Node, view: View) -> int | None:
    perm = node.attr("perm")
    back = [view.axes[perm.index(axis)] for axis in range(len(perm))]
    inner = View(tuple(back))
    found = _push(b, node.inputs[0], inner)
    # the kept parts lie in the source's order: bring them to the result's
    places: dict[int, list[int]] = {}
    position = 0
    for axis, parts in enumerate(back):
        places[axis] = []
        for _, summed in parts:
            if not summed:
                places[axis].append(position)
                position += 1
    order = tuple(p for axis in perm for p in places[axis])
    return b.op_transpose({"permutation": order}, [found], view.kept, "float32")


def _reshaped(b: Rewriter, node: Node, view: View) -> int | None:
    inner = _unreshaped(b.graph[node.inputs[0]].shape, view)
    if inner is None:
        return None
    return _reshape(b, _push(b, node.inputs[0], inner), view.kept)


def _unreshaped(source: tuple[int, ...], view: View) -> View | None:
    """The view of a reshape's input, if every one of its axes is whole parts of the result's axes, or all of them
    are summed or all kept together."""
    parts = list(view.parts)
    axes: list[Axis] = []
    for size in source:
        taken: list[Part] = []
        have = 1
        while have < size and parts:
            part = parts.pop(0)
            if have * part[0] > size:  # one part spans several axes: it is cut where the axis ends
                room, rest = size // have, part[0] // (size // have)
                if room * rest != part[0] or size % have:
                    return None
                parts.insert(0, (rest, part[1]))
                part = (room, part[1])
            taken.append(part)
            have *= part[0]
        if have != size:
            return None
        axes.append(tuple(taken) or ((1, False),))
    return View(tuple(axes)) if all(size == 1 for size, _ in parts) else None


def _dot(b: Rewriter, node: Node, view: View) -> int | None:
    contract, batch = node.attr("contract"), node.attr("batch")
    shapes = [b.graph[i].shape for i in node.inputs]
    free = [
        [a for a in range(len(shapes[side])) if a not in contract[side] and a not in batch[side]] for side in (0, 1)
    ]
    batches = len(batch[0])
    if any(len(parts) != 1 or parts[0][1] for parts in view.axes[:batches]):
        return None
    of_side = [view.axes[batches : batches + len(free[0])], view.axes[batches + len(free[0]) :]]
    sides, places = [], []
    for side in (0, 1):
        by_axis = dict(zip(free[side], of_side[side], strict=True))
        inner = View(tuple(by_axis.get(a, ((s, False),)) for a, s in enumerate(shapes[side])))
        place, position = {}, 0
        for axis, parts in enumerate(inner.axes):
            place[axis] = position
            position += sum(not summed for _, summed in parts)
        sides.append(_push(b, node.inputs[side], inner))
        places.append(place)
    where = tuple(tuple(places[s][a] for a in contract[s]) for s in (0, 1))
    return _product(b, node, view, sides, where, tuple(tuple(places[s][a] for a in batch[s]) for s in (0, 1)))


def _product(b: Rewriter, node: Node, view: View, sides: list[int], contract: tuple[tuple[int, ...], ...],
             batch: tuple[tuple[int, ...], ...]) -> int:
    """A product with a vector is written as what it is: a factor and a sum."""
    for vector, matrix in ((1, 0), (0, 1)):
        if not batch[0] and len(b.graph[sides[vector]].shape) == len(contract[vector]):
            shape = b.graph[sides[matrix]].shape
            order = sorted(range(len(contract[vector])), key=lambda i: contract[matrix][i])
            turn = {"permutation": tuple(contract[vector][i] for i in order)}
            turned_shape = tuple(shape[contract[matrix][i]] for i in order)
            turned = b.op_transpose(turn, [sides[vector]], turned_shape, "float32")
            dims = {"broadcast_dimensions": tuple(sorted(contract[matrix]))}
            wide = b.op_broadcast_in_dim(dims, [turned], shape, "float32")
            terms = b.elementwise("mul", [sides[matrix], wide], shape, "float32")
            axes = (("axes", tuple(sorted(contract[matrix]))),)
            return b.graph.add(Node("reduce_sum", (terms,), view.kept, "float32", axes))
    attrs = dict(node.attrs) | {"contract": contract, "batch": batch}
    return b.graph.add(Node("dot", tuple(sides), view.kept, node.dtype, tuple(sorted(attrs.items()))))
