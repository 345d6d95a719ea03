"""Groups of equal dimensions across a task's arguments, and what kind of dimension each is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from maxkernel_nb.compat import equations
from maxkernel_nb.task import ArgSpec, Draw

NATURAL = 128  # a dimension up to one tile's width (a head dimension, a convolution window) is left as it is


@dataclass(frozen=True)
class Group:
    """All dimensions of one ``size``. ``large``: to be shrunk to some tiles. ``batch``: to be shrunk to one or two.

    ``last``: it is the last axis of an argument of rank two or more. ``multiple_of``: another group whose ratio to
    this one has a meaning (heads and key heads). ``offsets``: the length of a vector of offsets, one more than another
    group.
    """

    size: int
    large: bool
    batch: bool
    last: bool
    multiple_of: int | None = None
    offsets: bool = False


def find_groups(args: Sequence[ArgSpec], traced: Any) -> list[Group]:
    """In order of first appearance, multiples after what they multiply; dimensions of 1 are left out."""
    sizes = list(dict.fromkeys(d for a in args for d in a.shape if d > 1))
    last = {a.shape[-1] for a in args if len(a.shape) > 1}
    related = {b: a for b, a in _counterparts(args).items() if b not in last}
    outputs = {d for aval in traced.closed.out_avals for d in aval.shape}
    convolves = any(e.primitive.name == "conv_general_dilated" for e in equations(traced.closed))
    groups = []
    for size in sizes:
        is_last = size in last
        offsets = size - 1 in sizes and all(a.shape == (size,) for a in args if size in a.shape)
        kin = {size, *(b for pair in related.items() if size in pair for b in pair)}
        batch = size <= NATURAL and not is_last and bool(kin & outputs) and _only_leads(size, args, convolves)
        groups.append(Group(size, size > NATURAL and not offsets, batch, is_last, related.get(size), offsets))
    return sorted(groups, key=lambda g: (g.offsets, g.multiple_of is not None, sizes.index(g.size)))


def resize(args: Sequence[ArgSpec], sizes: Mapping[int, int]) -> tuple[ArgSpec, ...]:
    """Every dimension replaced by its new size; index bounds that were a dimension follow it."""
    return tuple(
        a.model_copy(update={"shape": tuple(sizes.get(d, d) for d in a.shape), "draw": _resized_draw(a, sizes)})
        for a in args
    )


def _resized_draw(arg: ArgSpec, sizes: Mapping[int, int]) -> Draw:
    draw = arg.draw
    bounded = draw.kind in ("integers", "sorted", "partition", "pages") and draw.low >= 0
    if not bounded or arg.dtype in ("int4", "uint4", "int8", "uint8"):
        return draw
    if draw.high in sizes:
        high = sizes[draw.high]
    elif (draw.low > 0 or draw.kind == "sorted") and draw.high - 1 in sizes:  # a length or an offset: at most that
        high = sizes[draw.high - 1] + 1
    else:
        return draw
    return draw.model_copy(update={"high": high, "low": min(draw.low, high - 1)})


def _only_leads(size: int, args: Sequence[ArgSpec], convolves: bool) -> bool:
    """Never the rows of a matrix; with a convolution, only axis 0 is a batch (the others are space or windows)."""
    places = [(axis, len(a.shape)) for a in args for axis, d in enumerate(a.shape) if d == size]
    if convolves:
        return all(axis == 0 and rank > 2 for axis, rank in places)
    return any(rank > 2 for _, rank in places)


def _counterparts(args: Sequence[ArgSpec]) -> dict[int, int]:
    """``{b: a}`` where two arguments of equal rank differ in one axis, b there being a multiple of a."""
    related: dict[int, int] = {}
    for one in args:
        for other in args:
            if len(one.shape) != len(other.shape) or len(one.shape) < 3:
                continue
            differing = [(a, b) for a, b in zip(one.shape, other.shape, strict=True) if a != b]
            for a, b in differing if len(differing) <= 2 else ():
                if 1 < a < b <= NATURAL and b % a == 0:
                    related[b] = max(a, related.get(b, 0))
    return related
