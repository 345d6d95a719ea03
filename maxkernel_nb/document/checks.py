"""Checks and candidates: what the ladder said, row by row."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from maxkernel_nb.document import model as m
from maxkernel_nb.document.profile import size_text, time_text
from maxkernel_nb.engine.state import CandidateState, RunState
from maxkernel_nb.task import Assessment, Diagnostic, GateName, Outcome, Verdict

_TONES: dict[str, m.Tone] = {
    Outcome.PASS: "good",
    Outcome.FAIL: "bad",
    Outcome.DECLINED: "plain",
    Outcome.INFRASTRUCTURE: "warn",
}
MOST_ROWS = 500
PARTLY = "partly"  # a gate that passed where it judged, and declined to judge the rest
_WORST = (Outcome.FAIL, Outcome.INFRASTRUCTURE, Outcome.PASS, Outcome.DECLINED)


def shown_candidate(state: RunState) -> CandidateState | None:
    """The candidate that checks and source are about: the one proposed last, else the best, else the newest."""
    proposal = next(reversed(state.proposals.values()), None)
    key = proposal.candidate if proposal else state.best or next(reversed(state.candidates), None)
    return state.candidates.get(key) if key else None


def checks_view(state: RunState) -> m.ChecksView | None:
    shown = shown_candidate(state)
    return checks_view_of(shown) if shown is not None else None


def checks_view_of(shown: CandidateState) -> m.ChecksView | None:
    if not shown.verdicts:
        return None
    gates = tuple(_gate_row(g, vs) for g in GateName if (vs := [v for v in shown.verdicts if v.gate is g]))
    return m.ChecksView(
        candidate=shown.candidate.id,
        verdict=_verdict_sentence(shown.verdicts),
        gates=gates,
        rows=tuple(_check_row(v) for v in shown.verdicts),
    )


def _gate_row(gate: GateName, verdicts: list[Verdict]) -> m.GateRow:
    found = Counter(v.outcome for v in verdicts)
    outcome = next(str(o) for o in _WORST if o in found)
    if outcome == Outcome.PASS and found[Outcome.DECLINED]:
        outcome = PARTLY
    others = ((Outcome.FAIL, "failed"), (Outcome.INFRASTRUCTURE, "not judged"), (Outcome.DECLINED, "declined"))
    note = ", ".join(f"{found[o]} {word}" for o, word in others if found[o])
    return m.GateRow(gate=gate, outcome=outcome, passed=found[Outcome.PASS], total=len(verdicts), note=note)


def _verdict_sentence(verdicts: tuple[Verdict, ...]) -> str:
    failed = [v for v in verdicts if v.outcome is Outcome.FAIL]
    if failed:
        return f"Failed at {failed[0].gate}: {failed[0].summary}"
    checks = [v for v in verdicts if v.gate is GateName.CHECK and v.outcome is Outcome.PASS]
    drawn = [v for v in checks if not v.variant]
    cases, seeds = len({v.case for v in drawn}), len({v.seed for v in drawn})
    if not checks:
        return "Not checked yet."
    compared = _count(len(checks), "comparison")
    said = f"Correct on {_count(cases, 'shape case')} and {_count(seeds, 'seed')} ({compared})."
    return " ".join((said, *_left_out(verdicts)))


def _left_out(verdicts: tuple[Verdict, ...]) -> Iterator[str]:
    """What no comparison was made of, by reason: a pass says nothing of it."""
    declined = Counter(v.summary for v in verdicts if v.gate is GateName.CHECK and v.outcome is Outcome.DECLINED)
    for reason, n in declined.items():
        yield f"{_count(n, 'check')} declined: {reason.rstrip('.')}."


def _count(n: int, word: str) -> str:
    return f"{n} {word}" if n == 1 else f"{n} {word}s"


def _check_row(v: Verdict) -> m.CheckRow:
    findings = tuple(map(_finding, v.diagnostics))
    numbers = tuple(_number(k, x) for k, x in v.numbers.items())
    return m.CheckRow(
        gate=v.gate,
        case=v.case,
        seed=", ".join(filter(None, ("" if v.seed is None else str(v.seed), v.variant))),
        outcome=v.outcome,
        tone=_TONES[v.outcome],
        summary=v.summary,
        numbers=numbers,
        findings=findings,
        evidence=v.evidence,
    )


def _number(name: str, value: float) -> m.Fact:
    """The unit is the name's last word: it moves into the value."""
    words, unit = name.replace("_", " "), name.rpartition("_")[2]
    if unit == "bytes":
        return m.Fact(label=words.removesuffix(" bytes"), value=size_text(value))
    if unit == "ms":
        return m.Fact(label=words.removesuffix(" ms"), value=time_text(value))
    whole = math.isfinite(value) and value == int(value) and abs(value) < 1e15
    return m.Fact(label=words, value=f"{int(value):,}" if whole else f"{value:.3g}")


def _finding(d: Diagnostic) -> str:
    where = f"line {d.line}: " if d.line else ""
    return f"{where}{d.message}" + (f" Try: {d.advice}" if d.advice else "")


def candidate_rows(state: RunState) -> tuple[m.CandidateRow, ...]:
    """The newest ``MOST_ROWS``, and the best."""
    rows = list(state.candidates.items())
    early = [(k, c) for k, c in rows[:-MOST_ROWS] if k == state.best]
    kept = early + rows[-MOST_ROWS:][len(early) :] if early else rows[-MOST_ROWS:]
    return tuple(candidate_row(state, key, c) for key, c in kept)


def candidate_row(state: RunState, key: str, known: CandidateState) -> m.CandidateRow:
    model = [v for v in known.verdicts if v.gate is GateName.MODEL and v.outcome is Outcome.PASS]
    ms = model[-1].numbers.get("modelled_ms") if model else (known.profile.modelled_ms if known.profile else None)
    ms = ms if ms is not None and math.isfinite(ms) and ms > 0 else None
    speedup = f"{state.baseline.modelled_ms / ms:.2f}×" if ms and state.baseline else ""
    if (chip := Assessment(candidate=key, verdicts=known.verdicts).measured) is not None:
        ms, speedup = chip.numbers["measured_ms"], f"{chip.numbers['measured_speedup']:.2f}× measured"
    result, tone = _candidate_result(known)
    return m.CandidateRow(
        id=key,
        author=known.candidate.author,
        result=result,
        tone=tone,
        time=time_text(ms) if ms else "",
        ms=ms,
        speedup=speedup,
        params=", ".join(f"{k} = {v}" for k, v in known.candidate.params.items()),
        note=known.candidate.note,
        best=key == state.best,
    )


def _candidate_result(known: CandidateState) -> tuple[str, m.Tone]:
    failed = [v for v in known.verdicts if v.outcome is Outcome.FAIL]
    if failed:
        return f"fails {failed[0].gate}", "bad"
    if any(v.outcome is Outcome.INFRASTRUCTURE for v in known.verdicts):
        return "could not be judged", "warn"
    passed = {v.gate for v in known.verdicts if v.outcome is Outcome.PASS}
    if GateName.CHECK in passed:
        return "verified", "good"
    last = [g for g in GateName if g in passed]
    return (f"passes {last[-1]}, not checked", "plain") if last else ("not judged yet", "plain")
