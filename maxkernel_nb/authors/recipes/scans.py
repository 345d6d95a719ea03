"""A loop over time as the recipes read it: what a step computes of one input alone is taken out of the loop.

``lax.scan`` over a state often prepares its inputs in the step (``exp`` of a log decay, a key brought to length one).
Such values do not see the state, so they are computed for all steps at once, and the loop is left with the recurrence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from maxkernel_nb import compat

_LAYOUT = frozenset({"broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "convert_element_type"})


@dataclass(frozen=True)
class Step:
    """One step, as a jaxpr is read: ``invars`` are constants, the state, one slice of each array, values ``ahead``."""

    constvars: tuple[Any, ...]
    invars: tuple[Any, ...]
    eqns: tuple[Any, ...]
    outvars: tuple[Any, ...]


@dataclass(frozen=True)
class Loop:
    """``ahead``: closed jaxpr of (constants, whole arrays) -> what the steps are given beside them, or None."""

    step: Step
    consts: tuple[Any, ...]
    num_consts: int
    num_carry: int
    length: int
    reverse: bool
    ahead: Any = None

    def read(self) -> set[int]:
        """Numbers of the inputs that a step reads."""
        atoms = [a for e in self.step.eqns for a in e.invars] + list(self.step.outvars)
        used = {a for a in atoms if not compat.is_literal(a)}
        return {i for i, v in enumerate(self.step.invars) if v in used}


def read_loop(equation: Any) -> Loop:
    """``equation``: of a ``scan``. A value is taken out if one input alone decides it and it is no larger than that."""
    params, closed = equation.params, equation.params["jaxpr"]
    step, consts = closed.jaxpr, params["num_consts"]
    carried = consts + params["num_carry"]
    sources = _sources(step, consts)
    early = [e for e in step.eqns if _early(e, step, sources, carried)]
    made = {v for e in early for v in e.outvars}
    late = [e for e in step.eqns if e not in early]
    read = [a for e in late for a in e.invars] + list(step.outvars)
    given = list(dict.fromkeys(a for a in read if not compat.is_literal(a) and a in made and sources[a]))
    kept = _needed(step.eqns, step.outvars, stop=given)
    new = Step(tuple(step.constvars), (*step.invars, *given), tuple(kept), tuple(step.outvars))
    ahead = None
    if given:
        ahead = _ahead(closed, _needed(step.eqns, given), given, consts, carried, [v.aval for v in equation.invars])
    return Loop(new, tuple(closed.consts), consts, params["num_carry"], params["length"], params["reverse"], ahead)


def _sources(step: Any, consts: int) -> dict[Any, frozenset[int]]:
    """By variable: the numbers of the step's inputs (constants apart) that it depends on."""
    found = {v: frozenset({i} if i >= consts else ()) for i, v in enumerate(step.invars)}
    found.update(dict.fromkeys(step.constvars, frozenset()))
    for equation in step.eqns:
        read: frozenset[int] = frozenset()
        for atom in equation.invars:
            read |= frozenset() if compat.is_literal(atom) else found[atom]
        found.update(dict.fromkeys(equation.outvars, read))
    return found


def _early(equation: Any, step: Any, sources: dict[Any, frozenset[int]], carried: int) -> bool:
    read = sources[equation.outvars[0]]
    if equation.primitive.name in _LAYOUT or len(read) != 1 or min(read) < carried:
        return False
    limit = max(math.prod(step.invars[i].aval.shape) for i in read)
    return all(math.prod(v.aval.shape) <= limit for v in equation.outvars)


def _needed(equations: Any, wanted: Any, stop: Any = ()) -> list[Any]:
    """The equations behind ``wanted``; what is in ``stop`` is given."""
    open_ones, kept = {a for a in wanted if not compat.is_literal(a)} - set(stop), []
    for equation in reversed(equations):
        if any(v in open_ones for v in equation.outvars):
            kept.append(equation)
            open_ones |= {a for a in equation.invars if not compat.is_literal(a)} - set(stop)
    return kept[::-1]


def _ahead(closed: Any, equations: list[Any], given: list[Any], consts: int, carried: int, avals: list[Any]) -> Any:
    """``given`` for all steps at once, of the constants and the whole arrays, as a closed jaxpr."""
    import jax

    step = closed.jaxpr

    def one(fixed: Any, slices: Any) -> list[Any]:
        known = dict(zip(step.constvars, closed.consts, strict=True))
        known.update(zip([*step.invars[:consts], *step.invars[carried:]], [*fixed, *slices], strict=True))
        for equation in equations:
            inputs = [a.val if compat.is_literal(a) else known[a] for a in equation.invars]
            known.update(zip(equation.outvars, compat.bind_equation(equation, inputs, equation.params), strict=True))
        return [known[v] for v in given]

    def whole(*arrays: Any) -> Any:
        fixed, moving = arrays[:consts], arrays[consts:]
        return jax.vmap(lambda slices: one(fixed, slices))(moving)

    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (*avals[:consts], *avals[carried:])]
    return jax.make_jaxpr(whole)(*shapes)
