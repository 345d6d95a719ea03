"""Reductions along the rows of a product, taken while blocks of columns are multiplied: how to split the epilogue.

What is known of a row only after its last block of columns (a softmax's largest value) is used on values kept in VMEM,
one block of rows behind the product. So the weights need not be held in whole rows, and the second look at a row costs
no time of its own: the vector unit takes it while the matrix unit works on the next rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from maxkernel_nb.authors.recipes.expressions import Constant, Expression, Step

WIDE_LEAVES = ("full", "row")
PRODUCTS = ("acc", "acc2")


@dataclass(frozen=True)
class Reduction:
    """``step``: its place in the epilogue, ``value``: what is reduced. ``exps``: the place of the sum of exponentials
    less this maximum, which is taken along with it; -1 where there is none."""

    step: int
    kind: str
    value: str
    exps: int = -1


@dataclass(frozen=True)
class RowSplit:
    """``first``: reductions of values that need no other reduction, taken block by block. ``again``: those that do, in
    order, taken from the kept values once all columns are known. ``held``: the value that is kept of every column, or
    nothing. ``kept``: values of a row that the last look needs."""

    first: tuple[Reduction, ...]
    again: tuple[Reduction, ...]
    held: str
    kept: tuple[str, ...]


class _Reading:
    """Which arguments differ along a row, and how many reductions lie below each."""

    def __init__(self, epilogue: Expression) -> None:
        self.epilogue = epilogue
        self.wide = dict.fromkeys(PRODUCTS, True)
        self.wide |= {f"@{i}": leaf.kind in WIDE_LEAVES for i, leaf in enumerate(epilogue.leaves)}
        self.level: dict[str, int] = {}
        for i, step in enumerate(epilogue.steps):
            reduces = step.op.startswith("reduce_")
            below = max((self.level.get(a, 0) for a in step.args), default=0)
            self.level[f"%{i}"] = below + reduces
            self.wide[f"%{i}"] = not reduces and any(self.wide.get(a, False) for a in step.args)

    def step(self, argument: str) -> Step | None:
        return self.epilogue.steps[int(argument[1:])] if argument.startswith("%") else None

    def needs(self, wanted: Iterable[str], stops: Iterable[str] = ()) -> set[str]:
        """The arguments below ``wanted``, themselves included, down to ``stops``."""
        seen: set[str] = set()
        todo = list(wanted)
        while todo:
            argument = todo.pop()
            if argument in seen:
                continue
            seen.add(argument)
            step = self.step(argument)
            if step is not None and argument not in stops:
                todo.extend(step.args)
        return seen

    def exponentials(self, maximum: int, value: str) -> int:
        """The sum over ``exp(value - maximum)``, the maximum as it is or as logsumexp guards it; or -1."""
        for i, step in enumerate(self.epilogue.steps):
            exp = self.step(step.args[0]) if step.op == "reduce_sum" else None
            less = self.step(exp.args[0]) if exp is not None and exp.op == "exp" else None
            if less is not None and less.op == "sub" and less.args[0] == value and self._is(less.args[1], maximum):
                return i
        return -1

    def _is(self, argument: str, maximum: int) -> bool:
        step = self.step(argument)
        if step is not None and step.op == "select":
            test = self.step(step.args[0])
            finite = test is not None and test.op == "is_finite" and test.args == (f"%{maximum}",)
            return finite and step.args[1] == f"%{maximum}"
        return argument == f"%{maximum}"


def split(epilogue: Expression) -> RowSplit | None:
    """How to take an epilogue's reductions block by block, or None where that is not possible."""
    if any(step.op.startswith("run_") for step in epilogue.steps):
        return None
    reading = _Reading(epilogue)
    first, again = _reductions(reading)
    if not first:
        return None
    wide_result = reading.wide.get(epilogue.result, False)
    roots = [r.value for r in again] + ([epilogue.result] if wide_result else [])
    held = _held(reading, roots)
    if held is None:
        return None
    known = {held} if held else set()
    for reduction in again:  # other blocks of the inputs are not at hand
        below = reading.needs([reduction.value], known)
        if any(reading.wide.get(a) and a.startswith("@") for a in below) or below & (set(PRODUCTS) - known):
            return None
    narrow = _narrow(reading)
    below = reading.needs([epilogue.result], known | narrow) if wide_result else set()
    needed = {a for argument in below for a in _args(reading, argument, known)} & narrow
    return RowSplit(tuple(first), tuple(again), held, tuple(sorted(needed, key=_place)))


