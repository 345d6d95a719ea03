"""The live panel: one widget that shows a document and carries a person's intents back to the run."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import anywidget
import traitlets
from pydantic import ValidationError

from maxkernel_nb.document.build import document
from maxkernel_nb.document.compare import comparison
from maxkernel_nb.document.graph import node_view
from maxkernel_nb.document.model import Document
from maxkernel_nb.engine.state import RunState
from maxkernel_nb.errors import MaxKernelError, UsageError
from maxkernel_nb.widgets.limits import fit, fit_comparison, fit_node
from maxkernel_nb.widgets.text import one_line
from maxkernel_nb.widgets.wire import Ack, Intent, Message

log = logging.getLogger(__name__)
_STATIC = Path(__file__).parent / "static"
_REMEMBERED = 1000  # acks kept to answer a repeated message without doing it again


class RunLike(Protocol):
    """What the panel needs of a run. Every method is safe from any thread."""

    @property
    def id(self) -> str: ...
    @property
    def state(self) -> RunState: ...
    def subscribe(self, callback: Callable[[RunState], None]) -> Callable[[], None]: ...
    def accept(
        self, hunks: Any = None, via: str = "", uuid: str = "", comment: str = "", looked_at: str = ""
    ) -> Any: ...
    def reject(self, via: str = "", uuid: str = "", comment: str = "", looked_at: str = "") -> Any: ...
    def stop(self) -> Any: ...
    def pause(self) -> Any: ...
    def unpause(self) -> Any: ...
    def undo(self) -> Any: ...
    def mark(self, node: str, mark: str, via: str = "") -> Any: ...
    def add_kernel(self, source: str, parent: str, via: str = "") -> str: ...
    def take_back(self) -> Any: ...
    def ask(self, question: str) -> Any: ...
    def answer(
        self, choice: str, text: str = "", via: str = "", uuid: str = "", hunks: Any = None, looked_at: str = ""
    ) -> Any: ...


class RunPanel(anywidget.AnyWidget):
    """``put`` shows a document; a view's messages reach the run at most once each and are always acknowledged.

    The front end never writes ``doc``; the only way back is a message with an id it draws. Both directions may happen
    on any thread. ``_ipython_display_`` is off so that IPython asks for the MIME bundle: the ipywidgets 7.7 method
    publishes on whatever cell ran last when called from a thread.
    """

    _esm = (_STATIC / "panel.js").read_text(encoding="utf-8")
    _css = (_STATIC / "panel.css").read_text(encoding="utf-8")
    _ipython_display_ = None

    doc = traitlets.Dict().tag(sync=True)

    def __init__(self, run: RunLike) -> None:
        self._run = run
        self._writing = threading.Lock()
        self._deciding = threading.Lock()
        self._acks: OrderedDict[str, Ack] = OrderedDict()
        super().__init__(doc=fit(document(run.state)))
        self.on_msg(self._on_message)

    def put(self, doc: Document) -> None:
        """Shows ``doc`` in every view, cut to the message limit. Callers see to the rate (``Coalescer``)."""
        data = fit(doc)
        with self._writing:
            self.doc = data

    def _on_message(self, _: Any, content: Any, buffers: Any = None) -> None:
        ack = self._answer(content)
        self.send(ack.to_dict())

    def _answer(self, content: Any) -> Ack:
        try:
            message = Message.from_dict(content)
        except ValidationError as error:
            known = content.get("id") if isinstance(content, dict) else None
            return Ack(
                id=known if isinstance(known, str) else "",
                ok=False,
                message=f"The panel sent something this version does not know ({error.error_count()} fields); "
                "reload the page.",
            )
        with self._deciding:
            if message.id not in self._acks:
                self._acks[message.id] = self._carry_out(message)
                while len(self._acks) > _REMEMBERED:
                    self._acks.popitem(last=False)
            return self._acks[message.id]

    def _carry_out(self, message: Message) -> Ack:
        try:
            self._do(message)
        except MaxKernelError as error:
            self.put(document(self._run.state))  # the person sees what is open before they read what was refused
            return Ack(id=message.id, ok=False, message=str(error))
        except Exception as error:  # the dispatcher: the click must be answered whatever went wrong
            log.exception("the panel of run %s could not %s", self._run.id, message.intent)
            return Ack(id=message.id, ok=False, message=f"{message.intent} failed: {error}")
        return Ack(id=message.id, ok=True)

    def _do(self, message: Message) -> None:
        run = self._run
        click = {"via": "button", "uuid": message.id, "looked_at": message.proposal}
        match message.intent:
            case Intent.ACCEPT:
                run.accept(hunks=message.hunks, comment=message.comment, **click)
            case Intent.REJECT:
                run.reject(comment=message.comment, **click)
            case Intent.STOP:
                run.stop()
            case Intent.PAUSE:
                run.pause()
            case Intent.UNPAUSE:
                run.unpause()
            case Intent.UNDO:
                run.undo()
            case Intent.ANSWER:
                run.answer(message.choice, text=message.comment, hunks=message.hunks, **click)
            case Intent.TAKEBACK:
                run.take_back()
            case Intent.ASK:
                run.ask(message.comment)
            case Intent.LOOK:
                self._show_node(message.node)
            case Intent.PIN | Intent.PRUNE | Intent.UNMARK:
                mark = {Intent.PIN: "pinned", Intent.PRUNE: "pruned"}.get(message.intent, "")
                run.mark(message.node, mark, via="button")
                self._show_node(message.node)
            case Intent.EDIT:
                self._add_kernel(message.comment, message.node)
            case Intent.COMPARE:
                self._show_comparison(message.node, message.other)

    def _add_kernel(self, source: str, node: str) -> None:
        run, state = self._run, self._run.state
        if node_view(state, node) is None:
            raise UsageError(f"Run {run.id} has no node {node!r} any more; look at another one.")
        if state.ended:
            raise UsageError(
                f"Run {run.id} has ended, so your kernel was not taken; save it and go on with "
                f"%maxkernel continue {run.id} --from {node} --file FILE."
            )
        if source == state.candidates[node].candidate.source:
            raise UsageError("Your kernel is the node's own text; change it first, then have it judged.")
        run.add_kernel(source, node, via="button")

    def _show_comparison(self, left: str, right: str) -> None:
        found = comparison(self._run.state, left, right)
        if found is None:
            raise UsageError(f"Run {self._run.id} does not know both {left!r} and {right!r}; choose two of its table.")
        self.send(fit_comparison(found))

    def _show_node(self, node: str) -> None:
        found = node_view(self._run.state, node)
        if found is None:
            raise UsageError(f"Run {self._run.id} has no node {node!r} any more; look at another one.")
        self.send(fit_node(found))

    def __repr__(self) -> str:
        return one_line(document(self._run.state))
