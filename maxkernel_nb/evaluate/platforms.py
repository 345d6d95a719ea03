"""A program that asks where it runs, answered: what a TPU would run of it.

``jnp.diagonal`` and others are two programs in one, and the one for a TPU is what is checked, timed and shown. Only
what plain JAX asks is answered; a question inside a kernel stays, and is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from maxkernel_nb import compat

_QUESTION = "platform_index"


def on_tpu(closed: Any) -> Any:
    """``closed`` with every branch on the platform replaced by the TPU's; itself where it asks nothing."""
    import jax

    if not any(map(_asks, closed.jaxpr.eqns)):
        return closed
    specs = [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in closed.in_avals]
    return jax.make_jaxpr(lambda *arguments: _answered(closed.jaxpr, closed.consts, arguments))(*specs)


def _answered(jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    env: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *arguments), strict=True))
    answers: dict[Any, int] = {}

    def read(atom: Any) -> Any:
        return atom.val if compat.is_literal(atom) else env[atom]

    for equation in jaxpr.eqns:
        name, first = equation.primitive.name, next(iter(equation.invars), None)
        if name == _QUESTION:
            answers[equation.outvars[0]] = _index(equation.params["platforms"])
            continue
        if name == "cond" and not compat.is_literal(first) and first in answers:
            branch = equation.params["branches"][answers[first]]
            results = _answered(branch.jaxpr, branch.consts, list(map(read, equation.invars[1:])))
        elif _asks(equation) and (inner := compat.called(equation)) is not None:
            results = _answered(*inner, list(map(read, equation.invars)))
        else:
            results = compat.bind_equation(equation, list(map(read, equation.invars)), equation.params)
        env.update(zip(equation.outvars, results, strict=True))
    return list(map(read, jaxpr.outvars))


def _index(platforms: Sequence[tuple[str, ...] | None]) -> int:
    """Of the TPU's branch, else of the one for all others."""
    named = [n for n, names in enumerate(platforms) if names is not None and "tpu" in names]
    return named[0] if named else [*platforms].index(None)


def _asks(equation: Any) -> bool:
    """True for a question, and for a call of plain JAX that holds one."""
    if equation.primitive.name == _QUESTION:
        return True
    inner = compat.called(equation)
    return inner is not None and any(map(_asks, inner[0].eqns))
