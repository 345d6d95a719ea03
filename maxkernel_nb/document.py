"""``document(state)``: the one model of what a person sees of a run. Pure: no clock, no IPython, no files."""

from __future__ import annotations

import math
from typing import Literal

from maxkernel_nb import document_model as m
from maxkernel_nb.budget import Budget, parse_budget
from maxkernel_nb.document_diff import diff_view
from maxkernel_nb.document_model import Document
from maxkernel_nb.document_profile import profile_view, size_text, time_text
from maxkernel_nb.events import QuestionAsked, RunOutcome, Spend, Status
from maxkernel_nb.state import CandidateState, RunState
from maxkernel_nb.task import Diagnostic, GateName, Outcome, Verdict

__all__ = ["Document", "document", "shown_candidate"]

_TONES: dict[str, m.Tone] = {
    Outcome.PASS: "good",
    Outcome.FAIL: "bad",
    Outcome.DECLINED: "plain",
    Outcome.INFRASTRUCTURE: "warn",
}
SAYING = 600  # characters of streamed text that are shown
_WORST = (Outcome.FAIL, Outcome.INFRASTRUCTURE, Outcome.PASS, Outcome.DECLINED)


def document(state: RunState) -> Document:
    """The document of ``state``. Deterministic: equal states give equal documents."""
    return Document(
        header=_header(state),
        next=_next(state),
        ended=state.ended,
        outcome=_outcome(state),
        flags=_flags(state),
        steps=_steps(state),
        saying=_saying(state),
        plan=_plan(state),
        diff=diff_view(state),
        checks=_checks(state),
        profile=profile_view(state),
        candidates=_candidates(state),
        meters=_meters(state),
        notes=_notes(state),
        source=_source(state),
    )


def shown_candidate(state: RunState) -> CandidateState | None:
    """The candidate that checks and source are about: the one proposed last, else the best, else the newest."""
    proposal = next(reversed(state.proposals.values()), None)
    key = proposal.candidate if proposal else state.best or next(reversed(state.candidates), None)
    return state.candidates.get(key) if key else None


# -- header ---------------------------------------------------------------------------------------------------------


def _name(state: RunState) -> str:
    return state.task.entry if state.task else "the function"


def _header(state: RunState) -> m.Header:
    status, tone = _status(state)
    headline, detail = _headline(state)
    task = state.task
    return m.Header(
        run_id=state.run_id,
        title=task.name if task else state.run_id,
        mode=state.mode,
        author=state.author,
        status=status,
        tone=tone,
        headline=headline,
        headline_detail=detail,
        evidence=_evidence(state),
        chip=task.chip if task else "",
        elapsed=_duration(state.spend.wall_seconds),
        versions=tuple(m.Fact(label=k, value=v) for k, v in sorted(state.versions.items())),
    )


def _status(state: RunState) -> tuple[str, m.Tone]:
    ended: dict[RunOutcome, m.Tone] = {
        RunOutcome.ACCEPTED: "good",
        RunOutcome.KEPT_REFERENCE: "good",
        RunOutcome.PROPOSED: "ask",
        RunOutcome.REJECTED: "plain",
        RunOutcome.DECLINED: "plain",
        RunOutcome.STOPPED: "plain",
        RunOutcome.FAILED: "bad",
    }
    if state.outcome is not None:
        return str(state.outcome), ended[state.outcome]
    if state.status is Status.WAITING:
        return "waiting for you", "ask"
    return str(state.status), "busy" if state.status is Status.RUNNING else "warn"


def _headline(state: RunState) -> tuple[str, str]:
    times = _times(state)
    if state.outcome is RunOutcome.KEPT_REFERENCE:
        return "XLA's own program is kept", times or "Nothing verified is faster than what XLA compiles."
    if state.outcome is RunOutcome.DECLINED:
        return "Not a computation this author knows", state.reason
    if state.speedup is not None and math.isfinite(state.speedup):
        return _compared(state.speedup), times
    if state.outcome in (RunOutcome.FAILED, RunOutcome.STOPPED):
        return "No kernel yet", times
    return ("Looking for a faster kernel" if not state.ended else "No faster kernel"), times


def _compared(speedup: float) -> str:
    return f"{speedup:.2f}× faster than XLA" if speedup > 1 else f"{1 / speedup:.2f}× slower than XLA"


def _times(state: RunState) -> str:
    before = time_text(state.baseline.modelled_ms) if state.baseline else ""
    if state.best_ms is not None and before and state.outcome is not RunOutcome.KEPT_REFERENCE:
        return f"{before} → {time_text(state.best_ms)}"
    return f"XLA reference: {before}" if before else ""


