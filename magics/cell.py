"""The cell under ``%%maxkernel``: run it as plain Python in the notebook, then find the function it is about."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from maxkernel_nb.errors import UsageError
from maxkernel_nb.magics.host import cell_number
from maxkernel_nb.options import nearest

INPUT_MAKER = "create_inputs"  # jaxbench's convention: never the function to optimize


@dataclass(frozen=True)
class Body:
    """A cell that has run. ``text`` starts with an empty line, so line numbers are those a person sees in the cell."""

    text: str
    tree: ast.Module

    def source(self, node: ast.stmt) -> str:
        """The statement's exact lines, decorators included."""
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(d.lineno for d in decorators)])
        return "".join(self.text.splitlines(keepends=True)[first - 1 : node.end_lineno])


@dataclass(frozen=True)
class CellFunction:
    """``source`` is the text in the cell; None when the function was defined elsewhere."""

    name: str
    fn: Callable[..., Any]
    source: str | None


def execute(shell: Any, body: str) -> Body:
    """Runs ``body`` in the user's namespace, as the notebook would run the cell without its first line.

    Raises ``UsageError`` for text that is not Python; whatever the code itself raises keeps only the user's frames.
    """
    text = _first_lines(body) + shell.transform_cell(body)
    filename = shell.compile.cache(text, cell_number(shell), raw_code=text)
    try:
        tree = shell.compile.ast_parse(text, filename)
        code = shell.compile(shell.transform_ast(tree), filename, "exec")
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise UsageError(
            f"Line {error.lineno} of the cell is not valid Python ({error.msg}): {line!r}; put it right and run again."
        ) from error
    try:
        exec(code, shell.user_ns)
    except Exception as error:
        _keep_user_frames(shell, error, filename)
        raise
    return Body(text, ast.parse(text, filename))


def _first_lines(body: str) -> str:
    """Empty lines for the magic's own line and for those at the top of the body, which IPython strips."""
    stripped = body.lstrip()
    return "\n" * (1 + body[: len(body) - len(stripped)].count("\n"))


def _keep_user_frames(shell: Any, error: Exception, filename: str) -> None:
    """IPython shows what ``_render_traceback_`` gives: here, the frames from the cell on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != filename:
        trace = trace.tb_next
    lines = shell.InteractiveTB.structured_traceback(type(error), error, trace, tb_offset=0)
    with contextlib.suppress(AttributeError):  # exceptions with slots keep IPython's own rendering
        error._render_traceback_ = lambda: lines  # type: ignore[attr-defined]


def find_function(body: Body, namespace: dict[str, Any], name: str | None, inputs: str | None) -> CellFunction:
    """The function named ``name``, or the only one that the cell defines (makers of inputs do not count).

    Raises ``UsageError`` when there is none or more than one.
    """
    defined = _defined(body.tree, namespace)
    if name is None:
        name = _only([n for n in defined if n not in (inputs, INPUT_MAKER)])
    if not callable(namespace.get(name)):
        raise _no_such_function(name, defined, namespace)
    node = defined.get(name)
    return CellFunction(name, namespace[name], body.source(node) if node is not None else None)


def _defined(tree: ast.Module, namespace: dict[str, Any]) -> dict[str, ast.stmt]:
    """Top-level ``def``s by name; without any, assignments of callables such as ``f = jax.jit(...)``."""
    functions: dict[str, ast.stmt] = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    return functions or {
        node.targets[0].id: node
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        if _is_function(namespace.get(node.targets[0].id))
    }


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, type)


def _only(names: list[str]) -> str:
    if not names:
        raise UsageError(
            "The cell defines no function to optimize; write the reference as a def in this cell, or name one that "
            "exists already with --name."
        )
    if len(names) > 1:
        raise UsageError(
            f"The cell defines several functions ({', '.join(names)}); choose one, for example --name {names[-1]}."
        )
    return names[0]


def _no_such_function(name: str, defined: dict[str, ast.stmt], namespace: dict[str, Any]) -> UsageError:
    if name in namespace:
        return UsageError(f"--name {name} is {type(namespace[name]).__name__!r}, not a function; name a function.")
    known = list(defined) or [n for n, v in namespace.items() if not n.startswith("_") and _is_function(v)]
    hint = f"did you mean {nearest(name, known)!r}?" if known else "define it in this cell."
    return UsageError(f"There is no function {name!r} in the cell or the notebook; {hint}")
