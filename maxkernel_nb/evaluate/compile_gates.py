"""The gates that need the TPU compiler: compile and model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from maxkernel_nb.evaluate.executor import Job, JobRefused, WorkerKind
from maxkernel_nb.evaluate.gates import probed
from maxkernel_nb.evaluate.ground import Ground, InFlight
from maxkernel_nb.evaluate.probes import ProbeKind
from maxkernel_nb.evaluate.proportion import compulsory_bytes, floor_ms
from maxkernel_nb.evaluate.wire import dtype_named
from maxkernel_nb.task import GateName, Outcome, Verdict
from maxkernel_nb.tpu.chip import refit
from maxkernel_nb.tpu.chips import chip as chip_named
from maxkernel_nb.tpu.profiles import ScheduleProfile
from maxkernel_nb.tpu.translate import TRIPS_UNKNOWN

SURE = 0.9  # of the physical floor: what is modelled below this is not possible, whatever the model's error


class CompileGate:
    """Has the exported programs (timing case and one check case) compiled by the TPU compiler. Declines without one."""

    name = GateName.COMPILE

    async def run(self, ground: Ground) -> AsyncIterator[Verdict]:
        started = time.monotonic()
        missing = without_compiler()
        if missing:
            yield Verdict(gate=self.name, outcome=Outcome.DECLINED, summary=missing)
            return
        profile = await profiled(ground)
        others = [name for name in ground.exports if name != ground.task.timing_case.name]
        for name in others:
            await self._compile(ground, name)
        cases = len(others) + 1
        summary = f"The TPU compiler accepts it for {ground.task.chip} ({cases} case{'s'[: cases > 1]})."
        numbers = {"compile_s": profile.compile_s, "vmem_bytes": float(profile.vmem_bytes)}
        seconds = time.monotonic() - started
        yield Verdict(gate=self.name, outcome=Outcome.PASS, summary=summary, numbers=numbers, seconds=seconds)

    async def _compile(self, ground: Ground, case: str) -> None:
        try:
            await recorded(ground, "compile", ground.exports[case])
        except JobRefused as refusal:
            refusal.extra["case"] = case
            raise


class ModelGate:
    """Reads the modelled time of the timing case from the compiler's schedule. Declines without a compiler. Refuses a
    time below what moving the data takes, and a kernel whose loops end where its data says, unless an argument of the
    task is of integers, which may say how much there is to do: such a loop's time cannot be modelled.
    """

    name = GateName.MODEL

    async def run(self, ground: Ground) -> AsyncIterator[Verdict]:
        started = time.monotonic()
        missing = without_compiler()
        if missing:
            yield Verdict(gate=self.name, outcome=Outcome.DECLINED, summary=missing)
            return
        ground.profile = profile = await profiled(ground)
        if (loops := endless(profile)) and not _counted(ground):
            raise JobRefused("unknown-trips", _untold(loops), case=ground.task.timing_case.name)
        least = await physical_floor(ground)
        if profile.modelled_ms < SURE * least:
            told = _impossible(ground, profile.modelled_ms, least)
            raise JobRefused("physics", told, case=ground.task.timing_case.name)
        numbers = {
            "modelled_ms": profile.modelled_ms,
            "floor_ms": least,
            "roofline_ms": profile.roofline_ms,
            "hbm_bytes": profile.hbm_bytes,
            "flops": profile.flops,
        }
        bound = f", bound by {profile.bound_by}" if profile.bound_by else ""
        yield Verdict(
            gate=self.name,
            outcome=Outcome.PASS,
            summary=f"{profile.modelled_ms:.4g} ms modelled on {profile.chip}{bound}.",
            case=ground.task.timing_case.name,
            numbers=numbers,
            evidence="modelled",
            seconds=time.monotonic() - started,
        )


def endless(profile: ScheduleProfile) -> str:
    """The first kernel with a loop whose number of trips the schedule does not say; empty without one."""
    kernels = {op.name for op in profile.ops if op.kind == "pallas"}
    told = (note.split(": ", 1)[0] for note in profile.notes if TRIPS_UNKNOWN.split(" is counted")[0] in note)
    return next((name for name in told if name in kernels), "")


def _counted(ground: Ground) -> bool:
    """True where an argument may say how much work there is: lengths, pages, sizes of groups, a mask."""
    return any(dtype_named(a.dtype).kind in "iub" for a in ground.task.timing_case.args)


def _untold(kernel: str) -> str:
    return (
        f"A loop of {kernel} ends where its data says, though no input says how much there is to do: its time cannot "
        "be told from the schedule; let the number of trips follow from the shapes."
    )


async def physical_floor(ground: Ground) -> float:
    """The least time (ms) for moving, once, the outputs and those arguments whose every probed element counts."""
    case = ground.task.timing_case
    facts = ground.facts.get(case.name)
    if facts is None:
        return 0.0
    probes = await probed(ground) if GateName.CHECK in ground.gates else []
    dense = [
        (a.shape, a.dtype) for k, a in enumerate(case.args)
        if {ProbeKind.TAIL, ProbeKind.ELEMENT} <= {p.kind for p in probes if p.args == (k,)}
    ]  # fmt: skip
    moved = compulsory_bytes(dense, facts["outputs"]["leaves"])
    return floor_ms(moved, chip_named(ground.task.chip).device_hbm_gbs)


def _impossible(ground: Ground, modelled_ms: float, least: float) -> str:
    return (
        f"{modelled_ms:.4g} ms modelled is less than the {least:.4g} ms that {ground.task.chip} needs only to move the "
        "inputs and outputs that the result depends on: the program leaves out work."
    )


def without_compiler() -> str:
    """Why there is no TPU compiler here; empty when there is one."""
    from maxkernel_nb.tpu.availability import compiler_available

    available, reason = compiler_available()
    return "" if available else reason


async def profiled(ground: Ground) -> ScheduleProfile:
    """The candidate's profile on the timing case; compiled at most once, ever, for the same program and versions."""
    data = await recorded(ground, "profile", ground.exports[ground.task.timing_case.name])
    return fitted(ScheduleProfile.from_dict(data["profile"]))


