"""Verdicts, profiles and the history of a run as text for a model: capped by structure, no finding cut in two."""

from __future__ import annotations

from maxkernel_nb.engine.state import CandidateState, RunState
from maxkernel_nb.task import Diagnostic, GateName, Outcome, Verdict
from maxkernel_nb.tpu.explain import explain
from maxkernel_nb.tpu.profiles import OpProfile, ScheduleProfile

_FINDINGS = 5  # shown in full
_CASES = 3
_OPS = 6
_ATTEMPTS = 10
_MESSAGE_LINES = 12


def whole_lines(text: str, limit: int) -> str:
    """At most ``limit`` lines: the first two thirds and the end, with a note of how many lie between."""
    lines = text.splitlines()
    if len(lines) <= limit:
        return text
    head = max(1, limit * 2 // 3)
    tail = limit - head
    return "\n".join([*lines[:head], f"... {len(lines) - limit} lines left out ...", *lines[len(lines) - tail:]])


def verdicts_text(verdicts: tuple[Verdict, ...]) -> str:
    """One paragraph a gate; passed cases in one line, failed ones with numbers and findings."""
    if not verdicts:
        return "Not judged yet."
    parts = [_gate_text(gate, [v for v in verdicts if v.gate is gate]) for gate in GateName]
    return "\n".join(p for p in parts if p)


def _gate_text(gate: GateName, verdicts: list[Verdict]) -> str:
    if not verdicts:
        return ""
    bad = [v for v in verdicts if v.outcome is not Outcome.PASS]
    if not bad:
        cases = {v.case for v in verdicts if v.case}
        return f"{gate}: pass" + (f" on {', '.join(sorted(cases))}" if cases else "") + _numbers(verdicts[-1])
    shown = [_bad_text(v) for v in bad[:_CASES]]
    more = f"\n  ... and {len(bad) - _CASES} more verdicts like these" if len(bad) > _CASES else ""
    return f"{gate}: {bad[0].outcome}\n" + "\n".join(shown) + more


def _bad_text(verdict: Verdict) -> str:
    seed = f", seed {verdict.seed}" if verdict.seed is not None else ""
    where = f" [{verdict.case}{seed}]" if verdict.case else ""
    lines = [f"  {whole_lines(verdict.summary, _MESSAGE_LINES)}{where}{_numbers(verdict)}"]
    lines += [_finding(d) for d in verdict.diagnostics[:_FINDINGS]]
    if len(verdict.diagnostics) > _FINDINGS:
        lines.append(f"  ... and {len(verdict.diagnostics) - _FINDINGS} more findings")
    return "\n".join(lines)


def _finding(found: Diagnostic) -> str:
    line = f" (line {found.line})" if found.line else ""
    advice = f"\n    advice: {found.advice}" if found.advice else ""
    return f"  - {found.kind}{line}: {whole_lines(found.message, _MESSAGE_LINES)}{advice}"


def _numbers(verdict: Verdict) -> str:
    return " (" + ", ".join(f"{k}={v:.4g}" for k, v in verdict.numbers.items()) + ")" if verdict.numbers else ""


def profile_text(profile: ScheduleProfile | None) -> str:
    """Time, bound, the ops that take the most of it, and the true bottleneck with what to try."""
    if profile is None:
        return "No profile: there is no TPU compiler here, speed is unknown."
    head = (f"{profile.modelled_ms:.4g} ms modelled on {profile.chip}; roofline {profile.roofline_ms:.4g} ms; "
            f"bound by {profile.bound_by or 'unknown'}; {profile.flops:.4g} FLOPs; {profile.hbm_bytes:.4g} HBM bytes.")
    ops = sorted(profile.ops, key=lambda op: -op.modelled_ms)
    lines = [_op_text(op) for op in ops[:_OPS]]
    if len(ops) > _OPS:
        rest = sum(op.modelled_ms for op in ops[_OPS:])
        lines.append(f"  ... {len(ops) - _OPS} smaller ops, together {rest:.4g} ms")
    told = explain(profile).splitlines()[1:] if profile.ops else [f"Note: {note}" for note in profile.notes[:3]]
    return "\n".join([head, *lines, *told])


def _op_text(op: OpProfile) -> str:
    used = sorted(op.utilisation.items(), key=lambda item: -item[1])[:4]
    units = ", ".join(f"{unit} {share:.0%}" for unit, share in used)
    extra = f"; spills {op.spills}, fills {op.fills}" if op.spills or op.fills else ""
    vmem = f"; VMEM {op.vmem_bytes / 2**20:.1f} MiB" if op.vmem_bytes else ""
    return (f"  {op.name} ({op.kind}): {op.modelled_ms:.4g} ms = max(compute {op.compute_ms:.4g}, memory "
            f"{op.memory_ms:.4g}); bound by {op.bound_by or '?'}" + (f"; {units}" if units else "") + extra + vmem)


def attempts_text(state: RunState) -> str:
    """One line an attempt, the newest last; tuning points of one kernel are summed up in one line."""
    full = [c for c in state.candidates.values() if not _is_tuning_point(c)]
    points = len(state.candidates) - len(full)
    lines = [_attempt_line(state, c) for c in full[-_ATTEMPTS:]]
    if len(full) > _ATTEMPTS:
        lines.insert(0, f"({len(full) - _ATTEMPTS} older attempts left out)")
    if points:
        lines.append(f"({points} settings of tunable constants were tried besides)")
    return "\n".join(lines) or "None yet."


def _is_tuning_point(attempt: CandidateState) -> bool:
    return bool(attempt.verdicts) and not any(v.gate is GateName.CHECK for v in attempt.verdicts) and all(
        v.outcome is Outcome.PASS for v in attempt.verdicts
    )


def _attempt_line(state: RunState, attempt: CandidateState) -> str:
    made = attempt.candidate
    failed = next((v for v in attempt.verdicts if v.outcome is Outcome.FAIL), None)
    time = next((v.numbers.get("modelled_ms") for v in attempt.verdicts if v.gate is GateName.MODEL), None)
    if failed is not None:
        said = f"failed {failed.gate}: {whole_lines(failed.summary, 2)}"
    else:
        said = f"{time:.4g} ms modelled" if time is not None else "passed what was asked"
    best = " [best so far]" if made.id == state.best else ""
    return f"- {made.id} by {made.author}{best}: {made.note or 'no note'}; {said}"


def lessons_text(state: RunState) -> str:
    lines = [f"- {x.text}" + (f" ({x.evidence})" if x.evidence else "") for x in state.lessons[-12:]]
    return "\n".join(lines) or "None yet."
