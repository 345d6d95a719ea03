"""A run in a terminal while ``%maxkernel wait`` waits for it: what the panel shows, in a terminal's lines."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from maxkernel_nb.document.build import document
from maxkernel_nb.document.model import Document
from maxkernel_nb.widgets.coalesce import Coalescer
from maxkernel_nb.widgets.html import MARKS
from maxkernel_nb.widgets.text import plain

if TYPE_CHECKING:
    from rich.console import Group

_STEPS, _SAYING, _EVERY_S = 8, 300, 0.25
_SPENT = ("Candidates judged", "Time", "Tokens", "Dollars")
_STYLES = {"done": "green", "running": "bold cyan", "ended": "dim"}


@contextmanager
def watched(run: Any) -> Iterator[None]:
    """Draws ``run`` at the bottom of the terminal and keeps it new; nothing is left there afterwards.

    Nothing at all where the output is no terminal: a pipe is told by the result alone.
    """
    from rich.console import Console
    from rich.live import Live

    console = Console(file=sys.stdout)
    if not console.is_terminal:
        yield
        return
    closed = threading.Event()
    with Live(live_text(document(run.state)), console=console, refresh_per_second=4, transient=True) as live:
        updates: Coalescer[Any] = Coalescer(
            lambda state: None if closed.is_set() else live.update(live_text(document(state))), _EVERY_S)
        unsubscribe = run.subscribe(updates.submit)
        try:
            yield
        finally:
            unsubscribe()
            closed.set()


def live_text(doc: Document) -> Group:
    """Status, best time, the newest steps, what is being said, what it has cost, and what to do. Text only: no markup
    of rich's, no control characters of a model's."""
    from rich.console import Group
    from rich.text import Text

    head = doc.header
    lines = [
        Text.assemble((plain(head.title), "bold"), "  ", (plain(head.status), "cyan"),
                      f"  {head.mode} on {head.chip}, run {head.run_id}"),
        Text(plain(f"{head.headline}{_evidence(doc)}  {head.headline_detail}".rstrip())),
        *(_step(row) for row in doc.steps[-_STEPS:]),
        *(Text(plain(f"  {said.role}: {' '.join(said.text.split())[-_SAYING:]}"), style="dim") for said in doc.saying),
        Text("  ".join(f"{m.label} {m.used}" + (f" of {m.cap}" if m.cap else "") for m in doc.meters
                       if m.label in _SPENT), style="dim"),
        Text(plain(f"{doc.next.text} Ctrl-C ends the waiting, not the run.")),
    ]
    return Group(*lines)


def _evidence(doc: Document) -> str:
    shown = doc.header.evidence
    return f" [{shown.kind} {shown.error}]".replace(" ]", "]") if shown is not None and doc.profile is not None else ""


def _step(row: Any) -> Any:
    from rich.text import Text

    summary = f": {row.summary}" if row.summary else ""
    return Text(plain(f"  {MARKS[row.state]} {row.title}{summary}").replace("\n", " "), style=_STYLES[row.state],
                no_wrap=True, overflow="ellipsis")
