"""Owns one run's display. The only code that touches IPython from a thread that is not the main one."""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Callable
from html import escape
from typing import Any
from uuid import uuid4

from maxkernel_nb.document.build import document
from maxkernel_nb.document.next_action import away
from maxkernel_nb.engine.state import RunState
from maxkernel_nb.widgets.coalesce import Coalescer
from maxkernel_nb.widgets.html import render_fragment
from maxkernel_nb.widgets.panel import RunLike, RunPanel
from maxkernel_nb.widgets.text import one_line, render_text

Publish = Callable[[dict[str, Any], dict[str, Any], str, bool], None]
"""``(data, metadata, display_id, update)``"""


def publish_with_ipython(data: dict[str, Any], metadata: dict[str, Any], display_id: str, update: bool) -> None:
    """Outside IPython nothing is shown."""
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.display import publish_display_data

    if InteractiveShell.initialized():
        publish_display_data(data, metadata, transient={"display_id": display_id}, update=update)


def in_terminal() -> bool:
    """IPython without a kernel: it prints ``text/plain`` and can show nothing else."""
    from IPython.core.interactiveshell import InteractiveShell

    return InteractiveShell.initialized() and not hasattr(InteractiveShell.instance(), "kernel")


class Publisher:
    """In order: ``show()`` on the main thread displays the live panel and follows the run; when the run ends the panel
    is replaced, under the same display id, by the static report; ``show()`` again brings the live panel back in the
    current cell. With ``live=False`` (batch clients) ``show()`` does nothing, and ``freeze()`` on the main thread,
    after waiting for the run, publishes the report. A terminal gets text when the run asks something and when it ends.
    """

    def __init__(self, run: RunLike, *, live: bool = True, publish: Publish = publish_with_ipython) -> None:
        self.run = run
        self.display_id = f"maxkernel-{uuid4().hex}"
        self.panel: RunPanel | None = None
        self._live = live
        self._text_only = in_terminal()
        self._told: str | None = None  # the status that a terminal was last told about
        self._publish = publish
        self._mutex = threading.RLock()
        self._displayed = False
        self._pinned = False  # brought back by a person after the end: stays live until ``freeze``
        self._updates: Coalescer[RunState] = Coalescer(self._write)
        self._unsubscribe: Callable[[], None] | None = None

    def show(self) -> None:
        """Call on the main thread. Displays the live panel in the current cell; nothing in batch clients."""
        if not self._live:
            return
        if self._text_only:
            self._tell(self.run.state)
            self._follow()
            return
        with self._mutex:
            self._pinned = self.run.state.ended
            if self.panel is None:
                self.panel = RunPanel(self.run)
            data, metadata = self.panel._repr_mimebundle_()  # type: ignore[misc]
            self._publish({**data, "text/html": _without_widgets(self.run.id)}, metadata, self.display_id, False)
            self._displayed = True
        self._follow()

    def freeze(self) -> None:
        """Replaces the live panel by the static report of the run as it is now. Safe from any thread."""
        with self._mutex:
            self._pinned = False
            self._publish_report(self.run.state)

    def settle(self, timeout: float | None = None) -> bool:
        """Waits until the display shows the newest state. False after ``timeout`` seconds."""
        return self._updates.settle(timeout)

    def close(self) -> None:
        """Stops following the run; what it told until now is still shown, and nothing is written after this returns."""
        with self._mutex:
            if self._unsubscribe is not None:
                self._unsubscribe()
                self._unsubscribe = None
                atexit.unregister(self._freeze_at_exit)
        self._updates.settle(2.0)

    def _follow(self) -> None:
        if self._unsubscribe is None:
            self._unsubscribe = self.run.subscribe(self._updates.submit)
            atexit.register(self._freeze_at_exit)
        self._updates.submit(self.run.state)

    def _write(self, state: RunState) -> None:
        with self._mutex:
            if self._text_only:
                if state.settled and state.status != self._told:
                    self._tell(state)
            elif state.ended and not self._pinned:
                self._publish_report(state)
            elif self.panel is not None:
                self.panel.put(document(state))

    def _tell(self, state: RunState) -> None:
        """A terminal can only be told again, so it is told little: the start, each question, the end."""
        self._told = state.status
        doc = document(state)
        watch = f"%maxkernel wait {state.run_id} watches it live."
        text = render_text(doc) if state.settled else f"{one_line(doc)}\n{doc.next.text} {watch}\n"
        self._publish({"text/plain": text}, {}, self.display_id, False)

    def _publish_report(self, state: RunState) -> None:
        if self.panel is not None:
            # Stays open: a page that was reloaded holds the view, and no update of the display reaches it any more.
            self.panel.put(document(state))
        self._publish(state_bundle(state), {}, self.display_id, self._displayed)
        self._displayed = True

    def _freeze_at_exit(self) -> None:
        """A kernel that shuts down leaves a report that a reopened notebook can show.

        Words first: drawing charts takes longer than a kernel's sockets, or a front end's patience, may last.
        """
        if self.panel is None or self.run.state.ended:
            return
        state = self.run.state
        left = away(state)
        self._publish(state_bundle(state, left, pictures=False), {}, self.display_id, self._displayed)
        with contextlib.suppress(Exception):  # whatever a half-closed kernel raises: the words are there
            self._publish(state_bundle(state, left), {}, self.display_id, True)


def report_bundle(run: Any) -> dict[str, Any]:
    """The MIME bundle of the frozen display of anything with a ``state``, live or read from a journal."""
    return state_bundle(run.state)


def _without_widgets(run_id: str) -> str:
    """For where the live panel cannot be drawn: a notebook that was saved in mid-run and read without its kernel."""
    run = escape(run_id)
    return (f"<p>maxkernel run {run} was at work when this notebook was saved. In a kernel, "
            f"<code>%maxkernel show {run}</code> shows how it stands, and "
            f"<code>%maxkernel resume {run}</code> goes on.</p>")


def state_bundle(state: RunState, left: str = "", pictures: bool = True) -> dict[str, Any]:
    """The report as HTML with PNG charts inside, and the one deterministic line of text.

    ``left``: what to do about a run that this kernel does not drive (``next_action.away``).
    """
    doc = document(state, left)
    if in_terminal():
        return {"text/plain": render_text(doc)}
    return {"text/html": render_fragment(doc, pictures), "text/plain": one_line(doc)}
