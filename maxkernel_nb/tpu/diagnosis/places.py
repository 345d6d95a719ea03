"""Lines of the kernel's own source: of an exception, and of the operations in a traced program."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from maxkernel_nb.compat import inner_jaxprs


def source_line(error: BaseException, source_file: str = "") -> int:
    """The line of ``source_file`` nearest to the fault (1-based): of the traceback, of the one that jax keeps of the
    traced operation, else of a file:line in the message; 0 where there is none."""
    if not source_file:
        return 0
    for one in chain(error):
        frames = [f for f in traceback.extract_tb(one.__traceback__) if f.filename == source_file]
        if frames and frames[-1].lineno:
            return frames[-1].lineno
    name = re.escape(Path(source_file).name)
    match = re.search(rf'{name}"?:(\d+)', str(error))
    return int(match.group(1)) if match else 0


def line_of(program: Any, primitive: str, source_file: str) -> int:
    """Where the traced ``program`` (a jaxpr) first applies ``primitive``: jax caches the traces of its own functions,
    so that an error inside one (``jnp.sort``) knows no line of the caller's; its call does."""
    return next((line for name, line in _lines(program, source_file, 0) if name == primitive and line), 0)


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and its causes. jax hangs the stack of the operation it was lowering there."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__


def _lines(program: Any, source_file: str, outer: int) -> Iterator[tuple[str, int]]:
    for equation in getattr(program, "jaxpr", program).eqns:
        line = _own_line(equation, source_file) or outer
        yield equation.primitive.name, line
        for inner in inner_jaxprs(equation.params):
            yield from _lines(inner, source_file, line)


def _own_line(equation: Any, source_file: str) -> int:
    """The innermost line: frames run from the inside out."""
    frames = getattr(getattr(equation.source_info, "traceback", None), "frames", ())
    return next((f.line_num for f in frames if f.file_name == source_file), 0)
