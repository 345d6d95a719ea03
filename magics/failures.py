"""How our own errors look in a cell: red, one sentence, without our frames."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from maxkernel_nb.errors import MaxKernelError, TaskError


class Interrupted(MaxKernelError):
    """The person interrupted a cell: before its run began, or while it was only waiting."""


@contextmanager
def one_sentence(shell: Any) -> Iterator[None]:
    """IPython shows what ``_render_traceback_`` gives. The user's own traceback stays where it is the cause."""
    try:
        yield
    except MaxKernelError as error:
        lines = [*_cause(shell, error), f"{type(error).__name__}: {error}"]
        error._render_traceback_ = lambda: lines  # type: ignore[attr-defined]
        raise


def _cause(shell: Any, error: MaxKernelError) -> list[str]:
    """A function that does not trace shows its own frames first; other causes are ours and stay hidden."""
    cause = error.__cause__
    if not isinstance(error, TaskError) or cause is None:
        return []
    shown: list[str] = shell.InteractiveTB.structured_traceback(type(cause), cause, cause.__traceback__, tb_offset=0)
    return [*shown, ""]
