"""Look at what an input generator makes without making it: a few thousand elements of each output.

A generator at full size may take seconds and gigabytes. Almost all are random numbers followed by elementwise
arithmetic, and then a sample of the outputs needs only a sample of the random numbers.
"""

from __future__ import annotations

import math
from typing import Any

from maxkernel_nb.compat import bind_equation, inner_jaxprs

COUNT = 4096  # elements in each sample
_SMALL = 4096  # arrays up to this size are computed as they are
_CALLS = frozenset({"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "checkpoint",
                    "remat2"})  # fmt: skip
_KEEPS_VALUES = frozenset({"reshape", "transpose", "squeeze", "expand_dims", "slice", "rev", "copy", "sort", "copy_p",
                           "dynamic_slice", "broadcast_in_dim", "optimization_barrier"})  # fmt: skip
_ELEMENTWISE = frozenset({
    "abs", "add", "and", "atan2", "bitcast_convert_type", "cbrt", "ceil", "clamp", "convert_element_type",
    "cos", "cosh", "div", "eq", "erf", "erfc", "erf_inv", "exp", "exp2", "expm1", "floor", "ge", "gt",
    "integer_pow", "is_finite", "le", "log", "log1p", "logistic", "lt", "max", "min", "mul", "ne", "neg",
    "nextafter", "not", "or", "pow", "population_count", "reduce_precision", "rem", "round", "rsqrt",
    "select_n", "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "sqrt",
    "square", "sub", "tan", "tanh", "xor",
})  # fmt: skip


def sample_outputs(closed: Any, inputs: list[Any]) -> list[Any]:
    """A sample (vector, or the whole array when it is small) of each output of the generator's jaxpr.

    None where a primitive mixes elements in a way that a sample cannot follow. Traceable: call it under ``jax.jit``.
    """
    return [value for value, _ in _run(closed.jaxpr, closed.consts, [(x, True) for x in inputs])]


def _run(jaxpr: Any, consts: Any, inputs: list[tuple[Any, bool]]) -> list[tuple[Any, bool]]:
    """Values are ``(array, whole)``; not whole: a vector of ``COUNT`` sampled elements, or None for unknown."""
    env: dict[Any, tuple[Any, bool]] = dict(zip(jaxpr.invars, inputs, strict=True))
    env.update(zip(jaxpr.constvars, [_seen(c) for c in consts], strict=True))
    for eqn in jaxpr.eqns:
        values = [(v.val, True) if hasattr(v, "val") else env[v] for v in eqn.invars]
        env.update(zip(eqn.outvars, _equation(eqn, values), strict=True))
    return [(v.val, True) if hasattr(v, "val") else env[v] for v in jaxpr.outvars]


def _equation(eqn: Any, values: list[tuple[Any, bool]]) -> list[tuple[Any, bool]]:
    name = eqn.primitive.name
    small = all(math.prod(v.aval.shape) <= _SMALL for v in eqn.outvars)
    if name in _CALLS:
        closed = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
        inner = next(inner_jaxprs({"jaxpr": closed}))
        return _run(inner, getattr(closed, "consts", ()), values)
    if small and all(whole for _, whole in values):
        return [(o, True) for o in bind_equation(eqn, [v for v, _ in values], eqn.params)]
    if any(v is None for v, _ in values):
        return [(None, False)] * len(eqn.outvars)
    return [(v, False) for v in _sampled(name, eqn, values)]


def _sampled(name: str, eqn: Any, values: list[tuple[Any, bool]]) -> list[Any]:
    import jax
    import jax.numpy as jnp

    aval = eqn.outvars[0].aval
    if name == "random_bits" and values[0][0].ndim == 0:
        return [eqn.primitive.bind(values[0][0], **{**eqn.params, "shape": (COUNT,)})]
    if name == "iota":
        return [jnp.linspace(0, aval.shape[eqn.params["dimension"]] - 1, COUNT).astype(aval.dtype)]
    if name == "concatenate":
        return [jnp.concatenate([_vector(v) for v, _ in values])[:: len(values)]]
    if name in _KEEPS_VALUES:
        return [_vector(v) for v, _ in values[: len(eqn.outvars)]]
    if name not in _ELEMENTWISE:
        return [None] * len(eqn.outvars)
    vectors = [_vector(v) for v, _ in values]
    params = {**eqn.params, "sharding": None} if "sharding" in eqn.params else eqn.params
    return [jax.lax.broadcast_in_dim(eqn.primitive.bind(*vectors, **params), (COUNT,), (0,))]


def _seen(const: Any) -> tuple[Any, bool]:
    whole = math.prod(const.shape) <= _SMALL
    return (const, True) if whole else (_vector(const), False)


def _vector(value: Any) -> Any:
    import jax.numpy as jnp

    flat = jnp.asarray(value).reshape(-1)
    return flat[jnp.arange(COUNT) * max(1, flat.size // COUNT) % flat.size]
