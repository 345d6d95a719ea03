"""The tester: thinks of inputs that would tell a wrong kernel from a right one."""

from __future__ import annotations

from pydantic import Field

from maxkernel_nb.authors.claude.roles.base import Role, Submission


class Family(Submission):
    """How one floating-point argument is drawn: ``mean + std * N(0, 1)``."""

    argument: str
    mean: float = Field(default=0.0, ge=-1e4, le=1e4)
    std: float = Field(default=1.0, ge=0.0, le=1e4)


class Stress(Submission):
    name: str = Field(description="Two or three words.")
    why: str = Field(description="Which mistake in a kernel this would show.")
    families: list[Family] = Field(min_length=1, max_length=6)


class StressPlan(Submission):
    stresses: list[Stress] = Field(max_length=3, description="At most three; empty when none would tell anything.")


TESTER = Role("tester", StressPlan, "submit_stresses", "Hand in the unusual inputs. Ends your work.",
              max_calls=2)
