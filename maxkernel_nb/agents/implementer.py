"""The implementer writes the first candidate; the debugger repairs what the ladder refused."""

from __future__ import annotations

from maxkernel_nb.agents.judge import Judgement, judge, keep_if_better
from maxkernel_nb.runtime import Runtime
from maxkernel_nb.task import Candidate, Plan


async def implement(runtime: Runtime, plan: Plan) -> tuple[Candidate, Judgement]:
    """Writes, judges and repairs, at most ``settings.repairs`` times. The last candidate may still be wrong."""
    candidate = await runtime.step(
        "implement", "implementer", "Write the kernel",
        lambda: runtime.author.implement(runtime.view, plan), Candidate, lambda c: c.note,
    )
    judgement = await judge(runtime, candidate)
    for attempt in range(1, runtime.settings.repairs + 1):
        if judgement.assessment.correct:
            break
        candidate = await _repair(runtime, plan, candidate, judgement, attempt)
        judgement = await judge(runtime, candidate)
    keep_if_better(runtime, candidate, judgement)
    return candidate, judgement


async def _repair(runtime: Runtime, plan: Plan, candidate: Candidate, judgement: Judgement, attempt: int) -> Candidate:
    return await runtime.step(
        f"repair:{attempt}", "debugger", f"Repair the kernel, attempt {attempt}",
        lambda: runtime.author.repair(runtime.view, plan, candidate, judgement.assessment), Candidate, lambda c: c.note,
    )