def _evidence(state: RunState) -> m.Evidence | None:
    best = state.candidates.get(state.best) if state.best else None
    profile = (best.profile if best else None) or state.baseline
    if profile is None:
        return None
    error = f"±{profile.error_pct:.0f} %" if profile.error_pct is not None else ""
    where = "the TPU compiler's schedule" if profile.source == "schedule" else "the compiler's own estimates"
    typical = (
        f" Typical error {error}" + (f" ({profile.error_source})." if profile.error_source else ".") if error else ""
    )
    text = f"Modelled for {profile.chip} from {where}; nothing was measured on a chip.{typical}"
    return m.Evidence(kind="modelled", error=error, text=text)


# -- what to do next ------------------------------------------------------------------------------------------------

_LABELS = {
    "accept": "Accept",
    "reject": "Reject",
    "stop": "Stop",
    "pause": "Pause",
    "unpause": "Continue",
    "undo": "Undo",
}


def _action(state: RunState, intent: str, primary: bool = False, label: str = "") -> m.Action:
    return m.Action(
        intent=intent, label=label or _LABELS[intent], command=f"%maxkernel {intent} {state.run_id}", primary=primary
    )


def _next(state: RunState) -> m.NextAction:
    if state.open_question is not None and not state.ended:
        return _ask(state, state.open_question)
    if state.open_proposal is not None and (state.status is Status.WAITING or state.outcome is RunOutcome.PROPOSED):
        return _decide(state)
    if state.ended:
        return _afterwards(state)
    stop = _action(state, "stop")
    if state.status is Status.PAUSED:
        go_on = _action(state, "unpause", primary=True)
        return m.NextAction(text="Paused before the next step.", actions=(go_on, stop))
    step = next((s.title for s in reversed(state.steps) if not s.done), "")
    doing = f"Working: {step}." if step else "Working."
    return m.NextAction(
        text=f"{doing} Nothing to do yet; the notebook stays free.", actions=(_action(state, "pause"), stop)
    )


def _ask(state: RunState, asked: QuestionAsked) -> m.NextAction:
    answers = tuple(
        m.Action(
            intent="answer",
            label=c.label,
            choice=c.name,
            takes_text=c.takes_text,
            command=_answer_command(state, asked, c.name),
            primary=c.name == asked.default,
        )
        for c in asked.choices
    )
    question = m.QuestionView(id=asked.question, title=asked.title, text=asked.text, editable=asked.editable)
    return m.NextAction(text=asked.title, actions=(*answers, _action(state, "stop")), question=question)


def _answer_command(state: RunState, asked: QuestionAsked, choice: str) -> str:
    """What does the same without the panel: the two magics where they mean this choice, else the run's method."""
    magic = {asked.on_reject: "reject", asked.default: "accept"}.get(choice)
    return f"%maxkernel {magic} {state.run_id}" if magic else f"run.answer({choice!r}, text=...)"


def _decide(state: RunState) -> m.NextAction:
    proposal = state.open_proposal
    assert proposal is not None
    accept, reject = _action(state, "accept", primary=True, label="Accept kernel"), _action(state, "reject")
    stop = () if state.ended else (_action(state, "stop"),)
    return m.NextAction(
        text="Accept or reject the proposed kernel.",
        effect=f"Accepting binds {_name(state)} to the kernel (the reference stays in its .reference) and writes its "
        "source under .maxkernel/. Rejecting leaves everything as it is.",
        actions=(accept, reject, *stop),
    )


def _afterwards(state: RunState) -> m.NextAction:
    run = state.run_id
    if any(p.bound and not p.undone for p in state.proposals.values()):
        undo = _action(state, "undo")
        return m.NextAction(
            text=f"Nothing left to do: {_name(state)} is the kernel now.",
            effect=f"Undo binds {_name(state)} to the reference again.",
            actions=(undo,),
        )
    if state.outcome in (RunOutcome.STOPPED, RunOutcome.FAILED):
        return m.NextAction(text=f"%maxkernel resume {run} continues without repeating finished steps.")
    return m.NextAction(text=f"Nothing to do: {_name(state)} is unchanged.")


