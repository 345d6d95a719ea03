"""Brings a candidate before the ladder, journals what comes back, and knows which kernel is the best so far."""

from __future__ import annotations

from collections.abc import Sequence

from maxkernel_nb import events as ev
from maxkernel_nb.engine.runtime import Runtime
from maxkernel_nb.engine.state import RunState
from maxkernel_nb.evaluate.base import ALL_GATES, Judged
from maxkernel_nb.events import Spend
from maxkernel_nb.task import Candidate, GateName, Verdict

_TIE = 0.003  # relative; far below the model's own error


async def judge(runtime: Runtime, candidate: Candidate, gates: Sequence[GateName] = ALL_GATES) -> Judged:
    """One durable step a candidate and gate set."""
    runtime.run.emit(ev.CandidateAdded(candidate=candidate))
    key = f"judge:{candidate.id}:{'+'.join(gates)}"

    async def work() -> Judged:
        judged = await runtime.evaluator.judge(
            runtime.task, candidate, gates, on_verdict=lambda verdict: _record(runtime, candidate, verdict)
        )
        if (seconds := judged.assessment.chip_seconds) > 0:
            runtime.spent(Spend(chip_seconds=round(seconds, 3)), what=key)
        if judged.profile is not None:
            runtime.run.emit(ev.CandidateProfiled(candidate=candidate.id, profile=judged.profile))
        if judged.measured is not None:
            runtime.run.emit(ev.CandidateMeasured(candidate=candidate.id, profiles=judged.measured))
        return judged

    title = f"{'Judge' if GateName.CHECK in gates else 'Try'} {_described(candidate)}"
    return await runtime.step(key, "tester", title, work, Judged, summary=_summary, costs=Spend(judged=1))


def _described(candidate: Candidate) -> str:
    """By its constants where it has any, for those tell tuned candidates apart."""
    constants = ", ".join(f"{name} {value}" for name, value in candidate.params.items())
    return constants or candidate.note or candidate.id


def _record(runtime: Runtime, candidate: Candidate, verdict: Verdict) -> None:
    runtime.run.emit(ev.VerdictReached(candidate=candidate.id, verdict=verdict))


def _summary(judgement: Judged) -> str:
    failed = judgement.assessment.failed
    if failed:
        return f"{failed[0].gate}: {failed[0].summary}"
    time, measured = judgement.assessment.modelled_ms, timing(judgement)
    if measured is not None:
        return f"{measured.ms:.4g} ms measured, {measured.speedup:.2f}x"
    return f"{time:.3f} ms modelled" if time is not None else "passed"


def timing(judgement: Judged) -> ev.Timing | None:
    """What a chip measured, None where none did."""
    verdict = judgement.assessment.measured
    if verdict is None:
        return None
    n = verdict.numbers
    return ev.Timing(ms=n["measured_ms"], reference_ms=n["reference_measured_ms"], speedup=n["measured_speedup"],
                     low=n["speedup_low"], high=n["speedup_high"])


def speedup(runtime: Runtime, modelled_ms: float | None) -> float | None:
    """Modelled time of the XLA reference over the candidate's, on the same chip model; None without a compiler."""
    baseline = runtime.run.state.baseline
    return baseline.modelled_ms / modelled_ms if baseline is not None and modelled_ms else None


def keep_if_better(runtime: Runtime, candidate: Candidate, judgement: Judged) -> bool:
    """A verified candidate replaces the best only when it is faster (or there is none yet); ties go to simpler code."""
    if not judgement.assessment.correct:
        return False
    state, time, measured = runtime.run.state, judgement.assessment.modelled_ms, timing(judgement)
    if state.best is not None and not _better(state, candidate, time, measured):
        return False
    gain = measured.speedup if measured is not None else speedup(runtime, time)
    runtime.run.emit(ev.BestChanged(candidate=candidate.id, modelled_ms=time, speedup=gain, measured=measured))
    return True


def _better(state: RunState, candidate: Candidate, time: float | None, measured: ev.Timing | None) -> bool:
    """Measured against measured, else modelled against modelled; never one against the other."""
    assert state.best is not None
    if measured is not None and state.measured is not None:
        return measured.speedup > state.measured.high  # less is within what was measured
    if time is None or state.best_ms is None:
        return time is not None
    if abs(time - state.best_ms) > _TIE * state.best_ms:
        return time < state.best_ms
    best = state.candidates[state.best].candidate
    lines, best_lines = candidate.source.count("\n"), best.source.count("\n")
    return lines < best_lines or (lines == best_lines and time < state.best_ms)
