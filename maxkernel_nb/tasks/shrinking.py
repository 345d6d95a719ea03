"""Proposals for a smaller size of every group of dimensions, the most wanted first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Literal

from maxkernel_nb.task import CaseRole
from maxkernel_nb.tasks.dimensions import Group

Sizes = dict[int, int]
Ratios = Literal["none", "odd", "all"]
RATIOS: tuple[Ratios, ...] = ("none", "odd", "all")


@dataclass(frozen=True)
class Kind:
    """What a check case is to look like: sizes of the large groups in order of appearance (cycled), and of batches."""

    name: str
    role: CaseRole
    targets: tuple[int, ...]
    batch: int = 1

    @property
    def ragged(self) -> bool:
        return self.role is CaseRole.RAGGED


# Between them: one tile and several, M, N and K all different, a short and a long sequence, one and two in a batch,
# and sizes that no tile divides.
KINDS = (
    Kind("small", CaseRole.CHECK, (128, 256)),
    Kind("medium", CaseRole.CHECK, (256, 384, 512), batch=2),
    Kind("wide", CaseRole.CHECK, (512, 128, 256)),
    Kind("ragged", CaseRole.RAGGED, (187, 250, 141)),
)


_WINDOW = 8  # up to this, a dimension may be a convolution's window: the last to be scaled


@dataclass(frozen=True)
class Mode:
    """What a function's fixed sizes leave free.

    ``frozen`` groups stay; ``ratios`` between large groups stay where they are odd (3, of a packed projection) or all;
    ``ragged`` is the only group that may be ragged (None: any); batches are at least ``batch`` (heads may hide there).
    """

    frozen: frozenset[int] = frozenset()
    ratios: Ratios = "none"
    ragged: int | None = None
    batch: int = 1


@dataclass(frozen=True)
class Level:
    """How much less work is asked for than the kind would like."""

    batch: int | None = None
    ratio: int | None = None  # of heads to key heads
    halved: bool = False
    shift: int = 0  # into the kind's targets
    leading: int | None = None  # cap of small dimensions that are never a last axis
    small: int | None = None  # cap of all small dimensions


LEVELS = (
    Level(),
    Level(batch=1),
    Level(batch=1, ratio=2),
    Level(batch=1, halved=True),
    Level(batch=1, ratio=2, halved=True),
    Level(batch=1, halved=True, shift=1),
    Level(batch=1, halved=True, shift=2),
    Level(batch=1, halved=True, leading=8),
    Level(batch=1, halved=True, leading=8, small=32),
    Level(batch=1, halved=True, leading=8, small=16),
    Level(batch=1, halved=True, leading=16, small=16),
)


def modes(groups: Sequence[Group], ragged: bool) -> Iterator[Mode]:
    """From all groups free to only one free."""
    sizes = [g.size for g in groups]
    large = [g.size for g in groups if g.large]
    alone: list[int | None] = [None, *(large if ragged and len(large) > 1 else ())]
    for only in alone:
        for ratios in RATIOS:
            yield Mode(ratios=ratios, ragged=only)
    if any(g.batch and g.size > 8 for g in groups):
        yield Mode(batch=8)
    for only in alone:
        for size in sizes:
            for ratios in RATIOS:
                yield Mode(frozenset({size}), ratios, only)
    if len(sizes) > 2:
        yield from (Mode(frozenset(sizes) - {size}) for size in sizes)


def sizes_for(groups: Sequence[Group], kind: Kind, mode: Mode, level: Level) -> Sizes:
    free = [g for g in groups if g.size not in mode.frozen]
    sizes = _large(free, kind, mode, level)
    for group in free:
        if group.batch:
            sizes[group.size] = min(group.size, max(level.batch or kind.batch, mode.batch))
        elif not group.large:
            cap = level.leading if not group.last and level.leading else level.small
            sizes[group.size] = min(group.size, cap or group.size)
    for group in free:
        base = group.multiple_of
        if base is not None and base in sizes:
            sizes[group.size] = sizes[base] * (level.ratio or group.size // base)
        if group.offsets and group.size - 1 in sizes:
            sizes[group.size] = sizes[group.size - 1] + 1
    return {old: new for old, new in sizes.items() if old != new}


def is_ragged(sizes: Sizes) -> bool:
    return any(new % 8 and new > 2 for new in sizes.values())


def scaled(groups: Sequence[Group], scales: Sequence[tuple[int, int]]) -> Iterator[Sizes]:
    """All groups by one factor, then one group alone: for tasks that are small already."""
    groups = [g for g in groups if g.size > _WINDOW] or groups
    for up, down in scales:
        yield {g.size: max(1, g.size * up // down) for g in groups}
    for group in groups:
        for up, down in scales:
            yield {group.size: max(1, group.size * up // down)}


def combinations(groups: Sequence[Group]) -> Iterator[Sizes]:
    """Every mixture of a few sizes of each group, least first: the last resort where groups depend on each other."""
    movable = [g for g in groups if g.size > _WINDOW and not g.offsets]
    if not movable or len(movable) > 5:
        return
    choices = [sorted({min(g.size, s) for s in _choices(g)}) for g in movable]
    for sizes in sorted(product(*choices), key=prod):
        chosen = dict(zip((g.size for g in movable), sizes, strict=True))
        chosen.update({g.size: chosen[g.size - 1] + 1 for g in groups if g.offsets and g.size - 1 in chosen})
        yield chosen


def ragged_combinations(groups: Sequence[Group]) -> Iterator[Sizes]:
    for sizes in combinations(groups):
        yield from ({**sizes, group.size: KINDS[-1].targets[0]} for group in groups if group.large)


def _choices(group: Group) -> tuple[int, ...]:
    if group.large:
        return (128, 256, 512)
    return (1, 2, 8, 16) if group.batch else (8, 16, 32, group.size)


def _large(free: Sequence[Group], kind: Kind, mode: Mode, level: Level) -> Sizes:
    sizes: Sizes = {}
    for number, group in enumerate((g for g in free if g.large), level.shift):
        wanted = kind.targets[number % len(kind.targets)]
        if kind.ragged and mode.ragged not in (None, group.size):
            wanted = 128
        if level.halved:
            wanted = wanted // 2 if kind.ragged else -(-wanted // 256) * 128  # still whole tiles
        sizes[group.size] = min(group.size, wanted)
    for size in sorted(sizes):
        base = _base(size, [s for s in sizes if s < size], mode)
        if base:
            sizes[size] = sizes[base] * (size // base)
    return sizes


def _base(size: int, smaller: Sequence[int], mode: Mode) -> int:
    """The largest smaller group whose ratio to this one is to be kept; 0 for none."""
    if mode.ratios == "none":
        return 0
    ratios = {s: size // s for s in smaller if size % s == 0 and size // s <= 8}
    return max((s for s, r in ratios.items() if mode.ratios == "all" or r & (r - 1)), default=0)
