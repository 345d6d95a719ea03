"""Looks a name up in the installed jax by introspection, so that the answer is never stale."""

from __future__ import annotations

import difflib
import importlib
import inspect
import types
import warnings
from typing import Any

from maxkernel_nb.values import Value

# Short names people write, and the modules behind them. Nothing outside these is ever looked at.
ALIASES = {
    "pltpu": "jax.experimental.pallas.tpu", "pl": "jax.experimental.pallas", "jnp": "jax.numpy", "lax": "jax.lax",
    "jax": "jax", "pallas": "jax.experimental.pallas", "tpu": "jax.experimental.pallas.tpu",
}
_DOC_LINES = 25
_MEMBERS = 80


class ApiEntry(Value):
    """``found`` False: ``near`` lists what has a similar name. ``members`` of a module or class, names only."""

    name: str
    found: bool
    kind: str = ""
    signature: str = ""
    doc: str = ""
    members: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    version: str = ""

    def text(self) -> str:
        if not self.found:
            near = f"; similar names: {', '.join(self.near)}" if self.near else ""
            return f"{self.name} does not exist in jax {self.version}{near}."
        parts = [f"{self.name}{self.signature} ({self.kind}, jax {self.version})", self.doc]
        if self.members:
            parts.append("Members: " + ", ".join(self.members))
        return "\n".join(p for p in parts if p)


def look_up(name: str) -> ApiEntry:
    """``name`` as written in code (``pltpu.CompilerParams``) or in full. Answers in words, never raises for a name."""
    import jax

    parts = [p for p in name.strip().strip("`").removesuffix("()").split(".") if p]
    if not parts:
        return ApiEntry(name=name, found=False, version=jax.__version__)
    module, rest = _root(parts)
    if module is None:
        return ApiEntry(name=name, found=False, near=_everywhere(parts[-1]), version=jax.__version__)
    value: Any = module
    for depth, part in enumerate(rest):
        inner = _member(value, part)
        if inner is None:
            near = tuple(f"{'.'.join([*parts[:len(parts) - len(rest) + depth], n])}" for n in _near(part, value))
            return ApiEntry(name=name, found=False, near=near or _everywhere(part), version=jax.__version__)
        value = inner[0]
    return _describe(name, value, jax.__version__)


def _root(parts: list[str]) -> tuple[types.ModuleType | None, list[str]]:
    """The longest module that the dotted name begins with, and what is left of the name."""
    full = ALIASES.get(parts[0])
    if full is None:
        return None, parts
    module, rest = importlib.import_module(full), parts[1:]
    while rest and parts[0] == "jax" and not rest[0].startswith("_"):
        try:
            module = importlib.import_module(f"{module.__name__}.{rest[0]}")
        except ImportError:
            break
        rest = rest[1:]
    return module, rest


def _member(value: Any, part: str) -> tuple[Any] | None:
    """A public member, in a tuple since it may itself be None."""
    if part.startswith("_"):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return (getattr(value, part),)
        except AttributeError:
            return None


def _near(part: str, value: Any) -> list[str]:
    return difflib.get_close_matches(part, [n for n in dir(value) if not n.startswith("_")], 5, 0.5)


def _everywhere(part: str) -> tuple[str, ...]:
    """Places where exactly this name, or a similar one, lives."""
    found: list[str] = []
    for alias in ("pl", "pltpu", "jnp", "lax"):
        module = importlib.import_module(ALIASES[alias])
        names = [n for n in dir(module) if not n.startswith("_")]
        same = [part] if part in names else difflib.get_close_matches(part, names, 2, 0.75)
        found += [f"{alias}.{n}" for n in same]
    return tuple(found[:6])


def _describe(name: str, value: Any, version: str) -> ApiEntry:
    kind = "module" if inspect.ismodule(value) else "class" if inspect.isclass(value) else type(value).__name__
    doc = (inspect.getdoc(value) or "") if callable(value) or kind == "module" else repr(value)[:200]
    lines = doc.splitlines()
    if len(lines) > _DOC_LINES:
        lines = [*lines[:_DOC_LINES], f"... {len(lines) - _DOC_LINES} more lines"]
    members: tuple[str, ...] = ()
    if kind in ("module", "class", "EnumMeta", "EnumType"):
        members = tuple(n for n in dir(value) if not n.startswith("_"))[:_MEMBERS]
    return ApiEntry(name=name, found=True, kind=kind, signature=_signature(value), doc="\n".join(lines),
                    members=members, version=version)


def _signature(value: Any) -> str:
    if not callable(value):
        return ""
    try:
        return str(inspect.signature(value))
    except (TypeError, ValueError):
        return "(...)"
