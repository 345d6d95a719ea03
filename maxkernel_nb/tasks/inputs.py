"""Where a task's inputs come from: ``--inputs``, ``--shapes``, variables in the notebook, or ``create_inputs``."""

from __future__ import annotations

import ast
import difflib
import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from maxkernel_nb.errors import UsageError
from maxkernel_nb.task import ArgSpec, Parameter, Tree
from maxkernel_nb.tasks import generators, trees
from maxkernel_nb.tasks.draws import draw_like, fitted_draw, sample_of, settled
from maxkernel_nb.tasks.shapes import EXAMPLE, default_draw, parse_shapes

__all__ = ["ResolvedInputs", "describe", "parse_shapes", "resolve_inputs"]

_MISSING = object()
_Parameters = Mapping[str, inspect.Parameter]
_SCALARS = (bool, int, float, complex, str, bytes, type(None))


@dataclass(frozen=True)
class ResolvedInputs:
    """``args``: the arrays in signature order; ``static``: other parameters (JSON values); ``origin``: for a person.

    ``trees``: what each parameter is given, where one holds more than an array.
    """

    args: tuple[ArgSpec, ...]
    static: dict[str, Any]
    origin: str
    notes: tuple[str, ...] = ()
    trees: tuple[Parameter, ...] = ()


@dataclass
class _Found:
    """Values by parameter name, where each came from, and what was noted on the way."""

    values: dict[str, Any]
    origins: dict[str, str]
    notes: list[str] = field(default_factory=list)


def resolve_inputs(
    fn: Callable[..., Any],
    *,
    inputs: Any = None,
    namespace: Mapping[str, Any] | None = None,
    shapes: str | None = None,
    static: Sequence[str] | Mapping[str, Any] = (),
) -> ResolvedInputs:
    """Finds every parameter of ``fn``: an array's shape, dtype and draw, or a static value.

    In order, for each parameter: ``inputs`` (a generator, called with a key if it takes one; or a tuple, dict or
    single array), ``shapes``, a variable of ``namespace`` with its name, ``create_inputs`` of ``namespace``, its
    default. ``static`` names parameters that are not arrays, as ``"n"``, ``"n=8"`` or a mapping; Python scalars,
    strings and None are static by themselves. Raises ``UsageError`` naming the parameter and what to pass.
    """
    signature = _signature(fn)
    fixed = _static_values(static, signature)
    found = _gather(signature, inputs, namespace or {}, shapes, fixed)
    args: list[ArgSpec] = []
    held: list[Parameter] = []
    constants: dict[str, Any] = {}
    for name, parameter in signature.items():
        value = found.values.get(name, _MISSING)
        if value is _MISSING:
            value = parameter.default
            if value is parameter.empty:
                raise UsageError(_missing(name, signature, name in fixed))
        if _is_constant(value, name in fixed):
            _keep_constant(name, value, parameter, constants)
        elif not (trees.is_tree(value) and value is parameter.default):  # a default is left to the function
            tree, arrays = _described(name, value, found.notes)
            held.append(Parameter(name=name, tree=tree))
            args += arrays
    if not args:
        raise UsageError(
            f"No array argument was found for {_name(fn)}; pass --shapes \"{EXAMPLE}\", or --inputs with a function "
            "that makes them."
        )
    dimensions = sorted({d for a in args for d in a.shape if d > 2})
    snapped = tuple(a.model_copy(update={"draw": settled(a.draw, dimensions)}) for a in args)
    origin = ", ".join(dict.fromkeys(found.origins[p.name] for p in held if p.name in found.origins)) or "defaults"
    plain = all(p.tree.kind == "array" for p in held)
    return ResolvedInputs(snapped, constants, origin, tuple(found.notes), () if plain else tuple(held))


def _described(name: str, value: Any, notes: list[str]) -> tuple[Tree, list[ArgSpec]]:
    if not trees.is_tree(value):
        return Tree(kind="array", name=name), [describe(name, value, notes)]
    arrays: dict[str, Any] = {}
    tree = trees.tree_of(name, value, is_array, arrays)
    return tree, [describe(n, a, notes) for n, a in arrays.items()]


