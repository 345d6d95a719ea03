"""Whether the notebook differentiates a function: read from the cells that were executed, never run.

A kernel for such a function is asked about its gradient too. What counts: a call of ``jax.grad`` and its kin (also
those of equinox, flax, haiku, under any alias) on the function, or on what leads to it by name: a loss that calls a
model that calls the function, a lambda, an assignment, ``partial``, a class with a method that does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any

TRANSFORMS = frozenset({
    "grad", "value_and_grad", "vjp", "jvp", "linearize", "jacrev", "jacfwd", "jacobian", "hessian", "filter_grad",
    "filter_value_and_grad", "filter_vjp", "filter_jvp", "filter_jacrev", "filter_jacfwd", "filter_hessian",
})  # fmt: skip
LIBRARIES = ("jax", "equinox", "flax", "haiku", "optax")
_TEXT = 60  # characters of a call, as it is shown
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def differentiated(cells: Iterable[str], name: str) -> str:
    """The first call that differentiates the function ``name``, as it is written, on one line; empty without one.

    ``cells``: the text of executed cells, in order, as IPython keeps it. Text that is no Python says nothing.
    """
    trees = [tree for cell in cells for tree in _trees(cell)]
    notebook = _Notebook(trees)
    for tree in trees:
        for node in ast.walk(tree):
            if (found := notebook.differentiates(node)) is not None and name in notebook.reached(found):
                text = " ".join(ast.unparse(node if isinstance(node, ast.Call) else found).split())
                return text if len(text) <= _TEXT else text[: _TEXT - 3] + "..."
    return ""


def executed(shell: Any) -> list[str]:
    """The cells of this session, with IPython's own syntax already made Python."""
    return list(getattr(shell.history_manager, "input_hist_parsed", ()))


def _trees(cell: str) -> Iterator[ast.Module]:
    """The cell, and the body of a cell magic in it, which is a text there."""
    try:
        tree = ast.parse(cell)
    except (SyntaxError, ValueError, RecursionError):
        return
    yield tree
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _last(node.func) == "run_cell_magic" and len(node.args) == 3:
            body = node.args[2]
            if isinstance(body, ast.Constant) and isinstance(body.value, str):
                yield from _trees(body.value)


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


class _Notebook:
    """What names stand for: transforms, libraries, and the names that each name leads to."""

    def __init__(self, trees: Iterable[ast.Module]) -> None:
        self.modules: set[str] = set()
        self.imported: set[str] = set()  # of any library
        self.transforms: set[str] = set()
        self.leads: dict[str, set[str]] = {}
        nodes = [node for tree in trees for node in ast.walk(tree)]
        for node in nodes:
            self._imported(node)
        for node in nodes:
            self._named(node)

    def _imported(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            self.imported |= {a.asname or a.name.split(".")[0] for a in node.names}
            ours = [a for a in node.names if a.name.split(".")[0] in LIBRARIES]
            self.modules |= {a.asname or a.name.split(".")[0] for a in ours}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in LIBRARIES:
            names = {a.asname or a.name: a.name for a in node.names}
            self.transforms |= {n for n, was in names.items() if was in TRANSFORMS}
            self.transforms |= TRANSFORMS if "*" in names else set()
            self.modules |= {n for n, was in names.items() if was not in TRANSFORMS}
            self.imported |= set(names)

    def _named(self, node: ast.AST) -> None:
        if isinstance(node, Function):
            self.leads.setdefault(node.name, set()).update(self._names(node))
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                self._assigned(target, node.value)

    def _assigned(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, other in zip(target.elts, value.elts, strict=True):
                self._assigned(one, other)
        elif isinstance(target, ast.Name):
            if self._is_transform(value):
                self.transforms.add(target.id)
            self.leads.setdefault(target.id, set()).update(self._names(value))

    def _is_transform(self, node: ast.expr) -> bool:
        """``jax.grad`` under any name, also with some arguments given: ``partial(jax.grad, argnums=1)``."""
        if isinstance(node, ast.Name):
            return node.id in self.transforms
        if isinstance(node, ast.Attribute):
            return node.attr in TRANSFORMS and _root(node) in self.modules
        partial = isinstance(node, ast.Call) and _last(node.func) == "partial" and bool(node.args)
        return partial and self._is_transform(node.args[0])  # type: ignore[attr-defined]

    def differentiates(self, node: ast.AST) -> ast.expr | None:
        """What ``node`` differentiates: a transform's first argument, or a function under one as a decorator."""
        if isinstance(node, ast.Call) and self._is_transform(node.func):
            named = [k.value for k in node.keywords if k.arg in ("fun", "f", "func")]
            return (node.args or named or [None])[0]  # type: ignore[list-item]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(map(self._decorates, node.decorator_list)):
            return ast.copy_location(ast.Name(node.name, ast.Load()), node)
        return None

    def _names(self, node: ast.AST) -> set[str]:
        """Names and attributes read inside: a method may be called on anything but a library."""
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        attributes = [n for n in ast.walk(node) if isinstance(n, ast.Attribute)]
        return names | {n.attr for n in attributes if _root(n) not in self.imported}

    def _decorates(self, node: ast.expr) -> bool:
        return self._is_transform(node) or (isinstance(node, ast.Call) and self._is_transform(node.func))

    def reached(self, node: ast.expr) -> set[str]:
        """All names that ``node`` leads to, over what they stand for."""
        seen: set[str] = set()
        waiting = self._names(node)
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting |= self.leads.get(name, set())
        return seen


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
