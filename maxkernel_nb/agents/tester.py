"""The tester tries unusual values on a kernel that is about to be proposed. What it finds is said, not hidden.

It never replaces the judge: a kernel that fails here has passed every check of its task, so the person is warned and
decides.
"""

from __future__ import annotations

from typing import Any

from maxkernel_nb import events as ev
from maxkernel_nb.authors.model_errors import ModelError
from maxkernel_nb.authors.pool import StressDraws
from maxkernel_nb.engine.runtime import Runtime
from maxkernel_nb.evaluate.base import Judged
from maxkernel_nb.task import Candidate, GateName, Outcome, Verdict

_GATES = (GateName.SCREEN, GateName.TRACE, GateName.CHECK)


async def stress(runtime: Runtime, candidate: Candidate) -> list[str]:
    """The names of the unusual inputs it fails on; none when this run's author has no tester or cannot be reached."""
    author: Any = runtime.author
    if getattr(author, "stress_draws", None) is None:
        return []
    try:
        draws = await runtime.step("stress-draws", "tester", "Think of unusual inputs",
                                   lambda: author.stress_draws(runtime.view), StressDraws,
                                   lambda d: ", ".join(d.draws) or "none")
    except ModelError as error:
        runtime.note(f"No unusual inputs were tried: {error}", "warning")
        return []
    return [name for name in draws.draws if not await _survives(runtime, candidate, draws, name)]


async def _survives(runtime: Runtime, candidate: Candidate, draws: StressDraws, name: str) -> bool:
    async def work() -> Judged:
        judged = await runtime.evaluator.judge(draws.task(runtime.task, name), candidate, _GATES)
        return Judged(assessment=judged.assessment)

    judgement = await runtime.step(f"stress:{candidate.id}:{name}", "tester", f"Try {name}", work, Judged,
                                   lambda j: j.assessment.failed[0].summary if j.assessment.failed else "passed")
    failed = next((v for v in judgement.assessment.verdicts if v.outcome is Outcome.FAIL), None)
    if failed is not None:
        _warn(runtime, candidate, name, failed)
    return failed is None


def _warn(runtime: Runtime, candidate: Candidate, name: str, failed: Verdict) -> None:
    runtime.note(f"Kernel {candidate.id} passed its checks but differs from the reference on {name}: {failed.summary}",
                 "warning")
    runtime.run.emit(ev.LessonLearned(text=f"{candidate.id} is unsafe on {name}", evidence=failed.summary))
