"""Looks for a faster kernel, round after round: read the best one's profile, attack its bottleneck, keep the better."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from maxkernel_nb import events as ev
from maxkernel_nb.agents.implementer import implement
from maxkernel_nb.agents.reviewer import review_first
from maxkernel_nb.agents.tuner import tune
from maxkernel_nb.authors.model_errors import AttemptFailed, ModelError
from maxkernel_nb.authors.pool import Next
from maxkernel_nb.engine.runtime import Runtime
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import Plan

_NEAR_ROOFLINE = 1.08  # modelled time over the roofline's; closer is within the model's own error
_WORTH = 0.005  # a smaller relative gain counts as none


async def improve(runtime: Runtime, first: int = 2, wanted: Callable[[], bool] = lambda: True) -> str:
    """Why it stopped, one sentence; empty when this run's author cannot look further. ``wanted`` is asked each round.

    A round that gives nothing usable costs patience, not the run; a service that is gone ends the search only.
    """
    settings: Any = getattr(runtime.author, "settings", None)
    if settings is None or getattr(runtime.author, "next_attack", None) is None:
        return ""
    idle = 0
    for number in range(first, first + settings.rounds):
        if reason := _at_the_roofline(runtime):
            return reason
        if not wanted():
            return "The search was handed back."
        before = runtime.run.state.best_ms
        try:
            if reason := await _round(runtime, number):
                return reason
        except AttemptFailed as error:
            runtime.note(f"Round {number} gave nothing: {error}", "warning")
        except ModelError as error:
            runtime.note(f"The search ends early: {error}", "warning")
            return str(error)
        idle = 0 if _gained(before, runtime.run.state.best_ms) else idle + 1
        if idle >= settings.patience:
            return f"The search has levelled off: {idle} round{'s'[:idle != 1]} brought no faster kernel."
    return f"All {settings.rounds} rounds are done."


def _at_the_roofline(runtime: Runtime) -> str:
    state = runtime.run.state
    roofline = state.baseline.roofline_ms if state.baseline is not None else 0.0
    if not roofline or state.best_ms is None or state.best_ms > _NEAR_ROOFLINE * roofline:
        return ""
    return f"The best kernel's {state.best_ms:.4g} ms is within {_NEAR_ROOFLINE - 1:.0%} of the roofline."


def _gained(before: float | None, after: float | None) -> bool:
    return after is not None and (before is None or after < before * (1 - _WORTH))


async def _round(runtime: Runtime, number: int) -> str:
    """Gives the reason to stop, or an empty string."""
    author: Any = runtime.author
    if runtime.run.state.best is None:
        plan = await runtime.step(f"plan:{number}", "planner", "Plan another kernel",
                                  lambda: author.plan(runtime.view), Plan, lambda p: p.strategy)
        base = None
    else:
        found = await next_attack(runtime, number)
        if found.plan is None:
            return f"Nothing worth trying is left: {found.stop}"
        plan, base = found.plan, runtime.run.state.candidates[runtime.run.state.best].candidate
    runtime.run.emit(ev.PlanMade(plan=plan))
    candidate, judgement = await implement(
        runtime, plan, number, lambda: review_first(runtime, plan, author.implement(runtime.view, plan, base=base))
    )
    if judgement.assessment.correct and runtime.run.state.best == candidate.id:
        await tune(runtime, plan, candidate)
    return ""


async def next_attack(runtime: Runtime, number: int) -> Next:
    """The profiler's reading of the best kernel; a ``Declined`` from it is a reason to stop."""
    author: Any = runtime.author

    async def work() -> Next:
        try:
            return await author.next_attack(runtime.view)
        except Declined as error:
            return Next(bottleneck="", stop=str(error))

    found = await runtime.step(f"attack:{number}", "profiler", "Read the profile, plan the next attack", work, Next,
                               lambda n: n.stop or n.bottleneck)
    if found.lesson:
        runtime.run.emit(ev.LessonLearned(text=found.lesson, evidence=found.bottleneck))
    return found
