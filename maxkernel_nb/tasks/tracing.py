"""Trace a person's function on abstract inputs, and say in one sentence why it cannot be."""

from __future__ import annotations

import dis
import inspect
import os
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxkernel_nb import compat
from maxkernel_nb.errors import TaskError
from maxkernel_nb.task import ArgSpec, Parameter
from maxkernel_nb.tasks import trees as argument_trees
from maxkernel_nb.values import content_hash


@dataclass(frozen=True)
class Traced:
    """A closed jaxpr and the structure of its outputs (a jax tree of ``ShapeDtypeStruct``)."""

    closed: Any
    outputs: Any


class Tracer:
    """Traces ``fn`` with the arrays ``params`` by name and the others fixed. Each shape is traced once.

    ``trees``: how the parameters hold the arrays, where one is more than an array.
    """

    def __init__(self, fn: Callable[..., Any], params: Sequence[str], static: dict[str, Any],
                 trees: Sequence[Parameter] = ()) -> None:
        self.fn, self.params, self.trees = fn, tuple(params), tuple(trees)
        self.name = function_name(fn)
        signature = inspect.signature(fn).parameters
        # A default that is passed all the same becomes a tracer under jax.jit and a mapped argument under jax.vmap.
        self.static = {n: v for n, v in static.items() if n not in signature or not _same(signature[n].default, v)}
        self._positional = [n for n, p in signature.items() if p.kind is inspect.Parameter.POSITIONAL_ONLY]
        self._known: dict[tuple[tuple[tuple[int, ...], str], ...], Traced] = {}

    def call(self, *arrays: Any) -> Any:
        """``fn`` with arrays in the order of ``params``."""
        held = argument_trees.arguments(self.trees, arrays) if self.trees else zip(self.params, arrays, strict=True)
        named = {**self.static, **dict(held)}
        result = self.fn(*[named.pop(n) for n in self._positional if n in named], **named)
        _refuse_other_than_arrays(self.name, result)
        return result

    def __call__(self, args: Sequence[ArgSpec]) -> Traced:
        """Raises ``TaskError``; where the function itself raised, its exception is the cause, trimmed to its frames."""
        key = tuple((a.shape, a.dtype) for a in args)
        if key not in self._known:
            self._known[key] = self.fresh(args)
        return self._known[key]

    def fresh(self, args: Sequence[ArgSpec]) -> Traced:
        import jax

        try:
            closed, outputs = jax.make_jaxpr(self.call, return_shape=True)(*structs(args))
        except TaskError:
            raise
        except Exception as error:
            _trim(error)
            raise TaskError(self._why_not(args, error)) from error
        return Traced(closed, outputs)

    def _why_not(self, args: Sequence[ArgSpec], error: Exception) -> str:
        import jax

        shapes = ", ".join(f"{a.name}: {a.dtype}{list(a.shape)}" for a in args)
        looked = isinstance(error, jax.errors.ConcretizationTypeError | jax.errors.TracerArrayConversionError)
        advice = (
            "name a parameter that is not an array in --static, and let no Python code depend on array values"
            if looked
            else "the traceback shows the line"
        )
        return f"{self.name} does not trace with {shapes}: {_one_line(error)}; {advice}."


def _same(default: Any, value: Any) -> bool:
    return type(default) is type(value) and default == value


def structs(args: Sequence[ArgSpec]) -> list[Any]:
    import jax
    import jax.numpy as jnp

    return [jax.ShapeDtypeStruct(a.shape, jnp.dtype(a.dtype)) for a in args]


