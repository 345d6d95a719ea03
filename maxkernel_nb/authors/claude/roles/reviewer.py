"""The reviewer: reads a kernel for risks before anything is spent on judging it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from maxkernel_nb.authors.claude.roles.base import Role, Submission


class Risk(Submission):
    kind: str = Field(description="Two or three words, e.g. 'ragged tail', 'VMEM', 'accumulator'.")
    line: int = Field(default=0, ge=0)
    why: str
    advice: str = ""


class ReviewDraft(Submission):
    verdict: Literal["judge it", "fix first"]
    risks: list[Risk] = Field(default_factory=list, max_length=6)


REVIEWER = Role("reviewer", ReviewDraft, "submit_review", "Hand in the review. Ends your work.",
                tools=("look_up_api",), max_calls=2)
