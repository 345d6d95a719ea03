"""The tester thinks once a run of unusual values; every kernel that would win has to be right on them too.

It only chooses what is drawn: whether a kernel is right there is the judge's verdict, journaled like any other. A draw
on which the reference itself overflows is declined by the judge and counts for nothing.
"""

from __future__ import annotations

from typing import Any

from maxkernel_nb import events as ev
from maxkernel_nb.agents.judge import judge
from maxkernel_nb.authors.model_errors import AttemptFailed, ModelError
from maxkernel_nb.authors.pool import StressDraws
from maxkernel_nb.engine.runtime import Runtime
from maxkernel_nb.errors import BudgetExceeded
from maxkernel_nb.evaluate.base import Judged
from maxkernel_nb.task import Assessment, Candidate, GateName, Outcome, Verdict

_GATES = (GateName.SCREEN, GateName.TRACE, GateName.CHECK)
_COUNTED = ("", "two cores")  # zeros and huge values are the ordinary checks' business
_DRAWS = "stress-draws"


async def judge_fully(runtime: Runtime, candidate: Candidate) -> Judged:
    """Every gate, and then the unusual inputs; a kernel that is wrong on one of them has failed its check."""
    judged = await judge(runtime, candidate)
    if not judged.assessment.correct:
        return judged
    try:
        draws = await _draws(runtime)
        extra = [v for name in draws.draws for v in await _verdicts(runtime, candidate, draws, name)]
    except BudgetExceeded as error:  # the kernel passed all that its task asks for: it stays
        runtime.note(f"No unusual inputs were tried on {candidate.id}: {error}", "warning")
        return judged
    assessment = judged.assessment
    found = Assessment(candidate=candidate.id, verdicts=(*assessment.verdicts, *extra), complete=assessment.complete)
    return judged.model_copy(update={"assessment": found})


def draws_wanted(runtime: Runtime) -> bool:
    """Whether the next full judgement asks the tester, at the price of a talk with the model."""
    return _has_tester(runtime.author) and _DRAWS not in runtime.run.state.results


def _has_tester(author: Any) -> bool:
    return getattr(author, "stress_draws", None) is not None and getattr(author.settings, "stress", True)


async def _draws(runtime: Runtime) -> StressDraws:
    """Asked for once a run; none when this run's author has no tester or cannot be reached."""
    author: Any = runtime.author
    if not _has_tester(author):
        return StressDraws()

    async def work() -> StressDraws:
        try:
            return await author.stress_draws(runtime.view)
        except AttemptFailed as error:
            runtime.note(f"No unusual inputs are tried: {error}", "warning")
            return StressDraws()

    try:
        return await runtime.step(_DRAWS, "tester", "Think of unusual inputs", work, StressDraws,
                                  lambda d: ", ".join(d.draws) or "none")
    except ModelError as error:  # a later try, or a resumed run, may reach it
        runtime.note(f"No unusual inputs were tried: {error}", "warning")
        return StressDraws()


async def _verdicts(runtime: Runtime, candidate: Candidate, draws: StressDraws, name: str) -> tuple[Verdict, ...]:
    """One seed suffices: the ordinary checks have had the others."""
    task = draws.task(runtime.task, name)
    task = task.model_copy(update={"seeds": task.seeds[:1]}).on_check_cases_only()

    async def work() -> Judged:
        judged = await runtime.evaluator.judge(task, candidate, _GATES)
        told = tuple(_told(v, name) for v in judged.assessment.verdicts
                     if v.gate is GateName.CHECK and v.variant in _COUNTED)
        for verdict in told:
            runtime.run.emit(ev.VerdictReached(candidate=candidate.id, verdict=verdict))
        return Judged(assessment=Assessment(candidate=candidate.id, verdicts=told, complete=False))

    judged = await runtime.step(f"stress:{candidate.id}:{name}", "tester", f"Try {name}", work, Judged,
                                lambda j: j.assessment.failed[0].summary if j.assessment.failed else "passed")
    failed = judged.assessment.failed
    if failed:
        runtime.run.emit(ev.LessonLearned(text=f"{candidate.id} is wrong on {name}", evidence=failed[0].summary))
    return judged.assessment.verdicts


async def stressed_again(runtime: Runtime, candidate: Candidate) -> tuple[Verdict, ...]:
    """Verdicts on the unusual inputs that this run knows already, for a text that a person put together."""
    known = runtime.run.state.results.get(_DRAWS, {}).get("value")
    draws = StressDraws() if known is None else StressDraws.from_dict(known)
    return tuple([v for name in draws.draws for v in await _verdicts(runtime, candidate, draws, name)])


def _told(verdict: Verdict, name: str) -> Verdict:
    """A verdict on unusual inputs keeps a place of its own beside the ordinary one, and blocks nothing else."""
    variant = f"{name}, {verdict.variant}" if verdict.variant else name
    outcome = Outcome.DECLINED if verdict.outcome is Outcome.INFRASTRUCTURE else verdict.outcome
    summary = verdict.summary if outcome is not Outcome.FAIL else f"On {name}: {verdict.summary}"
    return verdict.model_copy(update={"variant": variant, "outcome": outcome, "summary": summary})
