"""Other kernels for the same function, tried whole: only the judge's time tells which is the fastest."""

from __future__ import annotations

from typing import Any

from maxkernel_nb import events as ev
from maxkernel_nb.agents.judge import judge, keep_if_better
from maxkernel_nb.agents.tester import judge_fully
from maxkernel_nb.engine.runtime import Runtime
from maxkernel_nb.errors import Declined
from maxkernel_nb.evaluate.base import TUNING_GATES
from maxkernel_nb.task import Candidate, Plan
from maxkernel_nb.values import Value


class Plans(Value):
    plans: tuple[Plan, ...] = ()


async def other_plans(runtime: Runtime) -> tuple[Plan, ...]:
    """The author's other ways to the same result, where it can name them."""
    author: Any = runtime.author
    if getattr(author, "other_plans", None) is None:
        return ()

    async def work() -> Plans:
        return Plans(plans=await author.other_plans(runtime.view))

    found = await runtime.step("other-plans", "planner", "Look for other ways", work, Plans,
                               lambda p: ", ".join(x.strategy for x in p.plans) or "none")
    return found.plans


async def fastest_way(runtime: Runtime, plan: Plan, first: Candidate) -> tuple[Plan, Candidate]:
    """``plan`` and its kernel, or another plan and the kernel of it that replaced it as the best.

    Each is compiled and timed as a whole; the fastest is then judged fully. Without a time of the first there is
    nothing to compare, and nothing is tried.
    """
    if runtime.run.state.baseline is None or runtime.run.state.best_ms is None:
        return plan, first
    timed = []
    for number, other in enumerate(await other_plans(runtime), 1):
        if not _affordable(runtime):
            break
        if (found := await _timed(runtime, number, other)) is not None:
            timed.append((found[0], number, other, found[1]))
    for ms, _, other, candidate in sorted(timed, key=lambda t: t[:2]):
        best = runtime.run.state.best_ms
        if best is None or ms >= best:
            break
        if keep_if_better(runtime, candidate, await judge_fully(runtime, candidate)):
            runtime.note(f"Of {len(timed) + 1} ways this one is the fastest as a whole: {other.strategy}.")
            runtime.run.emit(ev.PlanMade(plan=other))
            return other, candidate
    if timed:
        ms = min(t[0] for t in timed)
        runtime.note(f"The first plan stays: the fastest of {len(timed)} other ways takes {ms:.4g} ms, modelled.")
    return plan, first


async def another_way(runtime: Runtime) -> tuple[Plan, Candidate] | None:
    """Where the first plan came to nothing: the first of the others whose kernel passes every check."""
    for number, other in enumerate(await other_plans(runtime), 1):
        if not _affordable(runtime):
            break
        candidate = await _written(runtime, number, other)
        if candidate is not None and keep_if_better(runtime, candidate, await judge_fully(runtime, candidate)):
            runtime.run.emit(ev.PlanMade(plan=other))
            return other, candidate
    return None


def _affordable(runtime: Runtime) -> bool:
    """A look at one more and the full check of the fastest."""
    left = runtime.settings.budget.judged_left(runtime.run.state.spend)
    return left is None or left >= 2


async def _timed(runtime: Runtime, number: int, plan: Plan) -> tuple[float, Candidate] | None:
    """The modelled time of a plan's first kernel and the kernel; None where it cannot be written or compiled."""
    candidate = await _written(runtime, number, plan)
    if candidate is None:
        return None
    judged = await judge(runtime, candidate, TUNING_GATES)
    ms = judged.assessment.modelled_ms
    return None if ms is None or judged.assessment.failed else (ms, candidate)


async def _written(runtime: Runtime, number: int, plan: Plan) -> Candidate | None:
    try:
        return await runtime.step(
            f"implement:way {number}", "implementer", "Write another kernel",
            lambda: runtime.author.implement(runtime.view, plan), Candidate, lambda c: c.note,
        )
    except Declined as why:
        runtime.note(f"Nothing came of the plan {plan.strategy!r}: {why}", "warning")
        return None
