"""A run without an engine: replays sample events and takes decisions, for tests and the front end's development."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from maxkernel_nb import events as ev
from maxkernel_nb.engine.state import RunState, fold
from maxkernel_nb.errors import UsageError
from maxkernel_nb.events import AnyEvent, RunOutcome, Status
from maxkernel_nb.run import Run


class SampleRun:
    """Every method is safe from any thread. ``calls`` lists what was asked of it, in order."""

    def __init__(self, events: Iterable[AnyEvent] = ()) -> None:
        self.state: RunState = fold(events)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._mutex = threading.RLock()
        self._subscribers: list[Callable[[RunState], None]] = []

    @property
    def id(self) -> str:
        return self.state.run_id

    def emit(self, *events: AnyEvent) -> None:
        for event in events:
            with self._mutex:
                self.state = state = fold([event], self.state)
                subscribers = tuple(self._subscribers)
            for tell in subscribers:
                tell(state)

    def subscribe(self, callback: Callable[[RunState], None]) -> Callable[[], None]:
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    def accept(
        self, hunks: Any = None, via: str = "", uuid: str = "", comment: str = "", looked_at: str = ""
    ) -> None:
        self._refuse_stale(looked_at)
        proposal = self._decide("accept", hunks=hunks, via=via, uuid=uuid, comment=comment)
        self.emit(
            ev.Applied(proposal=proposal, path=".maxkernel/kernels/causal_attention.py", bound=True, source=""),
            ev.RunEnded(outcome=RunOutcome.ACCEPTED, reason=""),
        )

    def reject(self, via: str = "", uuid: str = "", comment: str = "", looked_at: str = "") -> None:
        self._refuse_stale(looked_at)
        self._decide("reject", via=via, uuid=uuid, comment=comment)
        self.emit(ev.RunEnded(outcome=RunOutcome.REJECTED, reason=""))

    _refuse_stale = Run._refuse_stale

    def _decide(self, what: str, **given: Any) -> str:
        self.calls.append((what, given))
        proposal = self.state.open_proposal
        if proposal is None:
            raise UsageError(f"Run {self.id} has no open proposal to {what}; it is {self.state.status}.")
        self.emit(ev.DecisionTaken(proposal=proposal.id, accepted=what == "accept", **given))
        return proposal.id

    def answer(
        self, choice: str, text: str = "", via: str = "", uuid: str = "", hunks: Any = None, looked_at: str = ""
    ) -> None:
        self._refuse_stale(looked_at)
        self.calls.append(("answer", {"choice": choice, "text": text, "via": via, "uuid": uuid, "hunks": hunks}))
        asked = self.state.open_question
        if asked is None:
            raise UsageError(f"Run {self.id} asks nothing now; it is {self.state.status}.")
        given = ev.AnswerGiven(question=asked.question, choice=choice, text=text, via=via, uuid=uuid, hunks=hunks)
        self.emit(given, ev.StatusChanged(status=Status.RUNNING))

    def stop(self) -> None:
        self.calls.append(("stop", {}))
        self.emit(ev.RunEnded(outcome=RunOutcome.STOPPED, reason="stopped by the person"))

    def pause(self) -> None:
        self.calls.append(("pause", {}))
        self.emit(ev.StatusChanged(status=Status.PAUSED))

    def unpause(self) -> None:
        self.calls.append(("unpause", {}))
        self.emit(ev.StatusChanged(status=Status.RUNNING))

    def take_back(self) -> None:
        self.calls.append(("takeback", {}))
        self.emit(ev.ControlChanged(to="person"))

    def ask(self, question: str) -> None:
        self.calls.append(("ask", {"question": question}))
        self.emit(ev.Explained(question=question, answer="Because."))

    def undo(self) -> None:
        self.calls.append(("undo", {}))
        applied = next((p for p in self.state.proposals.values() if p.bound), None)
        if applied is None:
            raise UsageError(f"Run {self.id} has nothing applied to undo; it is {self.state.status}.")
        self.emit(ev.Undone(proposal=applied.id))
