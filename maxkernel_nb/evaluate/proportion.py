"""What is timed must be what was checked: the timing case's program is held against those of the check cases.

The full-size program must read every argument and use every kind of arithmetic that all checked ones do. Whether it is
right is shown by running it (``apart``). Where that is too much for a CPU, its work must grow as the reference's does:
``doubt`` says where it does not. A program that is honestly of another order than the reference (algebra, a window)
raises the same doubt, and has the less work the easier it is to run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from maxkernel_nb import compat
from maxkernel_nb.tasks.work import work

SHARE = 0.9  # of the reference's work: more than this raises no doubt
DROP = 1.25  # times less work, in proportion to the reference's, than in any checked case
_PRODUCTS = ("dot_general", "ragged_dot", "ragged_dot_general", "conv_general_dilated")
_ARITHMETIC = frozenset({
    "add", "add_any", "cos", "cumsum", "div", "dot_general", "erf", "erf_inv", "exp", "exp2", "log", "log1p",
    "logistic", "max", "min", "mul", "pow", "reduce_max", "reduce_min", "reduce_sum", "rsqrt", "sin", "sqrt", "sub",
    "tanh",
})  # fmt: skip


def facts(closed: Any) -> dict[str, Any]:
    """``work``: operations; ``products``: those in matrix products and convolutions; ``used``: numbers of the arguments
    that are read; ``kinds``: of primitives; ``arithmetic``: those on floats.
    """
    kinds = {
        e.primitive.name for e in compat.equations(closed)
        if e.primitive.name in _ARITHMETIC and any(_is_float(v.aval) for v in e.outvars)
    }  # fmt: skip
    counted = {"work": work(closed), "products": work(closed, _PRODUCTS)}
    every = sorted({e.primitive.name for e in compat.equations(closed)})
    return {**counted, "used": sorted(_read(closed.jaxpr)), "arithmetic": sorted(kinds), "kinds": every}


def difference(
    timing: Mapping[str, Any], checked: Mapping[str, Mapping[str, Any]], params: tuple[str, ...], name: str
) -> str:
    """One sentence when the timing case's program reads less or uses less arithmetic than all others, else empty."""
    if not checked:
        return ""
    for what in ("used", "arithmetic"):
        always = set.intersection(*(set(c[what]) for c in checked.values()))
        missing = sorted(always - set(timing[what]))
        if missing:
            told = f"reads {params[missing[0]]}" if what == "used" else f"has a {missing[0]}"
            return (
                f"Every checked case {told}, the {name} case does not: what is timed must be what was checked; "
                "let the program not depend on the size."
            )
    return ""


def doubt(timing: Mapping[str, Any], checked: Mapping[str, Mapping[str, Any]], works: Mapping[str, float],
          name: str) -> str:
    """One sentence where the timing case has a kind of operation that no checked case has, or does less of the
    reference's work than every checked case, all of it or products alone; else empty. ``works``: the reference's, by
    case; a case without any says nothing.
    """
    new = sorted(set(timing["kinds"]).difference(*(about["kinds"] for about in checked.values())))
    if checked and new:
        return f"Only the {name} case has a {new[0]}"
    for kind, words in (("work", "the reference's work"), ("products", "the reference's work in products")):
        shares = {c: about[kind] / works[c] for c, about in checked.items() if works.get(c)}
        if not shares or not works.get(name) or not all(shares.values()):
            continue
        share, least = timing[kind] / works[name], min(shares.values())
        if share < SHARE and share < least / DROP:
            return f"In the {name} case it does {share:.2g} of {words}, in the checked cases at least {least:.2g}"
    return ""


_CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call")


def _is_float(aval: Any) -> bool:
    inner = getattr(aval, "inner_aval", aval)
    return hasattr(inner, "dtype") and compat.is_number(inner) and compat.is_float(inner.dtype)


def _read(jaxpr: Any) -> set[int]:
    """Numbers of the arguments that some result depends on. A kernel's operand counts when the kernel touches it."""
    wanted = {v for v in jaxpr.outvars if not compat.is_literal(v)}
    for equation in reversed(jaxpr.eqns):
        if equation.effects or any(v in wanted for v in equation.outvars):
            wanted |= {v for v in _operands(equation) if not compat.is_literal(v)}
    return {number for number, v in enumerate(jaxpr.invars) if v in wanted}


def _operands(equation: Any) -> list[Any]:
    inner = list(compat.inner_jaxprs(equation.params))
    if equation.primitive.name == "pallas_call":
        touched = _touched(equation.params["jaxpr"])
        mapping = equation.params["grid_mapping"]
        first = mapping.num_dynamic_grid_bounds
        return [v for n, v in enumerate(equation.invars) if n < first or n - first in touched]
    if equation.primitive.name in _CALLS and len(inner) == 1:
        read = _read(inner[0])
        return [v for n, v in enumerate(equation.invars) if n in read]
    return list(equation.invars)


def _touched(kernel: Any) -> set[int]:
    used = {v for e in kernel.eqns for v in e.invars if not compat.is_literal(v)}
    return {n for n, v in enumerate(kernel.invars) if v in used}


def floor_ms(bytes_moved: float, hbm_gbs: float) -> float:
    """The least time (ms) in which a chip can move so many bytes once between HBM and the core."""
    return bytes_moved / (hbm_gbs * 1e9) * 1e3


def compulsory_bytes(args: list[tuple[tuple[int, ...], str]], outputs: list[dict[str, Any]]) -> float:
    """Bytes of the arguments whose every element counts, and of the outputs."""
    from maxkernel_nb.evaluate.wire import dtype_named

    sizes = [math.prod(shape) * dtype_named(dtype).itemsize for shape, dtype in args]
    return float(sum(sizes) + sum(math.prod(o["shape"]) * dtype_named(o["dtype"]).itemsize for o in outputs))
