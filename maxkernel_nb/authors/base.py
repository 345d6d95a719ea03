"""The contract of an author: who fills the sub-agents' roles for a task.

In order, a mode calls ``plan`` once, ``implement`` once per plan, the ladder, ``repair`` after a failed verdict,
``tuning_space`` and ``retune`` while tuning. An author must be deterministic given the same arguments (or the same
model replies). It may raise ``Declined`` from any method, with the reason. Slow authors are coroutines throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from maxkernel_nb.task import Assessment, Candidate, KernelTask, Plan
from maxkernel_nb.tpu.profiles import ScheduleProfile
from maxkernel_nb.values import Value


@dataclass(frozen=True)
class TaskView:
    """What an author may see.

    ``trace(case_name)`` gives the reference's closed jaxpr for a case (abstract inputs; no values), or raises
    ``TaskError`` when the live function is gone (a resumed run whose cell was not re-run).
    ``baseline`` is the XLA-compiled reference's profile on the timing case, or None without a TPU compiler.
    """

    task: KernelTask
    trace: Callable[[str], Any] = field(repr=False)
    baseline: ScheduleProfile | None = None


class TuningSpace(Value):
    """Values to try for each tunable constant, and full points known to be good, best guess first."""

    axes: dict[str, tuple[int, ...]]
    seeds: tuple[dict[str, int], ...] = ()


class Author(Protocol):
    name: str

    async def plan(self, view: TaskView) -> Plan: ...

    async def implement(self, view: TaskView, plan: Plan) -> Candidate: ...

    async def repair(self, view: TaskView, plan: Plan, candidate: Candidate, assessment: Assessment) -> Candidate: ...

    def tuning_space(self, view: TaskView, plan: Plan, candidate: Candidate) -> TuningSpace: ...

    def retune(self, view: TaskView, plan: Plan, candidate: Candidate, params: dict[str, int]) -> Candidate:
        """The same kernel with other constants. ``Declined`` for a point that cannot work (VMEM, divisibility)."""
        ...
