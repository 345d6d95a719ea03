"""Seats an author that talks to a model at the run it works for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from maxkernel_nb import events as ev
from maxkernel_nb.agents.judge import judge
from maxkernel_nb.budget import Budget
from maxkernel_nb.engine.runtime import Runtime, current_step
from maxkernel_nb.engine.state import RunState
from maxkernel_nb.evaluate.base import Judged
from maxkernel_nb.knowledge.lessons import Lesson, LessonBook
from maxkernel_nb.task import Candidate, GateName


class RuntimeDesk:
    """The desk of ``authors/claude/desk.py`` over a live run. Only a human-in-the-loop run has someone to ask."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @property
    def state(self) -> RunState:
        return self._runtime.run.state

    @property
    def budget(self) -> Budget:
        return self._runtime.settings.budget

    @property
    def step(self) -> str:
        return current_step()

    async def checkpoint(self) -> None:
        await self._runtime.checkpoint()

    def record(self, event: ev.AnyEvent) -> None:
        self._runtime.run.emit(event)

    async def judge(self, candidate: Candidate, gates: Sequence[GateName]) -> Judged:
        return await judge(self._runtime, candidate, gates)

    async def ask(self, key: str, question: str) -> str | None:
        if self.state.mode != "hitl" or self._runtime.settings.policy != "ask" or self.state.control == "auto":
            return None
        given = await self._runtime.answer(ev.QuestionAsked(
            question=key, title="A question from the agent", text=question, default="answer", on_reject="decide",
            choices=(ev.Choice(name="answer", label="Answer", takes_text="your answer"),
                     ev.Choice(name="decide", label="Let it decide")),
        ))
        return given.text if given.choice == "answer" and given.text.strip() else None


def seat(runtime: Runtime) -> None:
    """A mode calls this before the first call to the author. Authors that need no desk are left alone."""
    attach: Any = getattr(runtime.author, "attach", None)
    if attach is not None:
        attach(RuntimeDesk(runtime))
    if getattr(getattr(runtime.author, "settings", None), "share_lessons", False):
        _share_lessons(runtime)


def _share_lessons(runtime: Runtime) -> None:
    """Earlier runs' lessons come in once, new ones are kept as they are learned."""
    run, chip = runtime.run, runtime.task.chip
    book = LessonBook(run.project.folder)
    if not run.state.lessons:
        for old in book.about(chip):
            run.emit(ev.LessonLearned(text=old.text, evidence=f"run {old.run}: {old.evidence}"))
    kept = len(run.state.lessons)

    def keep(state: RunState) -> None:
        nonlocal kept
        new, kept = state.lessons[kept:], len(state.lessons)
        for lesson in new:
            book.add(Lesson(text=lesson.text, evidence=lesson.evidence, chip=chip, run=run.id))

    run.subscribe(keep)
