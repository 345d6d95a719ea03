"""The planner: how a kernel is to be fast, before a line of it is written."""

from __future__ import annotations

from pydantic import Field

from maxkernel_nb.authors.claude.roles.base import Role, Submission
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import Plan


class PlanDraft(Submission):
    strategy: str = Field(description="A few words, e.g. 'tiled matmul with fused GELU'.")
    summary: str = Field(description="The plan in Markdown, one or two short paragraphs, for a person to approve.")
    attacks: str = Field(default="", description="The bound it attacks: hbm traffic, mxu utilisation ...")
    tiling: dict[str, int] = Field(default_factory=dict, description="Block sizes by constant name, e.g. BLOCK_M: 512.")
    grid: str = Field(default="", description="Grid axes in order, the reduction axis last.")
    memory: str = Field(default="", description="What lives where: blocks, scratch, and the VMEM they need in MiB.")
    pipelining: str = Field(default="", description="What is fetched while what is computed.")
    expected_gain: float | None = Field(default=None, gt=0, description="Expected speedup over XLA, or null.")
    expected_gain_reason: str = Field(default="", description="The arithmetic behind expected_gain.")
    nothing_to_win: str = Field(default="", description="Fill only when no kernel can beat XLA here: say why.")

    def plan(self) -> Plan:
        """Raises ``Declined`` with the reason when there is nothing to win."""
        if self.nothing_to_win:
            raise Declined(f"Claude sees nothing to win: {self.nothing_to_win}")
        return Plan(
            strategy=self.strategy, summary=self.summary, attacks=self.attacks, tiling=self.tiling, grid=self.grid,
            memory=self.memory, pipelining=self.pipelining, expected_gain=self.expected_gain,
            expected_gain_source=self.expected_gain_reason,
        )


PLANNER = Role("planner", PlanDraft, "submit_plan", "Hand in the plan. Ends your work.",
               tools=("look_up_api", "read_exemplar", "read_attempt", "ask_person"))
