"""Arguments that are dicts, lists or tuples of arrays: their arrays become a task's arguments, one by one.

Inside the engine there are only arrays, in a fixed order; a function and its kernels keep the parameters as written.
An array's name is the way to it, ``params.layers.0.w``, which ``--shapes`` understands too.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from maxkernel_nb.errors import UsageError
from maxkernel_nb.task import Parameter, Tree

Trees = Sequence[Parameter]
_RESERVED = frozenset({*keyword.kwlist, "jax", "jnp", "np", "pl", "pltpu", "functools", "lax"})


def is_tree(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple)


def tree_of(name: str, value: Any, is_array: Callable[[Any], bool], found: dict[str, Any]) -> Tree:
    """``value`` as a tree; its arrays are put into ``found`` by name. Raises ``UsageError`` for what cannot be kept."""
    if is_array(value):
        found[name] = value
        return Tree(kind="array", name=name)
    if hasattr(value, "_fields"):
        kind = type(value).__name__
        raise UsageError(f"Argument {name!r} is a {kind}; make it a dict, or give its arrays one by one.")
    if isinstance(value, Mapping):
        items = tuple((_key(name, k), tree_of(f"{name}.{k}", v, is_array, found)) for k, v in value.items())
        return Tree(kind="dict", items=items)
    if isinstance(value, list | tuple):
        inner = tuple((str(n), tree_of(f"{name}.{n}", v, is_array, found)) for n, v in enumerate(value))
        return Tree(kind="list" if isinstance(value, list) else "tuple", items=inner)
    return Tree(kind="value", value=_plain(name, value))


def results_of(outputs: Any) -> Tree | None:
    """The dict, list or tuple that holds a function's results; None for one array, or another container."""
    if hasattr(outputs, "dtype"):
        return None
    try:
        return tree_of("result", outputs, lambda v: hasattr(v, "dtype"), {})
    except UsageError:
        return None


def built(tree: Tree, arrays: Mapping[str, Any]) -> Any:
    """The value that ``tree`` describes, with ``arrays`` by name in their places."""
    match tree.kind:
        case "array":
            return arrays[tree.name]
        case "dict":
            return {key: built(inner, arrays) for key, inner in tree.items}
        case "value":
            return tree.value
    parts = [built(inner, arrays) for _, inner in tree.items]
    return tuple(parts) if tree.kind == "tuple" else parts


def arguments(trees: Trees, arrays: Iterable[Any]) -> dict[str, Any]:
    """Parameter -> its value, for a task's arrays in their order."""
    named = dict(zip((name for p in trees for name, _ in leaves(p.tree)), arrays, strict=True))
    return {p.name: built(p.tree, named) for p in trees}


def from_arrays(function: Callable[..., Any], trees: Trees) -> Callable[..., Any]:
    """``function`` of a task's arrays in their order, keywords passed on. Without trees it is the function itself."""
    if not trees:
        return function
    return lambda *arrays, **static: function(*arguments(trees, arrays).values(), **static)


def arrays_in(tree: Tree, value: Any) -> list[Any] | None:
    """The arrays of ``value`` in the order of ``tree``; None where it is built otherwise or holds other values."""
    if tree.kind == "array":
        return [value]
    if tree.kind == "value":
        return [] if type(value) is type(tree.value) and value == tree.value else None
    wanted = {"dict": Mapping, "list": list, "tuple": tuple}[tree.kind]
    if not isinstance(value, wanted) or len(value) != len(tree.items):
        return None
    found: list[Any] = []
    for key, inner in tree.items:
        if tree.kind == "dict" and key not in value:
            return None
        part = arrays_in(inner, value[key if tree.kind == "dict" else int(key)])
        if part is None:
            return None
        found += part
    return found


def leaves(tree: Tree, way: str = "") -> Iterator[tuple[str, str]]:
    """Name and Python subscripts (``["layers"][0]``) of each array, in order."""
    if tree.kind == "array":
        yield tree.name, way
    for key, inner in tree.items:
        yield from leaves(inner, way + subscript(tree, key))


def values(tree: Tree, way: str = "") -> Iterator[tuple[str, Any]]:
    """Subscripts and value of each fixed value within."""
    if tree.kind == "value":
        yield way, tree.value
    for key, inner in tree.items:
        yield from values(inner, way + subscript(tree, key))


def subscript(tree: Tree, key: str) -> str:
    return f"[{json.dumps(key)}]" if tree.kind == "dict" else f"[{key}]"


def identifiers(names: Sequence[str], taken: Iterable[str] = ()) -> tuple[str, ...]:
    """A Python name for each array, no two the same, none of ``taken``: ``params.layers.0.w`` is the shortest end of it
    that is no other's, ``w`` or ``layers_0_w``.
    """
    given: list[str] = []
    for name in names:
        if "." not in name:  # a parameter
            given.append(name)
            continue
        ends = _ends(name)
        others = {end for other in names if other != name for end in _ends(other)} | set(taken) | set(given)
        free = [end for end in ends if end not in others and end.isidentifier() and end not in _RESERVED]
        given.append(free[0] if free else next(w for n in range(2, 99) if (w := f"{ends[-1]}_{n}") not in others))
    return tuple(given)


def _ends(name: str) -> list[str]:
    parts = [re.sub(r"\W", "_", part) for part in name.split(".")]
    return ["_".join(parts[-count:]) for count in range(1, len(parts) + 1)]


def nested(values_by_way: Mapping[str, Any]) -> dict[str, Any]:
    """``{"x": a, "p.w": b, "p.l.0": c}`` -> ``{"x": a, "p": {"w": b, "l": [c]}}``; whole numbers from 0 make a list."""
    top: dict[str, Any] = {}
    for way, value in values_by_way.items():
        *path, last = way.split(".")
        place = top
        for step in path:
            place = place.setdefault(step, {})
            if not isinstance(place, dict):
                raise UsageError(f"{way!r} lies inside {step!r}, which is an array itself; name one or the other.")
        if last in place:
            raise UsageError(f"{way!r} is an array and holds others; name one or the other.")
        place[last] = value
    return {name: _listed(value) for name, value in top.items()}


def _listed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {key: _listed(part) for key, part in value.items()}
    if inner and sorted(inner) == sorted(map(str, range(len(inner)))):
        return [inner[str(n)] for n in range(len(inner))]
    return inner


def _key(name: str, key: Any) -> str:
    if not isinstance(key, str):
        raise UsageError(f"Argument {name!r} has the key {key!r}; a task takes dicts whose keys are text.")
    return key


def _plain(name: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise UsageError(
        f"{name!r} is a {type(value).__name__}; a task takes arrays, and dicts, lists and tuples of them "
        "(or name the parameter in --static when it is not data)."
    )
