"""What an author that talks to a model needs from the run it works for: a seam, so that authors know no runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from maxkernel_nb.budget import Budget
from maxkernel_nb.engine.state import RunState
from maxkernel_nb.evaluate.base import Judged
from maxkernel_nb.events import AnyEvent
from maxkernel_nb.task import Candidate, GateName


class Desk(Protocol):
    @property
    def state(self) -> RunState: ...

    @property
    def budget(self) -> Budget: ...

    @property
    def step(self) -> str:
        """The key of the step in progress; conversations are named after it, so that a resumed step finds its own."""
        ...

    async def checkpoint(self) -> None:
        """Holds while the run is paused; raises ``BudgetExceeded`` when a cap is used up."""
        ...

    def record(self, event: AnyEvent) -> None: ...

    async def judge(self, candidate: Candidate, gates: Sequence[GateName]) -> Judged:
        """The one evaluator, as a durable step of the run."""
        ...

    async def ask(self, key: str, question: str) -> str | None:
        """The person's answer; None when this run has nobody to ask."""
        ...
