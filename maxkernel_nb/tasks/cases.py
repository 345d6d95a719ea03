"""Check cases: the timing case made small enough to interpret, with its structure kept.

Dimensions of equal size form a group and change together, unless nothing else is left. A proposal counts only when the
reference traces with it, with outputs of the same structure, rank and dtype, and indexes nothing past its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from math import prod
from typing import Any

from maxkernel_nb.compat import equations
from maxkernel_nb.errors import TaskError, UsageError
from maxkernel_nb.task import ArgSpec, Case, CaseRole
from maxkernel_nb.tasks.dimensions import find_groups, resize
from maxkernel_nb.tasks.shapes import parse_shapes
from maxkernel_nb.tasks.shrinking import (
    KINDS,
    LEVELS,
    Kind,
    Sizes,
    combinations,
    is_ragged,
    modes,
    ragged_combinations,
    scaled,
    sizes_for,
)
from maxkernel_nb.tasks.work import work

NEEDED = 3
WORK_LIMIT = 0.3e9  # operations in one check case: seconds in TPU interpret mode, not minutes
_WORK_CEILING = 10 * WORK_LIMIT  # where hard-coded sizes leave nothing smaller

_PER_ELEMENT = 64  # drawing, copying and comparing one element weighs as much as this many operations
_TRIES = 80  # proposals put to the reference for one kind of case
_COMBINATIONS = 150
_SCALES = ((1, 1), (1, 2), (3, 4), (2, 1), (1, 4), (3, 1))  # of every group, where the timing case is small already
_RAGGED_SCALES = ((15, 16), (13, 16), (7, 16), (7, 32), (5, 32))

Trace = Callable[[Sequence[ArgSpec]], Any]


def derive_cases(args: Sequence[ArgSpec], trace: Trace, overrides: Sequence[str] = ()) -> tuple[Case, ...]:
    """The timing case first, then at least three check cases and, where the reference allows one, a ragged case.

    ``trace(args)`` gives an object with ``closed`` (closed jaxpr) and ``outputs`` (tree), or raises ``TaskError``.
    ``overrides`` are shapes as in ``--case``; arguments they leave out keep their full shape. Three or more replace the
    derived check cases, fewer are added to them. Raises ``TaskError`` asking for ``--case`` when fewer than three check
    cases are found.
    """
    timing = Case(name="timing", role=CaseRole.TIMING, args=tuple(args))
    search = _Search(timing, trace)
    given = [_override(timing, text, n) for n, text in enumerate(overrides, 1)]
    for case in given:
        trace(case.args)  # the person's own shapes: their error is the answer
        search.seen.add(_key(case.args))
    derived = search.run(want_checks=0 if len(given) >= NEEDED else NEEDED)
    checks = [*given, *(c for c in derived if c.role is CaseRole.CHECK)]
    if len(checks) < NEEDED:
        raise TaskError(
            f"Only {len(checks)} check cases of the {NEEDED} needed were found (the function fixes its sizes); pass "
            f'{NEEDED - len(checks)} or more as --case "{_example(timing)}", or let sizes follow the arguments.'
        )
    return (timing, *checks, *(c for c in derived if c.role is CaseRole.RAGGED))


class _Search:
    """Proposes sizes, asks the reference, keeps what it accepts."""

    def __init__(self, timing: Case, trace: Trace) -> None:
        self.timing, self.trace = timing, trace
        traced = trace(timing.args)
        self.shape = _structure(traced)
        self.indexed = _indexed(traced)
        self.groups = find_groups(timing.args, traced)
        # A reference with kernels of its own may well read past an array's end when no tile divides it.
        self.ragged = all(e.primitive.name != "pallas_call" for e in equations(traced.closed))
        self.seen: set[Any] = set()
        self.asked: dict[Any, float | None] = {}
        self.heavy: dict[float, tuple[ArgSpec, ...]] = {}

    def run(self, want_checks: int) -> list[Case]:
        found = [c for kind in KINDS if (self.ragged if kind.ragged else want_checks) for c in self._of_kind(kind)]
        missing = want_checks - sum(c.role is CaseRole.CHECK for c in found)
        for number in range(1, missing + 1):
            sizes = chain(scaled(self.groups, _SCALES), islice(combinations(self.groups), _COMBINATIONS))
            found += (self._first(f"scaled-{number}", CaseRole.CHECK, sizes) or self._lightest(f"heavy-{number}")
                      or self._of_axis(f"axis-{number}"))
        if self.ragged and all(c.role is CaseRole.CHECK for c in found):
            sizes = chain(scaled(self.groups, _RAGGED_SCALES), islice(ragged_combinations(self.groups), _COMBINATIONS))
            found += self._first("ragged", CaseRole.RAGGED, filter(is_ragged, sizes))
        return found

    def _of_kind(self, kind: Kind) -> list[Case]:
        """The first proposal within the limit of work."""
        for args in islice(self._proposals(kind), _TRIES):
            cost = self._ask(args)
            if cost is not None and cost <= WORK_LIMIT:
                return [self._keep(kind.name, kind.role, args)]
            if cost is not None and not kind.ragged:
                self.heavy.setdefault(cost, args)
        return []

    def _lightest(self, name: str) -> list[Case]:
        """The least work among what was too much, where the function leaves nothing else."""
        cost = min(self.heavy, default=_WORK_CEILING + 1)
        return [self._keep(name, CaseRole.CHECK, self.heavy.pop(cost))] if cost <= _WORK_CEILING else []

    def _of_axis(self, name: str) -> list[Case]:
        """One axis alone, where the function fixes another of the same size (as many steps as heads times width)."""
        for args in _one_axis(self.timing.args):
            cost = self._ask(args) if _key(args) not in self.seen else None
            if cost is not None and cost <= WORK_LIMIT:
                return [self._keep(name, CaseRole.CHECK, args)]
        return []

    def _proposals(self, kind: Kind) -> Iterator[tuple[ArgSpec, ...]]:
        for mode in modes(self.groups, kind.ragged):
            for level in LEVELS:
                sizes = sizes_for(self.groups, kind, mode, level)
                args = resize(self.timing.args, sizes)
                if _key(args) in self.seen or (kind.ragged and not is_ragged(sizes)):
                    continue
                yield args
                if level is LEVELS[0] and self.asked[_key(args)] is None:
                    break  # the function fixes something that this mode changes

    def _first(self, name: str, role: CaseRole, proposals: Iterable[Sizes]) -> list[Case]:
        for sizes in proposals:
            args = resize(self.timing.args, sizes)
            cost = self._ask(args) if _key(args) not in self.seen else None
            if cost is not None and cost <= WORK_LIMIT:
                return [self._keep(name, role, args)]
        return []

    def _ask(self, args: tuple[ArgSpec, ...]) -> float | None:
        """Operations in the reference on these arguments, or None where it refuses them or answers otherwise."""
        key = _key(args)
        if key not in self.asked:
            try:
                traced = self.trace(args)
                alike = _structure(traced) == self.shape and (self.indexed or not _indexed(traced))
                self.asked[key] = self._cost(traced, args) if alike else None
            except TaskError:
                self.asked[key] = None
        return self.asked[key]

    @staticmethod
    def _cost(traced: Any, args: tuple[ArgSpec, ...]) -> float:
        elements = sum(prod(a.shape) for a in args) + sum(prod(a.shape) for a in traced.closed.out_avals)
        return max(work(traced.closed), _PER_ELEMENT * elements)

    def _keep(self, name: str, role: CaseRole, args: tuple[ArgSpec, ...]) -> Case:
        self.seen.add(_key(args))
        return Case(name=name, role=role, args=args)


def _structure(traced: Any) -> Any:
    import jax

    avals = traced.closed.out_avals
    return jax.tree.structure(traced.outputs), tuple((len(a.shape), str(a.dtype), a.weak_type) for a in avals)


def _indexed(traced: Any) -> bool:
    """A constant index past an axis's end (``w[3]`` of three taps) does not raise: jax writes a clamped slice."""
    return any(e.primitive.name == "dynamic_slice" for e in equations(traced.closed))


