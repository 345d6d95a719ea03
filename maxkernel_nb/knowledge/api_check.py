"""Finds names in a kernel's source that the installed jax does not have, before anything is spent on it."""

from __future__ import annotations

import ast

from maxkernel_nb.knowledge.api_lookup import ALIASES, look_up
from maxkernel_nb.values import Value


class UnknownName(Value):
    name: str
    line: int
    near: tuple[str, ...]

    def text(self) -> str:
        near = f"; did you mean {self.near[0]}?" if self.near else ""
        return f"line {self.line}: {self.name} does not exist in the installed jax{near}"


def unknown_names(source: str) -> list[UnknownName]:
    """Attributes of jax, jax.numpy, jax.lax, Pallas and its TPU part that do not exist. Raises ``SyntaxError``."""
    tree = ast.parse(source)
    roots = _imported(tree)
    found: dict[str, UnknownName] = {}
    for node in ast.walk(tree):
        name = _dotted(node, roots) if isinstance(node, ast.Attribute) else None
        if name is None or name in found:
            continue
        entry = look_up(name)
        if not entry.found:
            found[name] = UnknownName(name=name, line=node.lineno, near=entry.near)  # type: ignore[attr-defined]
    return _outermost_once(found)


def _imported(tree: ast.AST) -> dict[str, str]:
    """Local name -> full module, for the modules we can look into."""
    modules = set(ALIASES.values())
    roots: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                if item.name in modules:
                    roots[item.asname or item.name.partition(".")[0]] = item.name if item.asname else "jax"
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for item in node.names:
                full = f"{node.module}.{item.name}"
                if full in modules:
                    roots[item.asname or item.name] = full
    return roots


def _dotted(node: ast.Attribute, roots: dict[str, str]) -> str | None:
    parts: list[str] = []
    inner: ast.expr = node
    while isinstance(inner, ast.Attribute):
        parts.append(inner.attr)
        inner = inner.value
    if not isinstance(inner, ast.Name) or inner.id not in roots:
        return None
    short = {full: alias for alias, full in reversed(ALIASES.items())}
    return ".".join([short[roots[inner.id]], *reversed(parts)])


def _outermost_once(found: dict[str, UnknownName]) -> list[UnknownName]:
    """``pl.gone.x`` and ``pl.gone`` are one mistake."""
    shortest = [n for n in found if not any(n.startswith(o + ".") for o in found)]
    return [found[n] for n in shortest]