def reciprocals(epilogue: Expression) -> Expression:
    """Divisions by a number of the row become products with its reciprocal, which is taken once a row."""
    reading = _Reading(epilogue)
    narrow, one = _narrow(reading), f"#{len(epilogue.constants)}"
    steps: list[Step] = []
    moved: dict[str, str] = {}
    for i, step in enumerate(epilogue.steps):
        args = tuple(moved.get(a, a) for a in step.args)
        if step.op == "div" and step.args[1] in narrow and reading.wide[f"%{i}"]:
            steps.append(Step(op="div", args=(one, args[1])))
            step, args = step.model_copy(update={"op": "mul"}), (args[0], f"%{len(steps) - 1}")
        moved[f"%{i}"] = f"%{len(steps)}"
        steps.append(step.model_copy(update={"args": args}))
    if len(steps) == len(epilogue.steps):
        return epilogue
    return epilogue.model_copy(update={
        "steps": tuple(steps), "result": moved.get(epilogue.result, epilogue.result),
        "constants": (*epilogue.constants, Constant(text="1.0")),
    })


def _reductions(reading: _Reading) -> tuple[list[Reduction], list[Reduction]]:
    first: list[Reduction] = []
    again: list[Reduction] = []
    along: set[int] = set()
    for i, step in enumerate(reading.epilogue.steps):
        if not step.op.startswith("reduce_") or i in along:
            continue
        kind, value = step.op[7:], step.args[0]
        if reading.level.get(value, 0):
            again.append(Reduction(i, kind, value))
            continue
        exps = reading.exponentials(i, value) if kind == "max" else -1
        along |= {exps}
        first.append(Reduction(i, kind, value, exps))
    return first, again


def _narrow(reading: _Reading) -> set[str]:
    """Values of a row that are known only once all of its columns are."""
    return {a for a, level in reading.level.items() if level and not reading.wide[a]}


def _args(reading: _Reading, argument: str, known: set[str]) -> tuple[str, ...]:
    step = reading.step(argument)
    if step is None or argument in known or not reading.wide[argument]:
        return ()
    return step.args


def _held(reading: _Reading, roots: list[str]) -> str | None:
    """The one value of every column that later looks start from; "" where none is needed, None where one is no use."""
    if not roots:
        return ""
    frontier: set[str] = set()
    seen: set[str] = set()
    todo = list(roots)
    while todo:
        argument = todo.pop()
        if argument in seen or not reading.wide.get(argument) or argument.startswith("@"):
            continue
        seen.add(argument)
        step = reading.step(argument)
        if step is None or not reading.level[argument]:
            frontier.add(argument)
        else:
            todo.extend(step.args)
    if len(frontier) == 1:
        return frontier.pop()
    return "acc" if reading.needs(frontier) & set(PRODUCTS) == {"acc"} else None


def _place(argument: str) -> int:
    return int(argument[1:])


def part(epilogue: Expression, wanted: Iterable[str], known: Iterable[str]) -> tuple[Expression, dict[str, str]]:
    """The steps that ``wanted`` need beyond what is ``known``, and the new places of the wanted."""
    reading = _Reading(epilogue)
    wanted, known = list(wanted), frozenset(known)
    needed = sorted((a for a in reading.needs(wanted, known) if a.startswith("%") and a not in known), key=_place)
    moved = {a: f"%{i}" for i, a in enumerate(needed)}
    steps = [reading.step(a) for a in needed]
    new = [s.model_copy(update={"args": tuple(moved.get(a, f"known {a}" if a in known else a) for a in s.args)})
           for s in steps if s is not None]
    places = {a: moved.get(a, f"known {a}" if a in known else a) for a in wanted}
    last = places[wanted[-1]]
    return epilogue.model_copy(update={"steps": tuple(new), "result": last}), places
