"""The proposal's diff: hunks of the recorded patch with a little of the baseline around each."""

from __future__ import annotations

from maxkernel_nb.document import model as m
from maxkernel_nb.engine.state import ProposalState, RunState
from maxkernel_nb.patches import Hunk, Patch, make_patch

CONTEXT = 3


def diff_view(state: RunState) -> m.DiffView | None:
    asked = state.open_question
    if asked is not None and asked.patch is not None:
        return _diff(asked.patch, asked.question, "", asked.title, open=True)
    proposal = next(reversed(state.proposals.values()), None)
    if proposal is None:
        return None
    return _diff(
        proposal.patch,
        proposal.id,
        proposal.candidate,
        proposal.claim,
        open=proposal.decision is None,
        decision=_decision(proposal),
    )


def sources_diff(before: str, after: str, candidate: str, claim: str) -> m.DiffView:
    """Two sources that nobody decides about."""
    return _diff(make_patch(before, after), "", candidate, claim, open=False)


def _diff(patch: Patch, key: str, candidate: str, claim: str, *, open: bool, decision: str = "") -> m.DiffView:
    return m.DiffView(
        proposal=key,
        candidate=candidate,
        claim=claim,
        open=open,
        decision=decision,
        added=sum(len(h.new) for h in patch.hunks),
        removed=sum(len(h.old) for h in patch.hunks),
        hunks=hunk_views(patch),
    )


def _decision(proposal: ProposalState) -> str:
    taken = proposal.decision
    if taken is None:
        return ""
    what = "Accepted" if taken.accepted else "Rejected"
    if taken.accepted and taken.hunks is not None:
        what += f" in part (hunks {', '.join(map(str, taken.hunks)) or 'none'})"
    where = f", saved in {proposal.applied_path}" if proposal.applied_path else ""
    comment = f": “{taken.comment}”" if taken.comment else ""
    return f"{what} by {taken.via}{where}{', undone since' if proposal.undone else ''}{comment}."


def hunk_views(patch: Patch) -> tuple[m.HunkView, ...]:
    """Every hunk once, in order, with up to ``CONTEXT`` unchanged lines on each side, none shown twice."""
    baseline = patch.baseline.splitlines()
    views, shown, offset = [], 0, 0
    for at, hunk in enumerate(patch.hunks):
        following = patch.hunks[at + 1].start if at + 1 < len(patch.hunks) else len(baseline)
        first, last = max(shown, hunk.start - CONTEXT), min(hunk.stop + CONTEXT, following)
        views.append(_view(hunk, baseline, first, last, offset))
        shown, offset = last, offset + len(hunk.new) - len(hunk.old)
    return tuple(views)


def _view(hunk: Hunk, baseline: list[str], first: int, last: int, offset: int) -> m.HunkView:
    lines = [f" {text}" for text in baseline[first : hunk.start]]
    lines += [f"-{_bare(t)}" for t in hunk.old]
    lines += [f"+{_bare(t)}" for t in hunk.new]
    lines += [f" {text}" for text in baseline[hunk.stop : last]]
    old, new = sum(x[0] != "+" for x in lines), sum(x[0] != "-" for x in lines)
    header = f"@@ -{first + bool(old)},{old} +{first + offset + bool(new)},{new} @@"
    return m.HunkView(number=hunk.number, header=header, old=first + 1, new=first + offset + 1, lines=tuple(lines))


def _bare(line: str) -> str:
    return line.rstrip("\r\n")
