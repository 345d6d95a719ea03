"""A kernel file as a candidate: read as text, never imported here.

Accepted are files that define the task's own entry name, ``kernel``, or (as kernels for the original benchmark do)
``workload(*inputs)``. The last two may take the arrays by position under any names; a line that calls them with the
reference's parameters is added.
"""

from __future__ import annotations

import ast
from pathlib import Path

from maxkernel_nb.errors import UsageError
from maxkernel_nb.task import Candidate, KernelTask
from maxkernel_nb.values import content_hash

OTHER_NAMES = ("kernel", "workload")
MOST_BYTES = 1 << 20


def read_kernel(path: Path, task: KernelTask) -> Candidate:
    """Raises ``UsageError`` for a file that cannot be read; what is wrong inside it is for the judge to say."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{path} has more than {MOST_BYTES:,} bytes; a kernel file is source text.")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"The kernel file {path} cannot be read ({reason}); pass a Python source file.") from error
    return candidate_of(text, task, path.name)


def candidate_of(text: str, task: KernelTask, note: str = "") -> Candidate:
    """The text with, where its function has another name, one that has the reference's name and parameters."""
    functions = _functions(text)
    entry = task.entry if task.entry in functions else next((n for n in OTHER_NAMES if n in functions), task.entry)
    source = text
    if entry != task.entry and _by_position(functions[entry], task):
        source, entry = f"{text.rstrip()}\n\n\n{_call(entry, functions[entry], task)}", task.entry
    return Candidate(source=source, entry=entry, author="file", note=note)


def kernel_hash(text: str) -> str:
    """Of the file as it was handed in."""
    return content_hash(text)


def _functions(text: str) -> dict[str, ast.FunctionDef | None]:
    """Module-level functions, and names that are assigned (``kernel = jax.jit(f)``): no parameters to read."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found: dict[str, ast.FunctionDef | None] = {
        target.id: None
        for node in body if isinstance(node, ast.Assign)
        for target in node.targets if isinstance(target, ast.Name)
    }  # fmt: skip
    return found | {node.name: node for node in body if isinstance(node, ast.FunctionDef)}


def _by_position(function: ast.FunctionDef | None, task: KernelTask) -> bool:
    """It can take the task's arrays, and nothing else that it must be given."""
    if function is None:
        return True
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args]
    needed = len(named) - len(arguments.defaults)
    known = (*task.params, *task.static)
    extra = [a.arg for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is None]
    fits = needed <= len(task.params) and (arguments.vararg is not None or len(named) >= len(task.params))
    return fits and all(name in known for name in extra)


def _call(entry: str, function: ast.FunctionDef | None, task: KernelTask) -> str:
    taken = [a.arg for a in function.args.kwonlyargs] if function else []
    passed = [*task.params, *(f"{n}={n}" for n in task.static if n in taken)]
    star = ["*", *task.static] if task.static else []
    return (
        f"def {task.entry}({', '.join([*task.params, *star])}):\n"
        f"    return {entry}({', '.join(passed)})\n"
    )  # fmt: skip
