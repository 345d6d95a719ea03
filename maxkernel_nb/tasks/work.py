"""How much work a jaxpr is: operations, counted before anything is compiled. Only to keep check cases small."""

from __future__ import annotations

import math
from typing import Any

from maxkernel_nb.compat import inner_jaxprs

_UNKNOWN_TRIPS = 16  # of a while loop


def work(closed: Any, only: tuple[str, ...] = ()) -> float:
    """Multiply-adds count two, every other primitive one for each element of its largest operand or result. ``only``:
    the primitives that count; empty: all.
    """
    return sum(_of_equation(e, only) for e in getattr(closed, "jaxpr", closed).eqns)


def _of_equation(eqn: Any, only: tuple[str, ...]) -> float:
    inner = [work(j, only) for j in inner_jaxprs(eqn.params)]
    if inner:
        return sum(inner) * _trips(eqn)
    if only and eqn.primitive.name not in only:
        return 0.0
    size = max((math.prod(v.aval.shape) for v in (*eqn.invars, *eqn.outvars) if hasattr(v.aval, "shape")), default=1)
    out = math.prod(eqn.outvars[0].aval.shape) if eqn.outvars else 1
    if eqn.primitive.name in ("dot_general", "ragged_dot_general", "ragged_dot"):
        return 2.0 * out * _contracted(eqn)
    if eqn.primitive.name == "conv_general_dilated":
        kernel = eqn.invars[1].aval.shape
        spread = math.prod(eqn.params["lhs_dilation"])  # a transposed convolution skips the zeros between
        return 2.0 * out * math.prod(kernel) / kernel[eqn.params["dimension_numbers"].rhs_spec[0]] / spread
    return float(size)


def _contracted(eqn: Any) -> int:
    numbers = eqn.params.get("dimension_numbers")
    shape = eqn.invars[0].aval.shape
    if not isinstance(numbers, tuple):  # ragged: rows x contracted
        return int(shape[-1])
    (contracting, _), _ = numbers
    return math.prod(shape[axis] for axis in contracting)


def _trips(eqn: Any) -> float:
    if eqn.primitive.name == "scan":
        return float(eqn.params["length"])
    if eqn.primitive.name == "pallas_call":
        grid = getattr(eqn.params.get("grid_mapping"), "grid", ())
        return float(math.prod(g for g in grid if isinstance(g, int)))
    return float(_UNKNOWN_TRIPS) if eqn.primitive.name == "while" else 1.0
