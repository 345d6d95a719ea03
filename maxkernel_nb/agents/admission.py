"""Before a task is used: which cheap wrong answers would its tolerance let pass?"""

from __future__ import annotations

from maxkernel_nb import events as ev
from maxkernel_nb.engine.runtime import Runtime
from maxkernel_nb.errors import MaxKernelError
from maxkernel_nb.values import Value


class Admission(Value):
    weak: tuple[str, ...] = ()


async def admit(runtime: Runtime) -> None:
    """Flags the task as weak, for every view of its results, when a wrong answer would pass."""

    async def work() -> Admission:
        try:
            return Admission(weak=await runtime.evaluator.admit(runtime.task))
        except MaxKernelError as error:
            runtime.note(f"Wrong answers were not tried against the tolerance: {error}", "warning")
            return Admission()

    found = await runtime.step(
        "admission", "tester", "Try wrong answers against the tolerance", work, Admission,
        lambda a: f"would pass: {', '.join(a.weak)}" if a.weak else "all refused",
    )
    if runtime.run.state.task is not None and runtime.run.state.task.weak != found.weak:
        runtime.run.emit(ev.TaskAdmitted(weak=found.weak))