def _outcome(state: RunState) -> str:
    if state.outcome is None:
        return ""
    undone = any(p.undone for p in state.proposals.values())
    if state.outcome is RunOutcome.ACCEPTED and undone:
        return f"Accepted, then undone: {_name(state)} is the reference again."
    said = {
        RunOutcome.ACCEPTED: f"Accepted: {_name(state)} is bound to the verified kernel.",
        RunOutcome.REJECTED: f"Rejected: {_name(state)} is unchanged.",
        RunOutcome.PROPOSED: "A verified kernel is proposed and waits for a decision.",
        RunOutcome.KEPT_REFERENCE: "Kept the reference: no verified kernel beats what XLA compiles. "
        "That is a correct result.",
        RunOutcome.DECLINED: f"Declined: {_name(state)} is unchanged.",
        RunOutcome.STOPPED: "Stopped: everything found so far is kept.",
        RunOutcome.FAILED: "Failed: everything found so far is kept.",
    }[state.outcome]
    return _joined(said, state.reason.strip())


def _joined(said: str, reason: str) -> str:
    """Both in one text; the reason alone when it opens with the outcome's own word."""
    word = said.split(":")[0]
    if not reason or reason.startswith(f"{word}:"):
        return reason or said
    return f"{said} {reason[0].upper()}{reason[1:]}" + ("" if reason[-1] in ".!?" else ".")


def _flags(state: RunState) -> tuple[m.Flag, ...]:
    task, flags = state.task, []
    if task and task.weak:
        flags.append(
            m.Flag(
                kind="weak task",
                text="Cheap wrong answers would pass this task's tolerance: "
                f"{', '.join(task.weak)}. A pass proves less than it seems.",
            )
        )
    if task and task.tolerance.loosened:
        limits = [
            f"{n} = {v:g}" for n, v in (("atol", task.tolerance.atol), ("rtol", task.tolerance.rtol)) if v is not None
        ]
        flags.append(
            m.Flag(
                kind="loosened tolerance",
                text=f"Checked with a person's own limits ({', '.join(limits)}), "
                "wider than the reference's own error asks for.",
            )
        )
    shown = shown_candidate(state)
    declined = {v.gate: v.summary for v in shown.verdicts if v.outcome is Outcome.DECLINED} if shown else {}
    for gate in (GateName.COMPILE, GateName.MODEL):
        if gate in declined:
            flags.append(m.Flag(kind=f"no {gate} gate", text=declined[gate]))
            break
    return tuple(flags)


# -- work -----------------------------------------------------------------------------------------------------------


def _steps(state: RunState) -> tuple[m.StepRow, ...]:
    unfinished: Literal["ended", "running"] = "ended" if state.ended else "running"
    return tuple(
        m.StepRow(
            title=s.title, role=s.role, state="done" if s.done else unfinished, summary=s.summary, seconds=s.seconds
        )
        for s in state.steps
    )


def _saying(state: RunState) -> tuple[m.Saying, ...]:
    if state.ended:
        return ()
    talks = [c for c in state.conversations.values() if c.saying and not c.closed]
    return tuple(m.Saying(role=c.role, text=c.saying[-SAYING:]) for c in talks[-3:])


def _notes(state: RunState) -> tuple[m.Note, ...]:
    told = [m.Note(level=n.level, text=n.text) for n in state.notes]
    lessons = [f"Learned: {x.text}" + (f" ({x.evidence})" if x.evidence else "") for x in state.lessons]
    answers = [f"Asked: {x.question}\n{x.answer}" for x in state.explanations]
    return (*told, *(m.Note(level="info", text=text) for text in (*lessons, *answers)))


def _plan(state: RunState) -> m.PlanView | None:
    plan = state.plan
    if plan is None:
        return None
    gain = f"{plan.expected_gain:.2f}×" if plan.expected_gain is not None else ""
    gain += f" ({plan.expected_gain_source})" if gain and plan.expected_gain_source else ""
    tiling = ", ".join(f"{k} = {v}" for k, v in plan.tiling.items())
    pairs = (
        ("Attacks", plan.attacks),
        ("Recipe", plan.recipe),
        ("Grid", plan.grid),
        ("Tiling", tiling),
        ("Memory", plan.memory),
        ("Pipelining", plan.pipelining),
        ("Expected gain", gain),
    )
    facts = tuple(m.Fact(label=k, value=v) for k, v in pairs if v)
    return m.PlanView(strategy=plan.strategy, summary=plan.summary, facts=facts)