def describe(name: str, value: Any, notes: list[str] | None = None) -> ArgSpec:
    """The ``ArgSpec`` of an array, of a ``ShapeDtypeStruct`` (default draw), or of an ``ArgSpec`` (itself)."""
    import jax

    if isinstance(value, ArgSpec):
        return value
    if isinstance(value, generators.Sampled):
        draw = draw_like(value.samples, value.dtype) if value.samples else default_draw(value.dtype)
        if all(s.size == math.prod(value.shape) for s in value.samples):
            draw = fitted_draw([s.reshape(value.shape) for s in value.samples], draw)
        if not value.samples and notes is not None:
            notes.append(f"The values of {name!r} are too many to make and not sampled; {draw.kind} ones serve.")
        return ArgSpec(name=name, shape=value.shape, dtype=value.dtype, draw=draw)
    if not is_array(value):
        raise UsageError(
            f"Argument {name!r} is a {type(value).__name__}; a task takes arrays, and dicts, lists and tuples of them "
            "(or name it in --static when it is not data)."
        )
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended):
        raise UsageError(f"Argument {name!r} is a random key; draw the numbers outside and pass them as an array.")
    dtype = str(jax.dtypes.canonicalize_dtype(value.dtype))
    shape = tuple(int(d) for d in value.shape)
    if isinstance(value, jax.ShapeDtypeStruct):
        return ArgSpec(name=name, shape=shape, dtype=dtype, draw=default_draw(dtype))
    if 0 in shape:
        raise UsageError(f"Argument {name!r} has the empty shape {list(shape)}; pass one with elements.")
    samples = sample_of(value)
    bounds = (int(value.min()), int(value.max())) if "int" in dtype and dtype != "bool" else None
    draw = draw_like([samples], dtype, bounds)
    return ArgSpec(name=name, shape=shape, dtype=dtype, draw=fitted_draw([np.asarray(value)], draw) if bounds else draw)


def is_array(value: Any) -> bool:
    return isinstance(getattr(value, "shape", None), tuple) and hasattr(value, "dtype")


def _gather(
    signature: _Parameters, inputs: Any, namespace: Mapping[str, Any], shapes: str | None, fixed: dict[str, Any]
) -> _Found:
    found = _Found(dict(fixed), dict.fromkeys(fixed, "--static"))

    def add(values: Mapping[str, Any], origin: str) -> None:
        for name, value in values.items():
            if name in signature and found.values.get(name, _MISSING) is _MISSING:
                found.values[name], found.origins[name] = value, origin

    if inputs is not None:
        others = {**fixed, **(_from_shapes(shapes, signature) if shapes else {})}
        add(_from_inputs(inputs, namespace, signature, others), "inputs")
    if shapes:
        add(_from_shapes(shapes, signature), "shapes")
    open_ones = [n for n in signature if found.values.get(n, _MISSING) is _MISSING]
    needed = [n for n in open_ones if n in fixed or signature[n].default is inspect.Parameter.empty]
    in_notebook = {n: namespace[n] for n in needed if n in namespace and _usable(namespace[n], n in fixed)}
    add(in_notebook, "notebook variables")
    maker = namespace.get("create_inputs")
    if callable(maker) and any(found.values.get(n, _MISSING) is _MISSING and n not in fixed for n in needed):
        add(_by_name(generators.made_by(maker), signature, "create_inputs"), "create_inputs")
    return found


