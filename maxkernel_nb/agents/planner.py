"""The planner: profiles what there is, then asks the author for a plan."""

from __future__ import annotations

import dataclasses

from maxkernel_nb import events as ev
from maxkernel_nb.engine.runtime import Runtime
from maxkernel_nb.task import Plan
from maxkernel_nb.tpu.profiles import ScheduleProfile
from maxkernel_nb.values import Value


class Baseline(Value):
    profile: ScheduleProfile | None


async def profile_reference(runtime: Runtime) -> ScheduleProfile | None:
    """The XLA-compiled reference's profile on the timing case; None, with a note, without a TPU compiler."""

    async def work() -> Baseline:
        return Baseline(profile=await runtime.evaluator.baseline(runtime.task))

    found = await runtime.step(
        "baseline", "profiler", f"Compile the reference with XLA for {runtime.task.chip}", work, Baseline, _describe
    )
    if found.profile is not None and runtime.run.state.baseline is None:
        runtime.run.emit(ev.BaselineProfiled(profile=found.profile))
    runtime.view = dataclasses.replace(runtime.view, baseline=found.profile)
    return found.profile


def _describe(found: Baseline) -> str:
    return "no TPU compiler here" if found.profile is None else f"{found.profile.modelled_ms:.3f} ms modelled"


async def plan(runtime: Runtime) -> Plan:
    """Raises ``Declined`` with the author's reasons when it knows no way."""
    made = await runtime.step(
        "plan", "planner", "Plan the kernel", lambda: runtime.author.plan(runtime.view), Plan, lambda p: p.strategy
    )
    if runtime.run.state.plan != made:
        runtime.run.emit(ev.PlanMade(plan=made))
    return made