def _key(args: Sequence[ArgSpec]) -> Any:
    return tuple((a.shape, a.dtype) for a in args)


def _override(timing: Case, text: str, number: int) -> Case:
    given = {a.name: a for a in parse_shapes(text)}
    unknown = [n for n in given if n not in {a.name for a in timing.args}]
    if unknown:
        names = ", ".join(a.name for a in timing.args)
        raise UsageError(f"--case names {unknown[0]!r}, which is no array parameter; the parameters are {names}.")
    args = []
    changed: Sizes = {}
    for arg in timing.args:
        new = given.get(arg.name, arg)
        if len(new.shape) != len(arg.shape) or new.dtype != arg.dtype:
            raise UsageError(
                f"--case gives {arg.name!r} as {new.dtype}{list(new.shape)}, but the task has it as "
                f"{arg.dtype}{list(arg.shape)}; keep its rank and dtype."
            )
        changed.update(zip(arg.shape, new.shape, strict=True))
        args.append(arg.model_copy(update={"shape": new.shape}))
    drawn = resize(timing.args, changed)  # for the bounds of index arguments
    return Case(
        name=f"case-{number}", role=CaseRole.CHECK,
        args=tuple(a.model_copy(update={"draw": d.draw}) for a, d in zip(args, drawn, strict=True)),
    )  # fmt: skip


def _one_axis(args: Sequence[ArgSpec]) -> Iterator[tuple[ArgSpec, ...]]:
    """All arguments whose axis number n has a certain size get another one there, and stay as they are elsewhere."""
    places = {(n, size) for a in args for n, size in enumerate(a.shape) if size > 1}
    for part, of in _SCALES[1:]:
        for n, size in sorted(places):
            changed = max(1, size * part // of)
            yield tuple(
                a if a.shape[n : n + 1] != (size,)
                else a.model_copy(update={"shape": (*a.shape[:n], changed, *a.shape[n + 1:])}) for a in args
            )


def _example(timing: Case) -> str:
    short = {"bfloat16": "bf16", "float32": "f32", "float16": "f16", "int32": "i32"}
    small = [(a, ",".join(str(min(d, 256)) for d in a.shape)) for a in timing.args]
    return ", ".join(f"{a.name}: {short.get(a.dtype, a.dtype)}[{dims}]" for a, dims in small)
