"""A run as text: one deterministic line for ``repr`` and ``text/plain``, and a fuller one for terminals."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from maxkernel_nb.document.model import Document

_MARKS = {"done": "✓", "running": "…", "ended": "–", "pass": "✓", "fail": "✗", "declined": "–", "infrastructure": "!",
          "partly": "◐"}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def one_line(doc: Document) -> str:
    """Run id and status; no addresses, no times, so that stored outputs compare equal."""
    return plain(f"maxkernel run {doc.header.run_id}: {doc.header.status}").replace("\n", " ")


def plain(text: str) -> str:
    """``text`` without control characters, terminal escapes and bidirectional overrides (shown as ``?``)."""
    return _CONTROL.sub("?", text)


def render_text(doc: Document, width: int = 100) -> str:
    """The document for a terminal: no colours, no cursor movement, lines of at most ``width`` where prose allows."""
    head = doc.header
    error = f" {head.evidence.error}".rstrip() if head.evidence else ""
    badge = f"  [{head.evidence.kind}{error}]" if head.evidence else ""
    parts = [
        f"{one_line(doc)}\n{head.title} on {head.chip}, {head.mode} by {head.author}\n{head.headline}{badge}"
        + (f"\n{head.headline_detail}" if head.headline_detail else ""),
        _wrap(doc.outcome, width),
        _rows((f"! {flag.kind}", flag.text) for flag in doc.flags),
        _titled("Next", _next(doc, width)),
        _titled("Steps", _rows((f"{_MARKS[s.state]} {s.title}", s.summary) for s in doc.steps)),
        _titled("Plan", _plan(doc, width)),
        _titled("Checks", _checks(doc, width)),
        _titled("Profile", _profile(doc)),
        _titled("Search", _graph(doc, width)),
        _titled("Proposal", _diff(doc)),
        _titled("Spend", _rows((x.label, x.used + (f" of {x.cap}" if x.cap else "")) for x in doc.meters)),
        _titled("Notes", "\n".join(f"{n.level}: {n.text}" for n in doc.notes)),
    ]
    return plain("\n\n".join(p for p in parts if p)) + "\n"


def _wrap(text: str, width: int) -> str:
    return "\n".join(textwrap.fill(line, width) for line in text.splitlines())


def _titled(title: str, body: str) -> str:
    return f"{title}\n{textwrap.indent(body, '  ')}" if body else ""


def _rows(pairs: Iterable[tuple[str, str]]) -> str:
    rows = list(pairs)
    wide = min(40, max((len(left) for left, _ in rows), default=0))
    return "\n".join(f"{left:<{wide}}  {right}".rstrip() for left, right in rows)


def _next(doc: Document, width: int) -> str:
    buttons = _rows((a.label, a.command) for a in doc.next.actions)
    return "\n".join(x for x in (_wrap(doc.next.text, width), _wrap(doc.next.effect, width), buttons) if x)


def _plan(doc: Document, width: int) -> str:
    if doc.plan is None:
        return ""
    facts = _rows((f.label, f.value) for f in doc.plan.facts)
    return "\n".join(x for x in (doc.plan.strategy, _wrap(doc.plan.summary, width), facts) if x)


def _checks(doc: Document, width: int) -> str:
    if doc.checks is None:
        return ""
    gates = "   ".join(f"{_MARKS[g.outcome]} {g.gate} {g.passed}/{g.total}{_aside(g.note)}" for g in doc.checks.gates)
    bad = [f"✗ {r.gate} {r.case} seed {r.seed}: {r.summary}" for r in doc.checks.rows if r.outcome == "fail"]
    found = [f"  {text}" for r in doc.checks.rows if r.outcome == "fail" for text in r.findings]
    return "\n".join((_wrap(doc.checks.verdict, width), gates, *bad, *found))


def _aside(note: str) -> str:
    return f" ({note})" if note else ""


def _profile(doc: Document) -> str:
    if doc.profile is None:
        return ""
    return (
        doc.profile.caption
        + "\n"
        + _rows(
            (
                s.label,
                s.time if s.evidence == "measured" else f"{s.time}, bound by {s.bound or '?'}"
                + (f", ±{s.error_pct:.0f} %" if s.error_pct is not None else ""),
            )
            for s in doc.profile.sides
        )
        + "".join(f"\n  {sentence}" for sentence in doc.profile.difference)
    )


def _graph(doc: Document, width: int) -> str:
    if doc.graph is None:
        return ""
    rows = sorted((n for n in doc.graph.nodes if n.ms), key=lambda n: n.ms or 0.0)[:10]
    listed = _rows((f"{n.sign} {n.id}", f"{n.time}  {n.against}  {n.how}  {n.params or n.idea}") for n in rows)
    return "\n".join(x for x in (_wrap(doc.graph.caption, width), listed) if x)


def _diff(doc: Document) -> str:
    if doc.diff is None:
        return ""
    diff = doc.diff
    hunks = [f"{h.header}\n" + "\n".join(h.lines) for h in diff.hunks]
    return "\n".join(x for x in (diff.claim, diff.decision, f"+{diff.added} -{diff.removed}", *hunks) if x)
