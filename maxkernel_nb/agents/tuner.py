"""The tuner: searches a kernel's constants by compile feedback and the cost model, cheaply and reproducibly.

Points are asked for in batches and told back in the order asked, so the same answers give the same search whatever
finishes first. Points that cannot work (VMEM, divisibility) are declined by the author and cost nothing; nor do points
whose own lower bound is above the best time. The search ends early when nothing got better for a while.
"""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

from maxkernel_nb.agents.judge import judge, keep_if_better
from maxkernel_nb.agents.tester import judge_fully
from maxkernel_nb.authors.base import TuningSpace
from maxkernel_nb.authors.model_errors import ModelError
from maxkernel_nb.engine.runtime import Runtime
from maxkernel_nb.errors import Declined
from maxkernel_nb.evaluate.base import TUNING_GATES, Judged
from maxkernel_nb.task import Candidate, Plan

_BATCH = 2
_DECLINED_IN_A_ROW = 60  # then the space holds nothing more that can work


async def tune(runtime: Runtime, plan: Plan, first: Candidate) -> None:
    """Tries up to ``settings.tuning_points`` other points; the fastest that passes every check becomes the best."""
    space = await _space(runtime, plan, first)
    points = min(runtime.settings.tuning_points, _size(space) if space.axes else 0)
    if points <= 0 or runtime.run.state.baseline is None:
        return
    found = await _Search(runtime, plan, first, space).run(points)
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


def _size(space: TuningSpace) -> int:
    size = 1
    for values in space.axes.values():
        size *= len(values)
    return size


class _Search:
    """One walk through a space. ``found``: times and candidates that compiled, in the order they were asked for."""

    def __init__(self, runtime: Runtime, plan: Plan, first: Candidate, space: TuningSpace) -> None:
        self.runtime, self.plan, self.first, self.space = runtime, plan, first, space
        self.study = _study(space)
        self.seen = {first.id}
        self.found: list[tuple[float, Candidate]] = []
        self.best = runtime.run.state.best_ms or float("inf")
        self.idle = 0  # points since the last improvement

    async def run(self, points: int) -> list[tuple[float, Candidate]]:
        while points > 0 and self.idle < self.runtime.settings.patience:
            batch = self._ask(max(0, min(_BATCH, points, self._affordable())))
            if not batch:
                break
            points -= len(batch)
            judgements = await asyncio.gather(*(judge(self.runtime, c, TUNING_GATES) for _, c in batch))
            for (trial, candidate), judgement in zip(batch, judgements, strict=True):
                self._tell(trial, candidate, judgement)
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

    def _ask(self, count: int) -> list[tuple[Any, Candidate]]:
        batch: list[tuple[Any, Candidate]] = []
        refused = 0
        while len(batch) < count and refused < _DECLINED_IN_A_ROW:
            trial = self.study.ask()
            params = {name: trial.suggest_categorical(name, values) for name, values in self.space.axes.items()}
            candidate = self._worth_trying(params)
            if candidate is None:
                refused += 1
                _record(self.study, trial, None)
                continue
            self.seen.add(candidate.id)
            batch.append((trial, candidate))
        return batch

    def _worth_trying(self, params: dict[str, int]) -> Candidate | None:
        """None for a point that cannot work, was tried, or whose own lower bound is no better than what is known."""
        try:
            candidate = self.runtime.author.retune(self.runtime.view, self.plan, self.first, params)
        except Declined:
            return None
        hopeless = candidate.bound_ms is not None and candidate.bound_ms >= self.best
        return None if hopeless or candidate.id in self.seen else candidate

    def _tell(self, trial: Any, candidate: Candidate, judgement: Judged) -> None:
        time = judgement.assessment.modelled_ms
        _record(self.study, trial, time)
        if time is not None and not judgement.assessment.failed:
            self.found.append((time, candidate))
        better = time is not None and time < self.best
        self.idle = 0 if better else self.idle + 1
        self.best = time if better and time is not None else self.best


def _record(study: Any, trial: Any, time: float | None) -> None:
    import optuna

    if time is None:
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    else:
        study.tell(trial, time)


def _study(space: TuningSpace) -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=0, n_startup_trials=4)
    study = optuna.create_study(direction="minimize", sampler=sampler)
    for point in space.seeds:
        study.enqueue_trial(point)
    return study


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
