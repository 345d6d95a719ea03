"""``%maxkernel bench``: the benchmark's command line in a notebook, its progress in one output."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from IPython.display import display

from maxkernel_nb.magics.views import Bundle


class Live:
    """One output: finished lines, and the bar below them while work goes on."""

    def __init__(self) -> None:
        self._handle: Any = None

    def __call__(self, bar: str, lines: tuple[str, ...]) -> None:
        shown = _text("\n".join([*lines, bar]))
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)


def bench(words: Sequence[str], project: str, batch: bool = False) -> Bundle | None:
    """Runs one command. Raises as ``jaxbench.cli.execute`` does; help is shown, not raised.

    ``batch``: nobody watches (nbconvert, nbval), so that lines come with the result instead of one by one.
    """
    from jaxbench.cli import Console, execute
    from jaxbench.progress import Bar

    told: list[str] = []
    pages: list[str] = []
    live = Live()
    console = Console(told.append, lambda total: Bar(total, show=None if batch else live, write=told.append),
                      pages.append)
    try:
        execute(words, console, project)
    except SystemExit:  # --help has written itself
        return None
    data = _text("\n".join(told))
    return Bundle({**data, "text/html": pages[-1]} if pages else data) if told else None


def _text(text: str) -> dict[str, str]:
    return {"text/plain": text, "text/html": f"<pre>{html.escape(text)}</pre>"}
