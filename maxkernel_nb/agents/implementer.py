"""The implementer writes a round's candidate; the debugger repairs what the ladder refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from maxkernel_nb import events as ev
from maxkernel_nb.agents.judge import keep_if_better
from maxkernel_nb.agents.tester import judge_fully
from maxkernel_nb.engine.runtime import Runtime
from maxkernel_nb.errors import InfrastructureError
from maxkernel_nb.evaluate.base import Judged
from maxkernel_nb.task import Candidate, Plan


async def implement(
    runtime: Runtime, plan: Plan, number: int = 1, write: Callable[[], Awaitable[Candidate]] | None = None
) -> tuple[Candidate, Judged]:
    """Writes, judges and repairs, at most ``settings.repairs`` times. The last candidate may still be wrong.

    Raises ``InfrastructureError`` where the judge failed and there is no kernel yet: there is nothing to repair.

    ``number``: the round, which names the steps. ``write`` replaces the author's plain ``implement``.
    """
    candidate = await runtime.step(
        "implement" if number == 1 else f"implement:{number}", "implementer", "Write the kernel",
        write or (lambda: runtime.author.implement(runtime.view, plan)), Candidate, lambda c: c.note,
    )
    judgement = await judge_fully(runtime, candidate)
    for attempt in range(1, runtime.settings.repairs + 1):
        if judgement.assessment.correct or judgement.assessment.unjudged:
            break
        candidate = await _repair(runtime, plan, candidate, judgement, number, attempt)
        judgement = await judge_fully(runtime, candidate)
    if (told := judgement.assessment.unjudged) and runtime.run.state.best is None:
        raise InfrastructureError(f"The kernel could not be judged ({told.rstrip('.')}); run the cell again.")
    if not judgement.assessment.correct:
        _abandon(runtime, candidate, judgement)
    keep_if_better(runtime, candidate, judgement)
    return candidate, judgement


async def _repair(runtime: Runtime, plan: Plan, candidate: Candidate, judgement: Judged, number: int,
                  attempt: int) -> Candidate:
    return await runtime.step(
        f"repair:{attempt}" if number == 1 else f"repair:{number}.{attempt}", "debugger",
        f"Repair the kernel, attempt {attempt}",
        lambda: runtime.author.repair(runtime.view, plan, candidate, judgement.assessment), Candidate, lambda c: c.note,
    )


def _abandon(runtime: Runtime, candidate: Candidate, judgement: Judged) -> None:
    failed = judgement.assessment.failed
    if failed:
        runtime.run.emit(ev.LessonLearned(
            text=f"{candidate.note or candidate.id} was abandoned after {runtime.settings.repairs} repairs",
            evidence=f"{failed[0].gate}: {failed[0].summary}",
        ))