def _from_inputs(
    inputs: Any, namespace: Mapping[str, Any], signature: _Parameters, others: Mapping[str, Any]
) -> dict[str, Any]:
    """``others``: the parameters that ``--static`` or ``--shapes`` give; values by position must cover the rest."""
    if isinstance(inputs, str):
        if inputs not in namespace:
            near = difflib.get_close_matches(inputs, [n for n in namespace if not n.startswith("_")], n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "; define it first."
            raise UsageError(f"--inputs {inputs!r} is not defined in the notebook{hint}")
        inputs = namespace[inputs]
    made = generators.made_by(inputs) if callable(inputs) and not hasattr(inputs, "shape") else inputs
    if isinstance(made, Mapping):
        return _by_name(made, signature, "--inputs")
    open_ones = {n: p for n, p in signature.items() if others.get(n, _MISSING) is _MISSING}
    needed = [n for n, p in open_ones.items() if p.default is p.empty]
    count = len(made) if isinstance(made, tuple | list) else 1
    given = _by_name(made, open_ones if count == len(needed) else signature, "--inputs")
    _refuse_too_few(getattr(inputs, "__name__", "--inputs"), given, namespace, signature, others)
    return given


def _refuse_too_few(
    label: str, given: Mapping[str, Any], namespace: Mapping[str, Any], signature: _Parameters,
    others: Mapping[str, Any],
) -> None:
    """What a generator leaves out is never taken from arrays that happen to lie in the notebook."""
    arrays = [
        n for n, p in signature.items()
        if n in given or (p.default is p.empty and not isinstance(namespace.get(n, _MISSING), _SCALARS))
    ]
    arrays = [n for n in arrays if n not in others]
    left = [n for n in arrays if n not in given]
    if left:
        values = "1 value" if len(given) == 1 else f"{len(given)} values"
        raise UsageError(
            f"{label} gives {values} for the {len(arrays)} parameters {', '.join(arrays)}; let it give "
            f"{', '.join(left)} too, or name what is no array in --static."
        )


def _by_name(made: Any, signature: _Parameters, origin: str) -> dict[str, Any]:
    """A tuple by position, a mapping by name, anything else as the only argument."""
    if isinstance(made, Mapping):
        if len(signature) == 1 and not made.keys() & signature.keys():
            return {next(iter(signature)): made}
        unknown = [n for n in made if n not in signature]
        if unknown:
            names = ", ".join(signature)
            raise UsageError(f"{origin} gives {unknown[0]!r}, which is no parameter; the parameters are {names}.")
        return dict(made)
    values = list(made) if isinstance(made, tuple | list) else [made]
    if len(values) > len(signature):
        names = ", ".join(signature)
        raise UsageError(f"{origin} gives {len(values)} values for the {len(signature)} parameters {names}; drop some.")
    return dict(zip(signature, values, strict=False))


def _from_shapes(shapes: str, signature: _Parameters) -> dict[str, Any]:
    given = trees.nested({a.name: a for a in parse_shapes(shapes)})
    for name in given:
        if name not in signature:
            near = difflib.get_close_matches(name, list(signature), n=1, cutoff=0.0)[0]
            raise UsageError(f"--shapes names {name!r}, which is no parameter; did you mean {near!r}?")
    return given


def _usable(value: Any, named_static: bool) -> bool:
    """Notebook variables count when they are arrays or plain values: a module called ``x`` is not taken for data."""
    return named_static or isinstance(value, (*_SCALARS, tuple, list, dict)) or is_array(value)


def _static_values(static: Sequence[str] | Mapping[str, Any], signature: _Parameters) -> dict[str, Any]:
    if isinstance(static, str):
        static = [static]
    pairs = dict(static) if isinstance(static, Mapping) else dict(_static_pair(item) for item in static)
    for name in pairs:
        if name not in signature:
            near = difflib.get_close_matches(name, list(signature), n=1, cutoff=0.0)
            hint = f"; did you mean {near[0]!r}?" if near else "; the function has none."
            raise UsageError(f"--static names {name!r}, which is no parameter{hint}")
    return pairs


def _static_pair(item: str) -> tuple[str, Any]:
    name, equals, text = item.partition("=")
    if not equals:
        return name.strip(), _MISSING
    try:
        return name.strip(), ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return name.strip(), text.strip()


def _is_constant(value: Any, named_static: bool) -> bool:
    plain = isinstance(value, (*_SCALARS, np.generic, np.dtype))
    return named_static or plain or (callable(value) and not is_array(value))


def _keep_constant(name: str, value: Any, parameter: inspect.Parameter, constants: dict[str, Any]) -> None:
    """Records a JSON value. A default that is none is left to the function; anything else cannot be kept."""
    if isinstance(value, np.generic) or (hasattr(value, "item") and getattr(value, "ndim", 1) == 0):
        value = value.item()
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        if parameter.default is value:
            return
        raise UsageError(
            f"Static parameter {name!r} is a {type(value).__name__}, which cannot be written down; use a number, a "
            "string, a bool or None, or make it the parameter's default."
        ) from None
    constants[name] = value


def _signature(fn: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError) as error:
        raise UsageError(f"The parameters of {_name(fn)} cannot be read ({error}); wrap it in a plain def.") from error
    for parameter in parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise UsageError(f"{_name(fn)} takes *{parameter.name}; give its arrays separate names.")
    return {n: p for n, p in parameters.items() if p.kind is not p.VAR_KEYWORD}


def _missing(name: str, signature: _Parameters, named_static: bool) -> str:
    if named_static:
        return f"--static {name} has no value; pass --static {name}=VALUE, or define {name} in the notebook."
    return (
        f"No value for parameter {name!r} of ({', '.join(signature)}); define a variable {name} in the notebook, or "
        f'pass --shapes "{name}: bf16[1024,1024]", or --static {name}=VALUE when it is not an array.'
    )


def _name(fn: Any) -> str:
    return getattr(fn, "__name__", None) or getattr(getattr(fn, "func", None), "__name__", None) or type(fn).__name__
