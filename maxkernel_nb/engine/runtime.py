"""What drives a live run: durable steps, checks before every spend, decisions, and its end."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from maxkernel_nb import events as ev
from maxkernel_nb.approvals import Binder, settle, undo_last
from maxkernel_nb.authors.base import Author, TaskView
from maxkernel_nb.budget import Budget
from maxkernel_nb.engine.clock import WorkClock
from maxkernel_nb.errors import BudgetExceeded, Declined, JournalError, MaxKernelError
from maxkernel_nb.evaluate.base import Evaluator
from maxkernel_nb.events import RunOutcome, Spend, Status
from maxkernel_nb.run import Run
from maxkernel_nb.task import KernelTask
from maxkernel_nb.values import Value

log = logging.getLogger(__name__)
V = TypeVar("V", bound=Value)
_STEP: contextvars.ContextVar[str] = contextvars.ContextVar("maxkernel_step", default="")


def current_step() -> str:
    """The key of the innermost step in progress on this task, or the empty string."""
    return _STEP.get()


@dataclass(frozen=True)
class RunSettings:
    """What of the options drives a run. ``policy``: ask, accept-verified or propose."""

    policy: str = "ask"
    budget: Budget = field(default_factory=Budget)
    tuning_points: int = 12
    patience: int = 4  # tuning points without improvement before the search ends
    repairs: int = 2
    min_speedup: float = 1.03  # a smaller modelled gain is not worth a person's attention
    strategy: str = "auto"  # of a search
    width: int = 2  # draws of a search in flight at a time
    seed: int = 0
    executor: str = "local"


class Mode(Protocol):
    async def __call__(self, runtime: Runtime) -> tuple[RunOutcome, str]:
        """Drives the run and gives its outcome with the reason, one sentence."""
        ...


class Runtime:
    """Handed to a mode and to every sub-agent. Lives on the engine's loop."""

    def __init__(self, run: Run, *, loop: asyncio.AbstractEventLoop, author: Author, evaluator: Evaluator,
                 view: TaskView, binder: Binder, settings: RunSettings) -> None:
        self.run, self.author, self.evaluator = run, author, evaluator
        self.view, self.binder, self.settings = view, binder, settings
        self.task: KernelTask = view.task
        self._loop = loop
        self._work: asyncio.Task[None] | None = None
        self._beside: set[asyncio.Task[None]] = set()
        self._go = asyncio.Event()
        self._go.set()
        self._decision = asyncio.Event()
        self._stop_reason = ""
        self.clock = WorkClock()
        self.done = False
        run.runtime = self

    # -- for modes and sub-agents ----------------------------------------------------------------------------------

    async def step(self, key: str, role: str, title: str, work: Callable[[], Awaitable[V]], result: type[V],
                   summary: Callable[[V], str] = lambda value: "", costs: Spend | None = None) -> V:
        """Does ``work`` once per run, ever: a resumed run reads the recorded answer instead.

        A ``Declined`` from ``work`` is recorded too and raised again. ``costs`` are charged with the answer, in one
        event, so that work repeated after a crash is charged once.
        """
        recorded = self.run.state.results.get(key)
        if recorded is not None:
            return _recorded(recorded, result)
        await self.checkpoint()
        self.run.emit(ev.StepStarted(step=key, role=role, title=title))
        answer: dict[str, Any]
        start, outer_step = time.monotonic(), _STEP.set(key)
        try:
            with self.clock.working():
                value = await work()
            answer, text = {"value": value.to_dict()}, summary(value)
        except Declined as error:
            answer, text = {"declined": str(error)}, str(error)
        finally:
            _STEP.reset(outer_step)
        seconds = round(time.monotonic() - start, 3)
        self.run.emit(ev.StepFinished(step=key, seconds=seconds, result=answer, summary=text, costs=costs))
        self.spent(Spend(wall_seconds=round(self.clock.take(), 3)), what=key)
        return _recorded(answer, result)

    async def checkpoint(self) -> None:
        """Before every step: holds while paused, raises when a cap on work is reached (money is checked per call)."""
        with self.clock.waiting():
            await self._go.wait()
        self.settings.budget.check_work(self.run.state.spend)

    def spent(self, amount: Spend, what: str = "") -> None:
        self.run.emit(ev.Spent(amount=amount, what=what))

    def note(self, text: str, level: str = "info") -> None:
        self.run.emit(ev.Noted(level=level, text=text))  # type: ignore[arg-type]

    async def decision(self, proposal: str) -> ev.DecisionTaken:
        """Waits, without limit, until the proposal is decided by any route."""
        while (taken := self.run.state.proposals[proposal].decision) is None:
            self._decision.clear()
            if self.run.state.status is not Status.WAITING:
                self.run.emit(ev.StatusChanged(status=Status.WAITING, reason="a proposal waits for your decision"))
            await self._decided()
        if self.run.state.status is Status.WAITING:
            self.run.emit(ev.StatusChanged(status=Status.RUNNING))
        return taken

    async def answer(self, question: ev.QuestionAsked) -> ev.AnswerGiven:
        """Asks once per run, ever, and waits without limit; under another policy than ``ask`` the default is taken."""
        if question.question not in self.run.state.questions:
            self.run.emit(question)
        if self.settings.policy != "ask" and self.run.state.questions[question.question].answer is None:
            self.run.emit(ev.AnswerGiven(question=question.question, choice=question.default, via="policy"))
        while (given := self.run.state.questions[question.question].answer) is None:
            self._decision.clear()
            if self.run.state.status is not Status.WAITING:
                self.run.emit(ev.StatusChanged(status=Status.WAITING, reason=question.title))
            await self._decided()
        if self.run.state.status is Status.WAITING:
            self.run.emit(ev.StatusChanged(status=Status.RUNNING))
        return given

    async def _decided(self) -> None:
        with self.clock.waiting():
            await self._decision.wait()

    # -- the course of the run ---------------------------------------------------------------------------------------

    async def drive(self, mode: Mode) -> None:
        """Runs ``mode`` to its end and records it, whatever happens."""
        self._work = asyncio.current_task()
        try:
            if self._stop_reason:  # stopped before it began
                raise asyncio.CancelledError
            outcome, reason = await mode(self)
        except asyncio.CancelledError:
            outcome = RunOutcome.STOPPED
            reason = self._stop_reason or "The engine was closed; resume continues from here."
        except BudgetExceeded as error:
            outcome, reason = RunOutcome.STOPPED, str(error)
        except Declined as error:
            outcome, reason = RunOutcome.DECLINED, str(error)
        except MaxKernelError as error:
            outcome, reason = RunOutcome.FAILED, str(error)
        except Exception as error:
            outcome, reason = RunOutcome.FAILED, f"Internal error: {type(error).__name__}: {error}"
            log.exception("run %s failed", self.run.id)
        self.end(outcome, reason)

    def end(self, outcome: RunOutcome, reason: str) -> None:
        """Records the end, whatever happens, and gives the journal back."""
        self.done = True
        try:
            self.run.emit(ev.RunEnded(outcome=outcome, reason=reason))
        except JournalError as error:
            self.run.broke(error)
        self.run.close()

    @property
    def busy(self) -> bool:
        """Work goes on beside the run: a late decision, an answer to a person's question."""
        return bool(self._beside)

    # -- from any thread ---------------------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        def cancel() -> None:
            self._stop_reason = reason
            if self._work is not None and not self.done:
                self._work.cancel()

        self._loop.call_soon_threadsafe(cancel)

    def pause(self) -> None:
        self._loop.call_soon_threadsafe(self._pause)

    def _pause(self) -> None:
        if not self.done and self._go.is_set():
            self._go.clear()
            self.run.emit(ev.StatusChanged(status=Status.PAUSED, reason="paused by the person"))

    def unpause(self) -> None:
        self._loop.call_soon_threadsafe(self._unpause)

    def _unpause(self) -> None:
        if not self.done and not self._go.is_set():
            self.run.emit(ev.StatusChanged(status=Status.RUNNING))
            self._go.set()
            self._decision.set()  # whoever waits for a person looks again, and says so again

    def decided(self, proposal: str = "") -> None:
        """A decision was journaled. A run that ended already is settled here; a live one wakes up."""
        if self.done and proposal:
            self.background(lambda: self._settle_late(proposal))
        else:
            self._loop.call_soon_threadsafe(self._decision.set)

    async def _settle_late(self, proposal: str) -> None:
        try:
            outcome, reason = await settle(self, proposal)
        except MaxKernelError as error:
            outcome, reason = RunOutcome.FAILED, str(error)
        except Exception as error:
            outcome, reason = RunOutcome.FAILED, f"Internal error: {type(error).__name__}: {error}"
            log.exception("a decision on run %s failed", self.run.id)
        self.end(outcome, reason)

    def background(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Starts ``work`` beside the run, from any thread (a person's question)."""
        def start() -> None:
            task: asyncio.Task[None] = self._loop.create_task(work())
            self._beside.add(task)
            task.add_done_callback(self._beside.discard)

        self._loop.call_soon_threadsafe(start)

    def undo(self) -> None:
        undo_last(self)


def _recorded(answer: dict[str, Any], result: type[V]) -> V:
    if "declined" in answer:
        raise Declined(answer["declined"])
    return result.from_dict(answer["value"])