def fitted(profile: ScheduleProfile) -> ScheduleProfile:
    """As this machine's own measurements correct it, where there are enough of them."""
    return refit.corrected(profile, refit.active(profile.chip, profile.jax_version, profile.libtpu_version))


async def recorded(ground: Ground, op: str, program: str) -> dict[str, Any]:
    """A compiler worker's answer about an exported program: from the records when it is there, from a job that is
    already asking, else asked now. Refusals are recorded too."""
    key = (op, program, ground.task.chip)
    known = ground.records.get(*key)
    if known is None:
        known = await _shared(ground, key)
    if "refused" in known:
        raise JobRefused(**known["refused"])
    return known


async def _shared(ground: Ground, key: tuple[str, str, str]) -> dict[str, Any]:
    """The answer of the job that already asks this, or of a new one. The last who waits for it stops it on leaving."""
    job = ground.in_flight.get(key) or _started(ground, key)
    job.waiters += 1
    try:
        return await asyncio.shield(job.task)
    except asyncio.CancelledError as stopped:
        if job.waiters == 1:
            _drop(ground, key, job.task)
            job.task.cancel(*stopped.args)
        raise
    finally:
        job.waiters -= 1


def _started(ground: Ground, key: tuple[str, str, str]) -> InFlight:
    op, program, _ = key
    job = ground.in_flight[key] = InFlight(asyncio.create_task(_asked(ground, op, program)))
    job.task.add_done_callback(lambda task: _finished(ground, key, task))
    return job


def _drop(ground: Ground, key: tuple[str, ...], task: asyncio.Task[dict[str, Any]]) -> None:
    job = ground.in_flight.get(key)
    if job is not None and job.task is task:  # not one that was started after this one was stopped
        del ground.in_flight[key]


def _finished(ground: Ground, key: tuple[str, ...], task: asyncio.Task[dict[str, Any]]) -> None:
    _drop(ground, key, task)
    if not task.cancelled():
        task.exception()  # seen: whoever still waits gets it too


async def _asked(ground: Ground, op: str, program: str) -> dict[str, Any]:
    exported = ground.store.get(program)
    job = Job(WorkerKind.COMPILER, op, {"chip": ground.task.chip}, (exported,), ground.limits.compile_s)
    try:
        answer = (await ground.ask(job)).data
    except JobRefused as refusal:
        if refusal.kind in ("timeout", "crash"):  # true here and now; worth another try some other day
            raise
        told = {"kind": refusal.kind, "message": refusal.message, "line": refusal.line, "advice": refusal.advice}
        answer = {"refused": told}
    ground.records.put(op, program, ground.task.chip, answer)
    return answer
