"""The oracle: a captured reference evaluated with every float widened to float64.

The reference's own roundings (``astype(bfloat16)`` between steps, bfloat16 products) are left out; everything else, and
every constant as it was rounded, stays. Conversions to 8-bit and smaller floats stay too: quantising is what such a
function means, not how it is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from maxkernel_nb.compat import bind_equation, is_float, is_number

_CALLS = frozenset({"jit", "pjit", "closed_call", "core_call", "core_closed_call", "custom_jvp_call", "custom_vjp_call",
                    "custom_vjp_call_jaxpr", "checkpoint", "remat", "remat2", "composite", "custom_lin"})  # fmt: skip
_DTYPE_PARAMS = ("preferred_element_type", "dtype", "accumulation_dtype", "out_dtype")
_SCATTERS = ("scatter", "scatter_add", "scatter_mul", "scatter_min", "scatter_max")
# A result read from a float's bits, or made by a kernel, has no meaning in another width.
_OWN_WIDTH = frozenset({"bitcast_convert_type", "nextafter", "pallas_call", "ffi_call", "custom_call"})
_REFUSALS = (TypeError, ValueError, NotImplementedError, AssertionError, KeyError)


class Oracle:
    """``oracle(*inputs)`` takes and gives the flat inputs and outputs of ``closed`` with floats in ``dtype``.

    Call and trace it under ``compat.enable_x64()`` when ``dtype`` is float64. ``notes`` fills while it runs: the
    primitives that were evaluated in their own width.
    """

    def __init__(self, closed: Any, dtype: str = "float64") -> None:
        import numpy as np

        self._closed = closed
        self._float = np.dtype(dtype)
        self._complex = np.dtype("complex128" if dtype == "float64" else "complex64")
        self._own_width: dict[str, None] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(f"{name} was evaluated in the reference's own precision" for name in self._own_width)

    def __call__(self, *inputs: Any) -> list[Any]:
        widened = [self._as(x, v.aval) for x, v in zip(inputs, self._closed.jaxpr.invars, strict=True)]
        return self._run(self._closed.jaxpr, self._closed.consts, widened)

    def wide(self, dtype: Any) -> Any:
        """The dtype that stands for ``dtype`` here."""
        import jax.numpy as jnp

        if is_float(dtype):
            return self._float
        is_complex = getattr(dtype, "kind", "") == "c" or jnp.issubdtype(dtype, jnp.complexfloating)
        return self._complex if is_complex else dtype

    def _as(self, value: Any, aval: Any) -> Any:
        import jax.numpy as jnp

        wanted = self.wide(aval.dtype)
        return value if wanted == aval.dtype and hasattr(value, "aval") else self._convert(jnp.asarray(value), wanted)

    def _convert(self, value: Any, dtype: Any) -> Any:
        from jax import lax

        return value if value.dtype == dtype else lax.convert_element_type(value, dtype)

    def _run(self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        env: dict[Any, Any] = dict(zip(jaxpr.invars, inputs, strict=True))
        env.update((v, self._constant(c, v.aval)) for v, c in zip(jaxpr.constvars, consts, strict=True))

        def read(atom: Any) -> Any:
            return self._constant(atom.val, atom.aval) if hasattr(atom, "val") else env[atom]

        for eqn in jaxpr.eqns:
            env.update(zip(eqn.outvars, self._equation(eqn, [read(v) for v in eqn.invars]), strict=True))
        return [read(v) for v in jaxpr.outvars]

    def _constant(self, value: Any, aval: Any) -> Any:
        import jax.numpy as jnp

        if not is_number(aval):
            return value
        return self._convert(jnp.asarray(value, aval.dtype), self.wide(aval.dtype))

    def _equation(self, eqn: Any, inputs: list[Any]) -> Sequence[Any]:
        name = eqn.primitive.name
        if name in _CALLS:
            return self._call(eqn, inputs)
        special = _CONTROL.get(name)
        if special is not None:
            return special(self, eqn.params, inputs)
        if name in ("convert_element_type", "reduce_precision"):
            return [self._conversion(eqn, inputs[0])]
        if name.replace("-", "_") in _SCATTERS:
            return [self._scatter(name.replace("-", "_"), eqn, inputs)]
        if name in _OWN_WIDTH:
            return self._in_own_width(eqn, inputs)
        try:
            return bind_equation(eqn, inputs, self._widened(eqn.params))
        except _REFUSALS:
            return self._in_own_width(eqn, inputs)

    def _call(self, eqn: Any, inputs: list[Any]) -> list[Any]:
        closed = next(p for p in map(eqn.params.get, ("jaxpr", "call_jaxpr", "fun_jaxpr")) if p is not None)
        return self._run(getattr(closed, "jaxpr", closed), getattr(closed, "consts", ()), inputs)

    def _widened(self, params: dict[str, Any]) -> dict[str, Any]:
        changed = {k: self.wide(params[k]) for k in _DTYPE_PARAMS if params.get(k) is not None}
        if "precision" in params:  # an algorithm for bfloat16 or tf32 products would refuse float64
            changed["precision"] = None
        return {**params, **changed}

    def _conversion(self, eqn: Any, value: Any) -> Any:
        aval = eqn.outvars[0].aval
        if is_float(aval.dtype) and aval.dtype.itemsize == 1:
            # From the reference's own width, so that an input is quantised to the very same values.
            value = self._convert(self._convert(value, eqn.invars[0].aval.dtype), aval.dtype)
        return self._convert(value, self.wide(aval.dtype))

    def _scatter(self, name: str, eqn: Any, inputs: list[Any]) -> Any:
        from jax import lax

        p = eqn.params
        return getattr(lax, name)(
            *inputs, dimension_numbers=p["dimension_numbers"], indices_are_sorted=p["indices_are_sorted"],
            unique_indices=p["unique_indices"], mode=p["mode"],
        )  # fmt: skip

    def _in_own_width(self, eqn: Any, inputs: list[Any]) -> list[Any]:
        """Narrows to the reference's dtypes, evaluates, widens. Noted, unless bits become a float (exact)."""
        exact = eqn.primitive.name == "bitcast_convert_type" and not is_float(eqn.invars[0].aval.dtype)
        if not exact:
            self._own_width[eqn.primitive.name] = None
        narrow = [self._convert(x, v.aval.dtype) if is_number(v.aval) else x
                  for x, v in zip(inputs, eqn.invars, strict=True)]  # fmt: skip
        out = bind_equation(eqn, narrow, interpreted(eqn).params)
        return [self._as(o, v.aval) if is_number(v.aval) else o for o, v in zip(out, eqn.outvars, strict=True)]

    def _while(self, params: dict[str, Any], inputs: list[Any]) -> list[Any]:
        from jax import lax

        n_cond, n_body = params["cond_nconsts"], params["body_nconsts"]
        cond_consts, body_consts, init = inputs[:n_cond], inputs[n_cond : n_cond + n_body], inputs[n_cond + n_body :]
        cond, body = params["cond_jaxpr"], params["body_jaxpr"]
        return lax.while_loop(
            lambda carry: self._run(cond.jaxpr, cond.consts, [*cond_consts, *carry])[0],
            lambda carry: self._run(body.jaxpr, body.consts, [*body_consts, *carry]),
            init,
        )

    def _scan(self, params: dict[str, Any], inputs: list[Any]) -> list[Any]:
        from jax import lax

        n_consts, n_carry, closed = params["num_consts"], params["num_carry"], params["jaxpr"]
        consts, init, xs = inputs[:n_consts], inputs[n_consts : n_consts + n_carry], inputs[n_consts + n_carry :]

        def step(carry: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
            out = self._run(closed.jaxpr, closed.consts, [*consts, *carry, *x])
            return out[:n_carry], out[n_carry:]

        carry, ys = lax.scan(step, init, xs, length=params["length"], reverse=params["reverse"])
        return [*carry, *ys]

    def _cond(self, params: dict[str, Any], inputs: list[Any]) -> list[Any]:
        from jax import lax

        branches = [lambda *args, b=b: self._run(b.jaxpr, b.consts, args) for b in params["branches"]]
        return lax.switch(inputs[0], branches, *inputs[1:])

    def _linear_solve(self, params: dict[str, Any], inputs: list[Any]) -> list[Any]:
        """The solver itself, forward only."""
        lengths, jaxprs = params["const_lengths"], params["jaxprs"]
        start = lengths.matvec + lengths.vecmat
        consts, b = inputs[start : start + lengths.solve], inputs[sum(lengths) :]
        return self._run(jaxprs.solve.jaxpr, jaxprs.solve.consts, [*consts, *b])


_CONTROL: dict[str, Callable[[Oracle, dict[str, Any], list[Any]], list[Any]]] = {
    "while": Oracle._while, "scan": Oracle._scan, "cond": Oracle._cond, "custom_linear_solve": Oracle._linear_solve,
}  # fmt: skip


def oracle(closed_jaxpr: Any, dtype: str = "float64") -> Oracle:
    """The callable that evaluates ``closed_jaxpr`` with every float in ``dtype`` (see ``Oracle``)."""
    return Oracle(closed_jaxpr, dtype)


def interpreted(eqn: Any) -> Any:
    """The equation, a Pallas call switched to interpret mode so that it can be lowered for the CPU."""
    if eqn.primitive.name != "pallas_call":
        return eqn
    return eqn.replace(params={**eqn.params, "interpret": True})
