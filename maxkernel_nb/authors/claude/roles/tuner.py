"""The tuner: proposes which values of a kernel's constants are worth trying."""

from __future__ import annotations

from pydantic import Field, field_validator

from maxkernel_nb.authors.claude.roles.base import Role, Submission


class Axis(Submission):
    constant: str
    values: list[int] = Field(min_length=1, max_length=8)

    @field_validator("values")
    @classmethod
    def _positive(cls, values: list[int]) -> list[int]:
        if any(v <= 0 for v in values):
            raise ValueError("values must be positive")
        return values


class SpaceDraft(Submission):
    axes: list[Axis] = Field(max_length=5)
    reason: str = Field(description="One sentence.")


TUNER = Role("tuner", SpaceDraft, "submit_space", "Hand in the values to try. Ends your work.",
             max_calls=2)
