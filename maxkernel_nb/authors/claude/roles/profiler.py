"""The profiler: reads the best kernel's profile, names the bottleneck, and says what to attack next."""

from __future__ import annotations

from pydantic import Field

from maxkernel_nb.authors.claude.roles.base import Role, Submission
from maxkernel_nb.authors.claude.roles.planner import PlanDraft


class Attack(Submission):
    bottleneck: str = Field(description="What bounds the best kernel, one sentence with numbers.")
    stop: str = Field(default="", description="Only when nothing worth trying is left: why. Then plan is null.")
    plan: PlanDraft | None = Field(default=None, description="The next kernel to write.")
    lesson: str = Field(default="", description="A short general rule learned from the attempts, or empty.")


PROFILER = Role("profiler", Attack, "submit_attack", "Hand in the bottleneck and the next plan. Ends your work.",
                tools=("read_exemplar", "read_attempt", "look_up_api", "ask_person"), max_calls=2)
