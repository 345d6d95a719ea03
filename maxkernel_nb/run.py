"""One execution of a mode on a task: a journal, the state folded from it, and the handles a person holds."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any

from maxkernel_nb import events as ev
from maxkernel_nb.engine.state import ProposalState, RunState, fold
from maxkernel_nb.errors import JournalError, UsageError
from maxkernel_nb.events import AnyEvent
from maxkernel_nb.journal import Journal
from maxkernel_nb.store import Project
from maxkernel_nb.tpu.chip.quiet import QUIET

if TYPE_CHECKING:
    from maxkernel_nb.engine.binding import BoundKernel
    from maxkernel_nb.engine.runtime import Runtime

log = logging.getLogger(__name__)


class Run:
    """``state`` is always the fold of what is journaled; ``emit`` journals first and shows afterwards.

    ``await run`` and ``run.wait()`` give the run itself once it needs nothing more from the engine: it ended, or it
    waits for a decision. Every method is safe from any thread.
    """

    def __init__(self, project: Project, journal: Journal, past: Iterable[AnyEvent] = ()) -> None:
        self.project = project
        self._folder = journal.folder
        self._journal: Journal | None = journal
        self.state: RunState = fold(past)
        self.kernel: BoundKernel | None = None  # what accepting bound
        self._broken: JournalError | None = None
        self._mutex = threading.RLock()
        self._changed = threading.Condition(self._mutex)
        self._subscribers: list[Callable[[RunState], None]] = []
        self._uuids: set[str] = set()
        self.runtime: Runtime | None = None

    @property
    def id(self) -> str:
        return self.state.run_id

    @property
    def closed(self) -> bool:
        """No process is driving it any more."""
        return self.runtime is None or (self.runtime.done and not self.runtime.busy)

    def emit(self, event: AnyEvent) -> None:
        with self._mutex:
            self._open_journal().append(event, time.time())
            self.state = state = fold([event], self.state)
            subscribers = tuple(self._subscribers)
            self._changed.notify_all()
        for tell in subscribers:
            self._tell(tell, state)

    def _open_journal(self) -> Journal:
        """An ended run gave its journal back; a late decision takes it again, unless another kernel went on with it."""
        if self._journal is None:
            journal = Journal(self._folder)
            if journal.count() != self.state.seq:
                journal.close()
                raise JournalError(f"Run {self.id} was continued elsewhere; %maxkernel resume {self.id} takes it up.")
            self._journal = journal
        return self._journal

    def broke(self, error: JournalError) -> None:
        """The journal cannot be written any more: whoever waits is told instead of waiting for ever."""
        with self._mutex:
            self._broken = error
            self._changed.notify_all()

    def _wait_for(self, there: Callable[[], bool], timeout: float | None) -> Run:
        with QUIET.only_waiting(), self._changed:  # the cell that waits lets measuring go on
            if not self._changed.wait_for(lambda: there() or self._broken is not None, timeout):
                raise self._still_busy(timeout)
            if self._broken is not None:
                raise self._broken
        return self

    def _tell(self, subscriber: Callable[[RunState], None], state: RunState) -> None:
        try:
            subscriber(state)
        except Exception:
            log.exception("a view of run %s failed", self.id)

    def subscribe(self, callback: Callable[[RunState], None]) -> Callable[[], None]:
        """``callback(state)`` after every event, on the thread that emitted it. Returns the way to unsubscribe."""
        with self._mutex:
            self._subscribers.append(callback)

        def unsubscribe() -> None:
            with self._mutex:
                if callback in self._subscribers:
                    self._subscribers.remove(callback)

        return unsubscribe

    # -- waiting ------------------------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        return self.state.settled

    def wait(self, timeout: float | None = None) -> Run:
        """Blocks until the run ended or waits for a decision. Raises ``TimeoutError`` after ``timeout`` seconds."""
        return self._wait_for(lambda: self.settled, timeout)

    def wait_end(self, timeout: float | None = None) -> Run:
        """Blocks until the run ended and its engine task is gone."""
        return self._wait_for(lambda: self.state.ended, timeout)

    def _still_busy(self, timeout: float | None) -> TimeoutError:
        return TimeoutError(f"Run {self.id} is still {self.state.status} after {timeout} s; wait again or stop it.")

    def __await__(self) -> Generator[Any, None, Run]:
        return asyncio.to_thread(self.wait).__await__()

    # -- decisions and control -----------------------------------------------------------------------------------

    def accept(self, hunks: Iterable[int] | None = None, via: str = "python", uuid: str = "", comment: str = "",
               looked_at: str = "") -> Run:
        """Accepts the open proposal, wholly or hunk by hunk. A merged text that was not judged is judged first.

        ``looked_at``, where it is given, is the only proposal or question that this may decide."""
        return self._decide(True, None if hunks is None else tuple(hunks), via, uuid, comment, looked_at)

    def reject(self, via: str = "python", uuid: str = "", comment: str = "", looked_at: str = "") -> Run:
        """Rejects the open proposal; the function stays exactly as it is."""
        return self._decide(False, None, via, uuid, comment, looked_at)

    def answer(self, choice: str, text: str = "", via: str = "python", uuid: str = "",
               hunks: Iterable[int] | None = None, looked_at: str = "") -> Run:
        """Answers the open question of a human-in-the-loop run. Raises ``UsageError`` naming the choices there are."""
        with self._mutex:
            if uuid and uuid in self._uuids:
                return self
            self._refuse_stale(looked_at)
            question = self.state.open_question
            if question is None or self.state.ended:
                raise UsageError(
                    f"Run {self.id} asks nothing now; it is {self.state.outcome or self.state.status}."
                )
            names = [c.name for c in question.choices]
            if choice not in names:
                raise UsageError(f"{choice!r} is no answer to {question.title!r}; answer one of: {', '.join(names)}.")
            chosen = None if hunks is None else tuple(hunks)
            if chosen is not None and question.patch is not None:
                question.patch.apply(chosen)  # names an unknown hunk before anything is recorded
            self._uuids.add(uuid)
            self.emit(ev.AnswerGiven(
                question=question.question, choice=choice, text=text, via=via, hunks=chosen, uuid=uuid,
            ))
        if self.runtime is not None:
            self.runtime.decided()
        return self

    def ask(self, question: str) -> Run:
        """Asks about the work at any time; the answer comes beside the run, under ``state.explanations``."""
        if not question.strip():
            raise UsageError("The question is empty; write it first, then ask.")
        if self.state.status is ev.Status.PAUSED:
            raise UsageError(f"Run {self.id} is paused and answers nothing; %maxkernel unpause {self.id}, then ask.")
        if self.runtime is None:
            raise UsageError(f"Run {self.id} is not attached to this kernel; resume it first, then ask.")
        from maxkernel_nb.agents.explainer import explain_beside

        runtime = self.runtime
        runtime.background(lambda: explain_beside(runtime, question))
        return self

    def take_back(self) -> Run:
        """A run handed to auto asks the person again after its round in flight."""
        if self.state.ended or self.state.control != "auto":
            raise UsageError(f"Run {self.id} is not handed over to auto: there is nothing to take back.")
        self.emit(ev.ControlChanged(to="person"))
        return self

    def _decide(self, accepted: bool, hunks: tuple[int, ...] | None, via: str, uuid: str, comment: str,
                looked_at: str) -> Run:
        with self._mutex:
            if uuid and uuid in self._uuids:
                return self
            self._refuse_stale(looked_at)
            question = self.state.open_question
            if question is not None and not self.state.ended:
                choice = question.default if accepted else question.on_reject or question.default
                return self.answer(choice, comment, via, uuid, hunks)
            proposal = self._open_proposal("accept" if accepted else "reject")
            if hunks is not None:
                proposal.patch.apply(hunks)  # names an unknown hunk before anything is recorded
            self._uuids.add(uuid)
            self.emit(ev.DecisionTaken(
                proposal=proposal.id, accepted=accepted, via=via, hunks=hunks, comment=comment, uuid=uuid,
            ))
        if self.runtime is not None:
            self.runtime.decided(proposal.id)
        return self

    def _refuse_stale(self, looked_at: str) -> None:
        """Between the look and the click another one may have opened; it is not decided unseen."""
        asked, proposal = self.state.open_question, self.state.open_proposal
        now = asked.question if asked is not None else proposal.id if proposal is not None else ""
        if looked_at and now and now != looked_at:
            raise UsageError(f"{looked_at} is no longer open; look at {now}, which is, and decide again.")

    def _open_proposal(self, verb: str) -> ProposalState:
        proposal = self.state.open_proposal
        if proposal is None:
            raise UsageError(
                f"Run {self.id} has no open proposal to {verb}; it is {self.state.outcome or self.state.status}."
            )
        return proposal

    def stop(self, reason: str = "stopped by the person") -> Run:
        """Ends the run now; its workers are killed, its journal stays and it can be resumed."""
        if self.runtime is not None:
            self.runtime.stop(reason)
        return self

    def pause(self) -> Run:
        """Holds the run before its next step (the step in flight finishes)."""
        if self.runtime is not None:
            self.runtime.pause()
        return self

    def unpause(self) -> Run:
        if self.runtime is not None:
            self.runtime.unpause()
        return self

    def mark(self, node: str, mark: str, via: str = "python") -> Run:
        """Pins a node of a search (every second draw builds on the newest pinned one), prunes it with its descendants,
        or takes the mark back (empty). Raises ``UsageError`` for an unknown node."""
        if node not in {edge.candidate for edge in self.state.edges}:
            raise UsageError(f"Run {self.id} has no node {node!r}; see `%maxkernel graph {self.id}`.")
        draws = len({edge.draw for edge in self.state.edges})
        self.emit(ev.NodeMarked(node=node, mark=mark, at_draw=draws, via=via))  # type: ignore[arg-type]
        return self

    def add_kernel(self, source: str, parent: str, via: str = "python") -> str:
        """A person's own kernel, as a child of a node of a search: the next draw judges it. Gives its id.

        Raises ``UsageError`` for a text that is no kernel of this task.
        """
        from maxkernel_nb.authors.kernel_text import NotAKernel, make_candidate

        assert self.state.task is not None
        try:
            made = make_candidate(self.state.task, source, "person", "edited by hand", parent)
        except NotAKernel as error:
            raise UsageError(f"Your kernel cannot be judged: {error}") from None
        self.emit(ev.CandidateAdded(candidate=made))
        draws = len({edge.draw for edge in self.state.edges})
        self.emit(ev.NodeMarked(node=made.id, mark="pinned", at_draw=draws, via=via))
        return made.id

    def undo(self) -> Run:
        """Takes the last applied proposal back: the function's name is bound to the reference again."""
        if self.runtime is None:
            raise UsageError(f"Run {self.id} is not attached to this kernel; resume it first, then undo.")
        self.runtime.undo()
        return self

    def close(self) -> None:
        """Gives the journal back, so that another kernel may go on with the run."""
        with self._mutex:
            if self._journal is not None:
                self._journal.close()
                self._journal = None

    def __repr__(self) -> str:
        return f"<Run {self.id}: {self.state.outcome or self.state.status}>"
