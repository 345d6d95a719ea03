"""Progress with remaining time: tqdm's bar in a terminal, the same text in a notebook's output."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self, TextIO

from tqdm import tqdm


class Progress(Protocol):
    """``working`` names the task in hand, ``done`` counts it and tells its line. A context that cleans up."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None: ...

    def working(self, on: str) -> None: ...

    def done(self, line: str) -> None: ...


class Silent:
    """For scripts: says nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None: ...

    def working(self, on: str) -> None: ...

    def done(self, line: str) -> None: ...


class Bar:
    """A bar on ``bar_file`` (standard error; only where that is a terminal), finished lines above it by ``write``.

    ``show``, where given, gets the bar's text and all finished lines whenever either changes, and nothing is written:
    a notebook puts them into one output.
    """

    def __init__(self, total: int, *, write: Callable[[str], object] | None = None, bar_file: TextIO | None = None,
                 show: Callable[[str, tuple[str, ...]], None] | None = None) -> None:
        self.write, self.show = write or _to_terminal, show
        self.lines: list[str] = []
        file = io.StringIO() if show else bar_file or sys.stderr
        shown = "{n_fmt}/{total_fmt} [{elapsed}<{remaining}] {desc}" if show else None
        self._bar = tqdm(total=total, file=file, unit="task", dynamic_ncols=True, leave=False,
                         disable=False if show else None, bar_format=shown)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        text = f"{self._bar.n}/{self._bar.total} tasks"
        self._bar.close()
        if self.show:
            self.show(text, tuple(self.lines))

    def working(self, on: str) -> None:
        self._bar.set_description_str(on)
        self._shown()

    def done(self, line: str) -> None:
        self.lines.append(line)
        self._bar.update(1)
        if self.show is None:
            with tqdm.external_write_mode():
                self.write(line)
        self._shown()

    def _shown(self) -> None:
        if self.show:
            self.show(str(self._bar), tuple(self.lines))


def _to_terminal(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