def _checks(state: RunState) -> m.ChecksView | None:
    shown = shown_candidate(state)
    if shown is None or not shown.verdicts:
        return None
    gates = tuple(_gate_row(g, vs) for g in GateName if (vs := [v for v in shown.verdicts if v.gate is g]))
    return m.ChecksView(
        candidate=shown.candidate.id,
        verdict=_verdict_sentence(shown.verdicts),
        gates=gates,
        rows=tuple(_check_row(v) for v in shown.verdicts),
    )


def _gate_row(gate: GateName, verdicts: list[Verdict]) -> m.GateRow:
    found = {v.outcome for v in verdicts}
    passed = sum(v.outcome is Outcome.PASS for v in verdicts)
    return m.GateRow(gate=gate, outcome=next(o for o in _WORST if o in found), passed=passed, total=len(verdicts))


def _verdict_sentence(verdicts: tuple[Verdict, ...]) -> str:
    failed = [v for v in verdicts if v.outcome is Outcome.FAIL]
    if failed:
        return f"Failed at {failed[0].gate}: {failed[0].summary}"
    checks = [v for v in verdicts if v.gate is GateName.CHECK and v.outcome is Outcome.PASS]
    cases, seeds = len({v.case for v in checks}), len({v.seed for v in checks})
    if not checks:
        return "Not checked yet."
    return (
        f"Correct on {_count(cases, 'shape case')} and {_count(seeds, 'seed')} ({_count(len(checks), 'comparison')})."
    )


def _count(n: int, word: str) -> str:
    return f"{n} {word}" if n == 1 else f"{n} {word}s"


def _check_row(v: Verdict) -> m.CheckRow:
    findings = tuple(map(_finding, v.diagnostics))
    numbers = tuple(_number(k, x) for k, x in v.numbers.items())
    return m.CheckRow(
        gate=v.gate,
        case=v.case,
        seed="" if v.seed is None else str(v.seed),
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


def _candidates(state: RunState) -> tuple[m.CandidateRow, ...]:
    return tuple(_candidate_row(state, key, c) for key, c in state.candidates.items())


def _candidate_row(state: RunState, key: str, known: CandidateState) -> m.CandidateRow:
    model = [v for v in known.verdicts if v.gate is GateName.MODEL and v.outcome is Outcome.PASS]
    ms = model[-1].numbers.get("modelled_ms") if model else (known.profile.modelled_ms if known.profile else None)
    ms = ms if ms is not None and math.isfinite(ms) and ms > 0 else None
    speedup = f"{state.baseline.modelled_ms / ms:.2f}×" if ms and state.baseline else ""
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


def _source(state: RunState) -> m.SourceView | None:
    shown = shown_candidate(state)
    if shown is None:
        return None
    known = shown.candidate
    best = "Best kernel" if known.id == state.best else "Newest kernel"
    return m.SourceView(candidate=known.id, title=f"{best} {known.id}", text=known.source)


# -- money and time -------------------------------------------------------------------------------------------------


def _meters(state: RunState) -> tuple[m.Meter, ...]:
    spend, caps = state.spend, _caps(state)
    tokens = spend.input_tokens + spend.output_tokens
    rows = (
        ("Candidates judged", spend.judged, caps.judged, str(spend.judged), "{:.0f}"),
        ("Time", spend.wall_seconds, caps.wall_seconds, _duration(spend.wall_seconds), ""),
        ("Tokens", tokens, caps.tokens, f"{tokens:,}", "{:,}"),
        ("Dollars", spend.dollars, caps.dollars, f"${spend.dollars:.2f}", "${:.2f}"),
        *((("Model calls", spend.calls, caps.calls, _calls(spend), "{}"),) if spend.calls or caps.calls else ()),
        ("Chip seconds", spend.chip_seconds, caps.chip_seconds, f"{spend.chip_seconds:.1f}", "{:g}"),
    )
    return tuple(
        m.Meter(
            label=label,
            used=used,
            cap="" if cap is None else (form.format(cap) if form else _duration(cap)),
            share=min(1.0, amount / cap) if cap else None,
        )
        for label, amount, cap, used, form in rows
    )


def _calls(spend: Spend) -> str:
    return f"{spend.calls} ({spend.unpriced_calls} without a known price)" if spend.unpriced_calls else str(spend.calls)


def _caps(state: RunState) -> Budget:
    """The caps recorded with the run; a run without any shows its spend alone."""
    recorded = state.options.get("budget")
    if isinstance(recorded, dict):
        return Budget.from_dict(recorded)
    if isinstance(recorded, str) and recorded:
        return parse_budget(recorded)
    return Budget(judged=None, wall_seconds=None, dollars=None, tokens=None, chip_seconds=None)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
