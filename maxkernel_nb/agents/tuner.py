"""The tuner: searches a kernel's constants by compile feedback and the cost model, cheaply and reproducibly.

Points are asked for in batches and told back in the order asked, so the same answers give the same search whatever
finishes first. Points that cannot work (VMEM, divisibility) are declined by the author and cost nothing.
"""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

from maxkernel_nb.agents.judge import Judgement, judge, keep_if_better
from maxkernel_nb.authors.base import TuningSpace
from maxkernel_nb.authors.claude.errors import ModelError
from maxkernel_nb.errors import Declined
from maxkernel_nb.evaluate.base import TUNING_GATES
from maxkernel_nb.runtime import Runtime
from maxkernel_nb.task import Candidate, Plan

_BATCH = 2
_DECLINED_IN_A_ROW = 60  # then the space holds nothing more that can work


async def tune(runtime: Runtime, plan: Plan, first: Candidate) -> None:
    """Tries up to ``settings.tuning_points`` other points; the fastest that passes every check becomes the best."""
    space = await _space(runtime, plan, first)
    points = min(runtime.settings.tuning_points, _size(space) if space.axes else 0)
    if points <= 0 or runtime.run.state.baseline is None:
        return
    found = await _explore(runtime, plan, first, space, points)
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


async def _explore(
    runtime: Runtime, plan: Plan, first: Candidate, space: TuningSpace, points: int
) -> list[tuple[float, Candidate]]:
    study = _study(space)
    seen, found = {first.id}, []
    while points > 0:
        batch = _ask(study, runtime, plan, first, space, seen, min(_BATCH, points))
        if not batch:
            break
        points -= len(batch)
        judgements = await asyncio.gather(*(judge(runtime, c, TUNING_GATES) for _, c in batch))
        for (trial, candidate), judgement in zip(batch, judgements, strict=True):
            time = judgement.assessment.modelled_ms
            _tell(study, trial, time)
            if time is not None and not judgement.assessment.failed:
                found.append((time, candidate))
    return found


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


def _ask(study: Any, runtime: Runtime, plan: Plan, first: Candidate, space: TuningSpace,
         seen: set[str], count: int) -> list[tuple[Any, Candidate]]:
    batch: list[tuple[Any, Candidate]] = []
    refused = 0
    while len(batch) < count and refused < _DECLINED_IN_A_ROW:
        trial = study.ask()
        params = {name: trial.suggest_categorical(name, values) for name, values in space.axes.items()}
        try:
            candidate = runtime.author.retune(runtime.view, plan, first, params)
        except Declined:
            candidate = None
        if candidate is None or candidate.id in seen:
            refused += 1
            _tell(study, trial, None)
            continue
        seen.add(candidate.id)
        batch.append((trial, candidate))
    return batch


def _tell(study: Any, trial: Any, time: float | None) -> None:
    import optuna

    if time is None:
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    else:
        study.tell(trial, time)


async def _confirm_fastest(runtime: Runtime, found: list[tuple[float, Candidate]]) -> Judgement | None:
    """Fully checks the found points from the fastest on, until one passes or none is faster than the best."""
    for time, candidate in sorted(found, key=lambda pair: (pair[0], pair[1].id)):
        best = runtime.run.state.best_ms
        if best is not None and time >= best:
            return None
        judgement = await judge(runtime, candidate)
        if keep_if_better(runtime, candidate, judgement):
            return judgement
    return None
