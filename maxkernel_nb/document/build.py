"""``document(state)``: the one model of what a person sees of a run. Pure: no clock, no IPython, no files."""

from __future__ import annotations

import math
from typing import Literal

from maxkernel_nb.budget import Budget, parse_budget
from maxkernel_nb.document import model as m
from maxkernel_nb.document.checks import MOST_ROWS, candidate_rows, checks_view, shown_candidate
from maxkernel_nb.document.diff import diff_view
from maxkernel_nb.document.graph import graph_view
from maxkernel_nb.document.model import Document
from maxkernel_nb.document.next_action import function_name, next_action
from maxkernel_nb.document.profile import profile_view, time_text
from maxkernel_nb.engine.state import RunState
from maxkernel_nb.events import RunOutcome, Spend, Status
from maxkernel_nb.task import GateName, Outcome

__all__ = ["Document", "document", "shown_candidate"]

SAYING = 600  # characters of streamed text that are shown


def document(state: RunState, away: str = "") -> Document:
    """The document of ``state``. Deterministic: equal states give equal documents.

    ``away``: this kernel does not drive the run, and what to do about that (``next_action.away``).
    """
    return Document(
        header=_header(state, away),
        next=m.NextAction(text=away) if away else next_action(state),
        ended=state.ended,
        outcome=_outcome(state),
        flags=_flags(state),
        steps=_steps(state),
        saying=_saying(state),
        plan=_plan(state),
        diff=diff_view(state),
        checks=checks_view(state),
        profile=profile_view(state),
        candidates=candidate_rows(state),
        meters=_meters(state),
        notes=_notes(state),
        source=_source(state),
        graph=graph_view(state),
        trimmed=_trimmed(state),
    )


def _trimmed(state: RunState) -> tuple[str, ...]:
    """A long search's lists are not even built in full: what nobody can read costs a second every time it changes."""
    parts = [(name, len(rows)) for name, rows in (("candidates", state.candidates), ("steps", state.steps))]
    return tuple(f"Of {n:,} {name} the newest {MOST_ROWS} are listed." for name, n in parts if n > MOST_ROWS)


# -- header ---------------------------------------------------------------------------------------------------------


def _header(state: RunState, away: str) -> m.Header:
    status, tone = _status(state)
    if away and not state.ended:
        status, tone = "interrupted", "warn"
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
    if state.proposals and _checked(state):
        return "Checked kernel, speed unknown", times or "Without a TPU compiler no time can be modelled."
    if state.outcome in (RunOutcome.FAILED, RunOutcome.STOPPED):
        return "No kernel yet", times
    return ("Looking for a faster kernel" if not state.ended else "No faster kernel"), times


def _checked(state: RunState) -> bool:
    shown = shown_candidate(state)
    found = {v.outcome for v in shown.verdicts if v.gate is GateName.CHECK} if shown else set()
    return Outcome.PASS in found and Outcome.FAIL not in found


def _compared(speedup: float) -> str:
    return f"{speedup:.2f}× faster than XLA" if speedup > 1 else f"{1 / speedup:.2f}× slower than XLA"


def _times(state: RunState) -> str:
    if state.measured is not None and state.outcome is not RunOutcome.KEPT_REFERENCE:
        return f"{time_text(state.measured.reference_ms)} → {time_text(state.measured.ms)}"
    before = time_text(state.baseline.modelled_ms) if state.baseline else ""
    if state.best_ms is not None and before and state.outcome is not RunOutcome.KEPT_REFERENCE:
        return f"{before} → {time_text(state.best_ms)}"
    return f"XLA reference: {before}" if before else ""


def _evidence(state: RunState) -> m.Evidence | None:
    if state.measured is not None:
        return _measured(state)
    if not state.compared:
        return None
    profile, off = state.compared[-1], state.model_error_pct
    error = f"±{off:.0f} %" if off is not None else ""
    where = "the TPU compiler's schedule" if profile.source == "schedule" else "the compiler's own estimates"
    typical = f" {_typical(state)}{_calibration(profile.error_source)}." if error else ""
    text = f"Modelled for {profile.chip} from {where}; nothing was measured on a chip.{typical}"
    return m.Evidence(kind="modelled", error=error, text=text)


def _typical(state: RunState) -> str:
    """The one figure beside the headline, and where two programs are compared, what it is the larger of."""
    errors = [f"{p.error_pct:.0f}" for p in state.compared if p.error_pct is not None]
    of_two = f", the larger of XLA's program's ({errors[0]} %) and the kernel's ({errors[1]} %)" if errors[1:] else ""
    return f"Typical error ±{state.model_error_pct:.0f} %{of_two}"


def _calibration(source: str) -> str:
    return f"; checked against {source}" if source else ""


def _measured(state: RunState) -> m.Evidence:
    found, chip = state.measured, state.task.chip if state.task else "the chip"
    assert found is not None
    interval = f"{found.low:.2f}–{found.high:.2f}×"
    text = (
        f"Measured on {chip}: device time from profiler traces, the kernel in turn with XLA's program, on inputs not "
        f"used before. 95 % interval of the speedup: {interval}. Profiles below are modelled where they say so."
    )
    return m.Evidence(kind="measured", error=interval, text=text)


# -- how it ended ------------------------------------------------------------------------------------------------


def _outcome(state: RunState) -> str:
    if state.outcome is None:
        return ""
    undone = any(p.undone for p in state.proposals.values())
    if state.outcome is RunOutcome.ACCEPTED and undone:
        return f"Accepted, then undone: {function_name(state)} is the reference again."
    said = {
        RunOutcome.ACCEPTED: f"Accepted: {function_name(state)} is bound to the verified kernel.",
        RunOutcome.REJECTED: f"Rejected: {function_name(state)} is unchanged.",
        RunOutcome.PROPOSED: "A verified kernel is proposed and waits for a decision.",
        RunOutcome.KEPT_REFERENCE: "Kept the reference: no verified kernel beats what XLA compiles. "
        "That is a correct result.",
        RunOutcome.DECLINED: f"Declined: {function_name(state)} is unchanged.",
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
        for s in state.steps[-MOST_ROWS:]
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
        ("Dollars", spend.dollars, caps.dollars, f"{spend.dollars:.2f}", "{:.2f}"),  # no sign: MathJax reads $ pairs
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
