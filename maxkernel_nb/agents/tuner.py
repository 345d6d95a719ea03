"""The tuner: searches a kernel's constants by compile feedback and the cost model, cheaply and reproducibly.

Points are asked for in batches and told back in the order asked, so the same answers give the same search whatever
finishes first. Where a chip measured the first kernel, it decides between points that the model finds as fast.
Points that cannot work (VMEM, divisibility) are declined by the author and cost nothing; nor do points
whose own lower bound is above the best time. The search ends early when nothing got better for a while, or when
nothing left promises to.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from maxkernel_nb.agents.judge import judge, keep_if_better
from maxkernel_nb.agents.measurer import measure_likely
from maxkernel_nb.agents.tester import judge_fully
from maxkernel_nb.agents.walk import Asked, Walk, size
from maxkernel_nb.authors.base import TuningSpace
from maxkernel_nb.authors.model_errors import ModelError
from maxkernel_nb.engine.runtime import Runtime
from maxkernel_nb.evaluate.base import TUNING_GATES, Judged
from maxkernel_nb.task import Candidate, Plan

_BATCH = 2


async def tune(runtime: Runtime, plan: Plan, first: Candidate) -> None:
    """Tries up to ``settings.tuning_points`` other points; the fastest that passes every check becomes the best."""
    space = await _space(runtime, plan, first)
    points = min(runtime.settings.tuning_points, size(space) if space.axes else 0)
    if points <= 0 or runtime.run.state.baseline is None:
        return
    found = await _Search(runtime, plan, first, space).run(points)
    if runtime.run.state.measured is not None:
        await measure_likely(runtime, found)
    else:
        await _confirm_fastest(runtime, found)


async def _space(runtime: Runtime, plan: Plan, first: Candidate) -> TuningSpace:
    """The author's space; one that asks a model for it does so once a run, and its plain one serves otherwise."""
    author: Any = runtime.author
    if getattr(author, "propose_space", None) is None:
        return author.tuning_space(runtime.view, plan, first)
    try:
        return await runtime.step(
            f"space:{first.id}", "tuner", "Choose constants to try",
            lambda: author.propose_space(runtime.view, plan, first, runtime.settings.tuning_points), TuningSpace,
            lambda s: ", ".join(s.axes) or "none",
        )
    except ModelError as error:
        runtime.note(f"Constants are tried without advice: {error}", "warning")
        return author.tuning_space(runtime.view, plan, first)


class _Search:
    """One walk through a space. ``found``: times and candidates that compiled, in the order they were asked for."""

    def __init__(self, runtime: Runtime, plan: Plan, first: Candidate, space: TuningSpace) -> None:
        self.runtime = runtime
        author: Any = runtime.author
        estimate = getattr(author, "estimator", lambda *about: None)(runtime.view, plan, first)
        self.walk = Walk(
            space, lambda params: runtime.author.retune(runtime.view, plan, first, params), first,
            runtime.run.state.best_ms or float("inf"), estimate, journal=_journal(runtime, first),
        )
        self.found: list[tuple[float, Candidate]] = []

    async def run(self, points: int) -> list[tuple[float, Candidate]]:
        while points > 0 and self.walk.idle < self.runtime.settings.patience and self.walk.promising():
            batch = self.walk.ask(max(0, min(_BATCH, points, self._affordable())))
            if not batch:
                break
            points -= len(batch)
            judgements = await asyncio.gather(*(judge(self.runtime, a.candidate, TUNING_GATES) for a in batch))
            for asked, judgement in zip(batch, judgements, strict=True):
                self._tell(asked, judgement)
        return self.found

    def _affordable(self) -> int:
        """Candidates that may still be tried. One judgement is kept for the full check of the winner."""
        budget = self.runtime.settings.budget
        left = budget.judged_left(self.runtime.run.state.spend)
        if left is not None and left <= 1:
            self.runtime.note(
                f"The search for constants ended early: of the budget of {budget.judged} candidates judged, one is "
                "kept for the fastest one's full check; raise it with --budget.", "warning",
            )
        return _BATCH if left is None else left - 1

    def _tell(self, asked: Asked, judgement: Judged) -> None:
        time = judgement.assessment.modelled_ms
        self.walk.tell(asked, time)
        if time is not None and not judgement.assessment.failed:
            self.found.append((time, asked.candidate))


def _journal(runtime: Runtime, first: Candidate) -> Path | None:
    """Beside the run's own journal: the study as optuna keeps it."""
    folder = runtime.run.project.runs / runtime.run.id
    return folder / f"tuning-{first.id}.log" if folder.is_dir() else None


async def _confirm_fastest(runtime: Runtime, found: list[tuple[float, Candidate]]) -> Judged | None:
    """Fully checks the found points from the fastest on, until one passes or none is faster than the best."""
    for time, candidate in sorted(found, key=lambda pair: (pair[0], pair[1].id)):
        best = runtime.run.state.best_ms
        if best is not None and time >= best:
            return None
        judgement = await judge_fully(runtime, candidate)
        if keep_if_better(runtime, candidate, judgement):
            return judgement
    return None
