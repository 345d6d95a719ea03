"""Cheap wrong answers to a task: what a kernel could return without doing the work.

Answers that never compute (zeros, a constant, one item repeated, an older result), answers that leave one input out,
and answers that leave one step out. A task is worth something only if all of them are marked wrong. Answers are
functions, so that only those still in question are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from maxkernel_nb.compat import bind_equation, is_literal

Answer = np.ndarray[Any, Any]
Answers = dict[str, Callable[[], Answer]]
Arrays = Sequence[jax.Array]


def without_computing(result: Answer, older: Callable[[], Answer]) -> Answers:
    """``older``: the correct result for other inputs. Constants are left out where the result is one number."""
    answers: Answers = {"all zeros": lambda: np.zeros_like(result), "another draw's result": older}
    if result.size > 1:
        wide = result.astype(np.float64)
        answers["the mean everywhere"] = lambda: np.full_like(result, wide.mean())
        answers["mid-range everywhere"] = lambda: np.full_like(result, (wide.min() + wide.max()) / 2)
    if result.ndim and result.shape[0] > 1:
        answers["first item repeated"] = lambda: np.broadcast_to(result[:1], result.shape)
    return answers


def without_an_input(run: Callable[..., Any], names: Sequence[str], arrays: Arrays, others: Arrays) -> Answers:
    """Each input in turn taken from another draw, which is what ignoring it would amount to at best."""

    def answer(position: int) -> Answer:
        return np.asarray(run(*arrays[:position], others[position], *arrays[position + 1 :]))

    return {f"{name} ignored": partial(answer, i) for i, name in enumerate(names)}


# Bookkeeping: layout, types and index arithmetic. Leaving them out gives no other computation.
_BOOKKEEPING = frozenset({
    "broadcast_in_dim", "convert_element_type", "copy", "copy_p", "optimization_barrier", "reshape", "scan", "select_n",
    "slice", "squeeze", "stop_gradient", "transpose",
})  # fmt: skip


def dropped(closed: Any, names: Sequence[str], most: int = 2) -> dict[str, Callable[..., list[Any]]]:
    """The last steps that can be left out, each as the whole function (flat inputs, flat outputs) without it.

    A reference that is one jitted function is looked into. Traceable, so that it can be exported.
    """
    jaxpr = closed.jaxpr
    only = jaxpr.eqns[0] if len(jaxpr.eqns) == 1 else None
    if only is not None and only.primitive.name in ("jit", "pjit") and list(only.invars) == list(jaxpr.invars):
        return dropped(only.params["jaxpr"], names, most)
    steps = [(n, source) for n, e in enumerate(jaxpr.eqns) if (source := _stand_in(e)) is not None]
    return {
        f"no {_operation(jaxpr.eqns[n])} (step {n + 1})": partial(_without, closed, n, source)
        for n, source in steps[: -most - 1 : -1]
    }


def _without(closed: Any, number: int, source: Any, *inputs: Any) -> list[Any]:
    env: dict[Any, Any] = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    env.update(zip(closed.jaxpr.invars, inputs, strict=True))
    for n, eqn in enumerate(closed.jaxpr.eqns):
        values = [a.val if is_literal(a) else env[a] for a in eqn.invars]
        results = [env[source]] if n == number else bind_equation(eqn, values, eqn.params)
        env.update(zip(eqn.outvars, results, strict=True))
    return [a.val if is_literal(a) else env[a] for a in closed.jaxpr.outvars]


class Steps:
    """A reference taken apart: run one operation at a time, whole or with one of them left out."""

    def __init__(self, closed: Any, names: Sequence[str], arrays: Arrays) -> None:
        self._jaxpr = closed.jaxpr
        self._values: dict[Any, Any] = dict(zip(self._jaxpr.constvars, closed.consts, strict=True))
        self._values.update(zip(self._jaxpr.invars, arrays, strict=True))
        self._origin = dict(zip(self._jaxpr.invars, names, strict=True))
        for eqn in self._jaxpr.eqns:  # a bias keeps its name through reshapes and casts
            if eqn.primitive.name in _BOOKKEEPING and not is_literal(eqn.invars[0]):
                self._origin[eqn.outvars[0]] = self._origin.get(eqn.invars[0], "")
        self._ready = False

    def whole(self) -> Answer:
        """The reference itself, rounded wherever it says so (compiled, it is rounded less often)."""
        self._prepare()
        return np.asarray(self._values[self._jaxpr.outvars[0]])

    def without_one(self) -> Answers:
        """Each step whose result could be its own input (a bias, a norm, an activation), left out."""
        answers: Answers = {}
        for number, eqn in enumerate(self._jaxpr.eqns):
            source = _stand_in(eqn)
            if source is not None:
                answers[f"no {self._name(eqn, source)} (step {number + 1})"] = partial(self._skip, number, source)
        return answers

    def _prepare(self) -> None:
        if not self._ready:
            self._run(self._jaxpr.eqns, self._values)
            self._ready = True

    def _skip(self, number: int, source: Any) -> Answer:
        self._prepare()
        changed = {self._jaxpr.eqns[number].outvars[0]: self._values[source]}
        self._run(self._jaxpr.eqns[number + 1 :], changed, only_changed=True)
        result = self._jaxpr.outvars[0]
        return np.asarray(changed[result] if result in changed else self._values[result])

    def _run(self, eqns: Sequence[Any], target: dict[Any, Any], only_changed: bool = False) -> None:
        def read(atom: Any) -> Any:
            return atom.val if is_literal(atom) else target[atom] if atom in target else self._values[atom]

        for eqn in eqns:
            if not only_changed or any(not is_literal(v) and v in target for v in eqn.invars):
                results = bind_equation(eqn, [read(v) for v in eqn.invars], eqn.params)
                target.update(zip(eqn.outvars, results, strict=True))

    def _name(self, eqn: Any, source: Any) -> str:
        """``add of bias``, ``add 1e-05``, ``tanh``: the operation and, where it has a name, what is left out."""
        others = [atom for atom in eqn.invars if atom is not source]
        number = next((f" {float(a.val):.6g}" for a in others if is_literal(a) and np.ndim(a.val) == 0), "")
        name = next((f" of {self._origin[a]}" for a in others if not is_literal(a) and self._origin.get(a)), "")
        operation = _operation(eqn)
        return f"{operation}{name or (number if operation == eqn.primitive.name else '')}"


def _operation(eqn: Any) -> str:
    """The called function's name (``relu``), or the primitive's. A custom derivative hides it one call down."""
    inner = eqn.params.get("call_jaxpr")
    calls: Any = getattr(getattr(inner, "jaxpr", inner), "eqns", ())
    nested = calls[0].params.get("name") if len(calls) == 1 else None
    return str(eqn.params.get("name") or nested or eqn.primitive.name).strip("_")


def _stand_in(eqn: Any) -> Any:
    """The input with the shape and dtype of the only result that the step is applied to, unless it is bookkeeping."""
    if len(eqn.outvars) != 1 or eqn.primitive.name in _BOOKKEEPING or _is_identity(eqn):
        return None
    wanted = eqn.outvars[0].aval
    if not jnp.issubdtype(wanted.dtype, jnp.floating):
        return None
    for atom in eqn.invars:
        if not is_literal(atom) and (atom.aval.shape, atom.aval.dtype) == (wanted.shape, wanted.dtype):
            return atom
    return None


def _is_identity(eqn: Any) -> bool:
    """``max(x, -inf)``, which jax writes behind every maximum over an axis, and products with one."""
    tests: dict[str, Callable[[Any], Any]] = {"max": np.isneginf, "mul": lambda v: np.asarray(v) == 1}
    neutral = tests.get(eqn.primitive.name)
    return neutral is not None and any(is_literal(a) and np.all(neutral(a.val)) for a in eqn.invars)