def refuse_impure(tracer: Tracer, args: Sequence[ArgSpec]) -> None:
    """Raises ``TaskError`` for side effects, host callbacks, and a function that differs when traced again."""
    first = tracer(args)
    if first.closed.effects:
        effect = sorted(type(e).__name__ for e in first.closed.effects)[0]
        raise TaskError(f"{tracer.name} has a side effect ({effect}); remove prints, callbacks and writes.")
    for eqn in compat.equations(first.closed):
        if "callback" in eqn.primitive.name:
            what = eqn.primitive.name
            raise TaskError(f"{tracer.name} calls back into Python ({what}), which no kernel can; remove it.")
    _refuse_global_writes(tracer)
    before = _surroundings(tracer.fn)
    second = tracer.fresh(args)
    changed = [n for n, v in _surroundings(tracer.fn).items() if before.get(n) != v]
    if changed:
        raise TaskError(f"{tracer.name} changes {changed[0]!r} outside itself; return the value instead.")
    if _fingerprint(first.closed) != _fingerprint(second.closed):
        raise TaskError(
            f"{tracer.name} gives another computation the second time it is traced (random numbers without a key, or a "
            "global that changes); pass what varies as an argument."
        )


def function_name(fn: Any) -> str:
    inner = unwrapped(fn)
    return getattr(inner, "__name__", None) or type(inner).__name__


def unwrapped(fn: Any) -> Any:
    """The plain function under ``functools.partial``, ``jax.jit``, ``jax.vmap``, methods and other honest wrappers."""
    while True:
        inner = getattr(fn, "func", None) or getattr(fn, "__wrapped__", None) or getattr(fn, "__func__", None)
        if inner is None or not callable(inner):
            return fn
        fn = inner


def _refuse_other_than_arrays(name: str, result: Any) -> None:
    import jax

    leaves = jax.tree.leaves(result)
    for leaf in leaves:
        if not hasattr(leaf, "dtype") and not isinstance(leaf, bool | int | float | complex):
            raise TaskError(f"{name} returns a {type(leaf).__name__} among its results; let it return arrays only.")
    if not leaves:
        raise TaskError(f"{name} returns nothing; let it return the array or arrays that the kernel is to compute.")


def _refuse_global_writes(tracer: Tracer) -> None:
    code = getattr(unwrapped(tracer.fn), "__code__", None)
    written = [i.argval for i in dis.get_instructions(code) if i.opname == "STORE_GLOBAL"] if code else []
    if written:
        raise TaskError(f"{tracer.name} assigns the global {written[0]!r}; return the value instead.")


def _surroundings(fn: Any) -> dict[str, Any]:
    """Identity (and length, for containers) of each global and closure cell that the function names."""
    plain = unwrapped(fn)
    code = getattr(plain, "__code__", None)
    if code is None:
        return {}
    seen = {n: plain.__globals__[n] for n in code.co_names if n in plain.__globals__}
    for name, cell in zip(code.co_freevars, plain.__closure__ or (), strict=True):
        try:
            seen[name] = cell.cell_contents
        except ValueError:  # a cell not filled yet
            continue
    return {n: (id(v), len(v) if isinstance(v, list | dict | set) else 0) for n, v in seen.items()}


def _fingerprint(closed: Any) -> str:
    return content_hash(str(closed.jaxpr) + "".join(_constant_hash(c) for c in closed.consts))


def _constant_hash(const: Any) -> str:
    """Large device arrays are compared by identity: a random one would be a new object, and copying them is dear."""
    if not isinstance(const, np.ndarray) and getattr(const, "nbytes", 0) > 1 << 20:
        return f"{id(const)}"
    return content_hash(np.asarray(const).tobytes()) if compat.is_number(const) else str(const)


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    text = (lines[0] if lines else "").strip().rstrip(".:;")
    return f"{type(error).__name__}: {text[:240]}" if text else type(error).__name__


def _trim(error: BaseException) -> None:
    """Leaves ``error`` only the frames of the person's own code (not jax, not this package)."""
    import jax

    hidden = (os.path.dirname(jax.__file__), os.path.dirname(__file__))
    frames = []
    tb = error.__traceback__
    while tb is not None:
        if not tb.tb_frame.f_code.co_filename.startswith(hidden):
            frames.append(tb)
        tb = tb.tb_next
    kept = None
    for tb in reversed(frames):
        kept = types.TracebackType(kept, tb.tb_frame, tb.tb_lasti, tb.tb_lineno)
    error.__cause__ = None  # jax's note on its own hidden frames
    error.__suppress_context__ = True
    error.__traceback__ = kept
