"""Two candidates of a run beside each other: what they are, what the judge said, how their sources differ."""

from __future__ import annotations

from maxkernel_nb.document import model as m
from maxkernel_nb.document.checks import candidate_row
from maxkernel_nb.document.diff import sources_diff
from maxkernel_nb.document.profile import side_view
from maxkernel_nb.engine.state import CandidateState, RunState
from maxkernel_nb.task import Outcome, Verdict

_MARKS = {Outcome.PASS: "✓", Outcome.FAIL: "✗", Outcome.DECLINED: "–", Outcome.INFRASTRUCTURE: "!"}


def comparison(state: RunState, left: str, right: str) -> m.ComparisonView | None:
    """The two candidates with these ids; None when the run does not know one of them."""
    before, after = state.candidates.get(left), state.candidates.get(right)
    if before is None or after is None:
        return None
    sides = (before, after)
    return m.ComparisonView(
        left=left,
        right=right,
        facts=_facts(state, *sides),
        verdicts=_verdicts(before.verdicts, after.verdicts),
        profile=tuple(side_view(c.candidate.id, c.profile) for c in sides if c.profile is not None),
        diff=sources_diff(before.candidate.source, after.candidate.source, right, f"{right} against {left}"),
    )


def _facts(state: RunState, before: CandidateState, after: CandidateState) -> tuple[m.ComparedRow, ...]:
    rows = [candidate_row(state, known.candidate.id, known) for known in (before, after)]
    names = (("Result", "result"), ("Time", "time"), ("Against XLA", "speedup"), ("Constants", "params"),
             ("Author", "author"), ("Note", "note"))  # fmt: skip
    told = [m.ComparedRow(label=label, left=getattr(rows[0], key), right=getattr(rows[1], key)) for label, key in names]
    if rows[0].ms and rows[1].ms:
        ratio = rows[0].ms / rows[1].ms
        said = f"{max(ratio, 1 / ratio):.2f}× {'faster' if ratio >= 1 else 'slower'}"
        told.insert(2, m.ComparedRow(label="The second against the first", left="", right=said))
    return tuple(row for row in told if row.left or row.right)


def _verdicts(left: tuple[Verdict, ...], right: tuple[Verdict, ...]) -> tuple[m.ComparedRow, ...]:
    """One row a gate, case and seed, in the order they were judged."""
    said = [{_key(v): _said(v) for v in verdicts} for verdicts in (left, right)]
    keys = dict.fromkeys((*said[0], *said[1]))
    return tuple(m.ComparedRow(label=k, left=said[0].get(k, ""), right=said[1].get(k, "")) for k in keys)


def _key(v: Verdict) -> str:
    seed = "" if v.seed is None else f"seed {v.seed}"
    return ", ".join(filter(None, (str(v.gate), v.case, seed, v.variant)))


def _said(v: Verdict) -> str:
    return f"{_MARKS[v.outcome]} {v.outcome}: {v.summary}" if v.summary else f"{_MARKS[v.outcome]} {v.outcome}"
