"""The planner: profiles what there is, then asks the author for a plan."""

from __future__ import annotations

import dataclasses

from maxkernel_nb import events as ev
from maxkernel_nb.engine.runtime import Runtime
from maxkernel_nb.engine.state import RunState
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import Plan
from maxkernel_nb.tpu.profiles import ScheduleProfile
from maxkernel_nb.values import Value

_INSTALL = "install maxkernel-nb[tpu]"


class Baseline(Value):
    """``why``: what kept the reference from being compiled, where there is no profile but there is a compiler."""

    profile: ScheduleProfile | None
    why: str = ""


async def profile_reference(runtime: Runtime) -> ScheduleProfile | None:
    """The XLA-compiled reference's profile on the timing case; None, with a note, where there is none."""

    async def work() -> Baseline:
        try:
            return Baseline(profile=await runtime.evaluator.baseline(runtime.task))
        except Declined as why:
            return Baseline(profile=None, why=str(why))

    found = await runtime.step(
        "baseline", "profiler", f"Compile the reference with XLA for {runtime.task.chip}", work, Baseline, _describe
    )
    if found.profile is not None and runtime.run.state.baseline is None:
        runtime.run.emit(ev.BaselineProfiled(profile=found.profile))
    runtime.view = dataclasses.replace(runtime.view, baseline=found.profile)
    return found.profile


def _describe(found: Baseline) -> str:
    if found.profile is None:
        return f"not compiled: {found.why}" if found.why else "no TPU compiler here"
    return f"{found.profile.modelled_ms:.3f} ms modelled"


def no_baseline(state: RunState) -> str:
    """Why a run has no time of the reference, as the end of a sentence."""
    why = str(state.results.get("baseline", {}).get("value", {}).get("why", ""))
    return f"the reference did not compile ({why.rstrip('.')})" if why else f"no TPU compiler here ({_INSTALL})"


async def plan(runtime: Runtime) -> Plan:
    """Raises ``Declined`` with the author's reasons when it knows no way."""
    made = await runtime.step(
        "plan", "planner", "Plan the kernel", lambda: runtime.author.plan(runtime.view), Plan, lambda p: p.strategy
    )
    if runtime.run.state.plan != made:
        runtime.run.emit(ev.PlanMade(plan=made))
    return made
