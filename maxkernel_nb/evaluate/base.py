"""The contract of the one evaluator: every mode, author, the tuner and jaxbench judge through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from maxkernel_nb.task import Assessment, Candidate, GateName, KernelTask, Verdict
from maxkernel_nb.tpu.chip.profile import MeasuredPair
from maxkernel_nb.tpu.profiles import ScheduleProfile
from maxkernel_nb.values import Value

ALL_GATES = (GateName.SCREEN, GateName.TRACE, GateName.CHECK, GateName.COMPILE, GateName.MODEL)
TUNING_GATES = (GateName.SCREEN, GateName.TRACE, GateName.COMPILE, GateName.MODEL)


class Judged(Value):
    """An assessment and, when the model gate ran, the candidate's profile on the timing case. ``measured``: what a chip
    showed of it and of the reference, where one measured."""

    assessment: Assessment
    profile: ScheduleProfile | None = None
    measured: MeasuredPair | None = None


class Evaluator(Protocol):
    """In order, ``judge`` runs the gates asked for, stops at the first that fails, and reports each verdict at once.

    ``on_verdict`` is called on the caller's event loop. Without a TPU compiler the compile and model gates answer
    ``declined``. Infrastructure faults are retried on a fresh worker and, if they persist, come back as verdicts with
    that outcome. Nothing here raises for anything a candidate does. A judgement that is cancelled kills its jobs.
    """

    def warm(self) -> None:
        """Starts workers in the background, so that the first verdict need not wait for them. Returns at once."""
        ...

    async def baseline(self, task: KernelTask) -> ScheduleProfile | None:
        """The XLA-compiled reference's profile on the timing case; None where nothing can compile it. Raises
        ``Declined`` with the compiler's reason where it does not compile.
        """
        ...

    async def admit(self, task: KernelTask) -> tuple[str, ...]:
        """Cheap wrong answers (zeros, an ignored input ...) that this task's tolerance would let pass."""
        ...

    async def judge(
        self,
        task: KernelTask,
        candidate: Candidate,
        gates: Sequence[GateName] = ALL_GATES,
        on_verdict: Callable[[Verdict], None] = lambda verdict: None,
    ) -> Judged: ...

    def close(self) -> None:
        """Kills every worker, with its children, at once."""
        ...
