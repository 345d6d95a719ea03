"""Where a chip measured the best kernel, those that the model cannot tell from it are measured too.

The model chooses which: points faster than the best, or slower by no more than the model's own error. The chip decides,
as long as its seconds in the budget last; what is left keeps its modelled order.
"""

from __future__ import annotations

from collections.abc import Sequence

from maxkernel_nb.agents.judge import keep_if_better
from maxkernel_nb.agents.tester import judge_fully
from maxkernel_nb.engine.runtime import Runtime
from maxkernel_nb.engine.state import RunState
from maxkernel_nb.task import Assessment, Candidate

MOST = 4  # kernels measured beside the best
UNKNOWN_PCT = 10.0  # the model's error where it states none


async def measure_likely(runtime: Runtime, found: Sequence[tuple[float, Candidate]]) -> int:
    """``found``: modelled ms and candidates. Gives how many were measured; none where the best was not."""
    state = runtime.run.state
    if state.measured is None or state.best_ms is None:
        return 0
    slowest = state.best_ms * (1 + _error_pct(state) / 100)
    likely = sorted(((ms, c) for ms, c in found if ms <= slowest), key=lambda pair: (pair[0], pair[1].id))
    measured = 0
    for place, (_, candidate) in enumerate(likely):
        if was_measured(runtime.run.state, candidate.id):
            continue
        if measured == MOST or _used_up(runtime, len(likely) - place):
            break
        judged = await judge_fully(runtime, candidate)
        keep_if_better(runtime, candidate, judged)
        measured += judged.assessment.measured is not None
    return measured


def was_measured(state: RunState, key: str) -> bool:
    known = state.candidates.get(key)
    return known is not None and Assessment(candidate=key, verdicts=known.verdicts).measured is not None


def _error_pct(state: RunState) -> float:
    profile = state.candidates[state.best].profile if state.best else None
    return UNKNOWN_PCT if profile is None or profile.error_pct is None else profile.error_pct


def _used_up(runtime: Runtime, left: int) -> bool:
    """Whether another measurement, at the price of those before, would go beyond the budget; says so."""
    state, budget = runtime.run.state, runtime.settings.budget
    price = state.spend.chip_seconds / max(1, sum(was_measured(state, key) for key in state.candidates))
    seconds = budget.chip_seconds_left(state.spend)
    if seconds is not None and seconds < price:
        runtime.note(
            f"{left} more kernels are as fast as the best by the model and were not measured: a measurement takes "
            f"about {price:.3g} s and {seconds:.3g} chip seconds are left; raise them with --budget.", "warning",
        )
        return True
    return budget.judged_left(state.spend) == 0
