"""The reviewer reads a kernel for risks before anything is spent on judging it, where the author has one."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from maxkernel_nb.authors.pool import Review
from maxkernel_nb.engine.runtime import Runtime
from maxkernel_nb.task import Assessment, Candidate, GateName, Outcome, Plan, Verdict


async def review(runtime: Runtime, candidate: Candidate) -> Review | None:
    """None when this run's author has no reviewer."""
    author: Any = runtime.author
    if getattr(author, "review", None) is None:
        return None
    return await runtime.step(
        f"review:{candidate.id}", "reviewer", "Read the kernel for risks",
        lambda: author.review(runtime.view, candidate), Review,
        lambda r: "fix first" if r.fix_first else f"{len(r.risks)} risks named",
    )


async def review_first(runtime: Runtime, plan: Plan, writing: Awaitable[Candidate]) -> Candidate:
    """The written candidate, repaired once when the settings ask for a review and the reviewer says so."""
    candidate = await writing
    if not runtime.author.settings.review:  # type: ignore[attr-defined]
        return candidate
    found = await review(runtime, candidate)
    if found is None or not found.fix_first:
        return candidate
    return await runtime.author.repair(runtime.view, plan, candidate, as_assessment(candidate, found))


def as_assessment(candidate: Candidate, found: Review) -> Assessment:
    """The risks in the form a debugger reads. It is no verdict of the judge and is journaled as none."""
    opinion = Verdict(gate=GateName.SCREEN, outcome=Outcome.FAIL, summary="a reviewer's opinion, not judged yet",
                      diagnostics=found.risks)
    return Assessment(candidate=candidate.id, verdicts=(opinion,), complete=False)
