"""What a function returns around its arrays: ``{"out": y}`` where a recipe writes ``y``."""

from __future__ import annotations

import ast

from maxkernel_nb.authors.recipes.base import Signature
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import Tree
from maxkernel_nb.tasks.trees import leaves, subscript


def with_results(source: str, signature: Signature) -> str:
    """``source`` with the results of its entry function in the structure that the reference's are in.

    Raises ``Declined`` where the recipe's results cannot be told apart.
    """
    tree = signature.returns
    if tree is None or tree.kind == "array":
        return source
    entry = next(n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and n.name == signature.entry)
    lines = source.splitlines(keepends=True)
    returns = [n for n in _of(entry) if isinstance(n, ast.Return)]
    values = [n.value for n in sorted(returns, key=lambda n: n.lineno, reverse=True) if n.value is not None]
    for value in values:
        _replace(lines, value, _written(tree, _parts(source, value, len(list(leaves(tree))))))
    return "".join(lines)


def _of(function: ast.FunctionDef) -> list[ast.AST]:
    """The statements of ``function`` itself, not of functions within it."""
    found: list[ast.AST] = []
    open_ones: list[ast.AST] = list(function.body)
    while open_ones:
        node = open_ones.pop()
        found.append(node)
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            open_ones += [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.stmt)]
    return found


def _parts(source: str, value: ast.expr, count: int) -> list[str]:
    nodes = [value] if count == 1 else getattr(value, "elts", [])
    if len(nodes) != count:
        raise Declined(f"the reference returns {count} arrays in a structure that this recipe does not write")
    return [ast.get_source_segment(source, n) or ast.unparse(n) for n in nodes]


def _written(tree: Tree, parts: list[str]) -> str:
    """Python for ``tree`` with its arrays, in order, taken from the front of ``parts``."""
    if tree.kind == "array":
        return parts.pop(0)
    if tree.kind == "value":
        return repr(tree.value)
    inner = [_written(part, parts) for _, part in tree.items]
    if tree.kind == "dict":
        keys = [subscript(tree, key)[1:-1] for key, _ in tree.items]
        return "{" + ", ".join(f"{key}: {part}" for key, part in zip(keys, inner, strict=True)) + "}"
    if tree.kind == "list":
        return "[" + ", ".join(inner) + "]"
    return "(" + ", ".join(inner) + ("," if len(inner) == 1 else "") + ")"


def _replace(lines: list[str], node: ast.expr, text: str) -> None:
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    head = lines[first].encode()[: node.col_offset].decode()
    tail = lines[last].encode()[node.end_col_offset :].decode()
    lines[first : last + 1] = [head + text + tail]
