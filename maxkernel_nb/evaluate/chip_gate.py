"""The last gate: the exported program on a chip, at full size. Right there, then timed against the reference there.

Runs only what screen, check and compile let pass. Whatever a device does, the run goes on: what could not be measured
is declined with the reason, and times stay modelled.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from maxkernel_nb.errors import InfrastructureError
from maxkernel_nb.evaluate.chip_measure import Measured, Measurement, Refused
from maxkernel_nb.evaluate.executor import DeadlinePassed, ExecutorClosed, JobRefused, WorkerDied
from maxkernel_nb.evaluate.ground import Ground, refused
from maxkernel_nb.task import GateName, Outcome, Verdict
from maxkernel_nb.tpu.chip.compare import Rules, TooNoisy
from maxkernel_nb.tpu.chip.lease import ChipBusy
from maxkernel_nb.tpu.chip.owner import Ownership
from maxkernel_nb.tpu.chip.quiet import QUIET, Quiet
from maxkernel_nb.tpu.chip.session import CANDIDATE

REHEARSAL = "rehearsal on the CPU"
FULL = "full size"


class Places(Protocol):
    """What lends devices (``chip_place.Fleet``)."""

    ownership: Ownership

    def place(self) -> Any: ...


@dataclass(frozen=True)
class ChipLimits:
    """Seconds that one operation may take before the device counts as hung. ``first``: one run of one program."""

    open_s: float = 300.0
    first_s: float = 60.0
    window_s: float = 60.0
    check_s: float = 180.0


@dataclass
class ChipGate:
    """Two verdicts: the outputs at full size, and the time. Declines on another chip than the task's, a busy or lost
    chip, memory that does not suffice, clocks that contradict each other. Fails a candidate that is wrong at full
    size, hangs, or crashes the device twice.
    """

    places: Places
    rules: Rules = field(default_factory=Rules)
    limits: ChipLimits = field(default_factory=ChipLimits)
    quiet: Quiet = QUIET
    name: GateName = GateName.CHIP

    async def run(self, ground: Ground) -> AsyncIterator[Verdict]:
        started = time.monotonic()
        owned = self.places.ownership
        if owned.chip and owned.chip != ground.task.chip:
            told = f"This machine's chip is a {owned.chip} and the task is for {ground.task.chip}"
            yield self._declined(told, started)
            return
        try:
            async for verdict in self._measured(ground, started):
                yield verdict
        except (ChipBusy, TooNoisy, Refused) as why:
            yield self._declined(str(why), started)
        except (ExecutorClosed, JobRefused):
            raise
        except InfrastructureError as why:
            yield self._declined(f"{why}", started)

    async def _measured(self, ground: Ground, started: float) -> AsyncIterator[Verdict]:
        programs = await _programs(ground, self.places.ownership.rehearsal)
        for attempt in (1, 2):
            measurement = Measurement(ground, programs, self.rules, self.limits, self.quiet)
            try:
                async with self.places.place() as place:
                    facts = await measurement.check(place)
                    yield self._checked(ground, facts, started)
                    if not facts["passed"]:
                        return
                    yield self._timed(ground, await measurement.time(place), started)
                return
            except (DeadlinePassed, WorkerDied) as fault:
                if isinstance(fault, WorkerDied) and attempt == 1:
                    continue  # on a fresh worker
                yield self._fault(fault, measurement.running, started)
                return
            except JobRefused as refusal:
                yield self._refusal(refusal, measurement.running, started)
                return

    def _checked(self, ground: Ground, facts: dict[str, Any], started: float) -> Verdict:
        case = ground.task.timing_case.name
        against = "the float64 oracle on sampled rows" if facts["with_oracle"] else "the reference there only"
        if not facts["passed"]:
            wrong = JobRefused(facts["kind"], facts["sentence"])
            return refused(self.name, wrong, started, case, None, self._variant(FULL))
        return Verdict(
            gate=self.name, outcome=Outcome.PASS, case=case, variant=self._variant(FULL),
            summary=f"Right at full size on the device, on poisoned memory, against {against}.",
            numbers={"worst_error_ratio": facts["ratio"], "apart_ratio": facts.get("apart", 0.0)},
            evidence="measured", seconds=time.monotonic() - started,
        )  # fmt: skip

    def _timed(self, ground: Ground, found: Measured, started: float) -> Verdict:
        digest = ground.store.put(json.dumps(found.record).encode())
        ground.measured = None if self.places.ownership.rehearsal else found.profiles
        return Verdict(
            gate=self.name, outcome=Outcome.PASS, case=ground.task.timing_case.name, variant=self._variant(""),
            summary=found.sentence, numbers=found.numbers, artefacts={"measurement": digest}, evidence="measured",
            seconds=time.monotonic() - started,
        )  # fmt: skip

    def _variant(self, plain: str) -> str:
        if not self.places.ownership.rehearsal:
            return plain
        return f"{plain}, {REHEARSAL}" if plain else REHEARSAL

    def _fault(self, fault: InfrastructureError, running: str, started: float) -> Verdict:
        hung = isinstance(fault, DeadlinePassed)
        if running != CANDIDATE or (hung and self.places.ownership.rehearsal):
            what = "the candidate" if running == CANDIDATE else running or "measuring"
            return self._declined(f"The device stopped answering in {what} ({fault}); its lease was ended.", started)
        kind, told = ("hang", "does not end") if hung else ("crash", "ends the process that runs it, twice")
        return refused(self.name, JobRefused(kind, f"On the device the kernel {told}: {fault}"), started)

    def _refusal(self, refusal: JobRefused, running: str, started: float) -> Verdict:
        at_work = refusal.kind in ("halt", "runtime") and running == CANDIDATE
        blamed = at_work or refusal.kind == "stale"  # only a candidate's outputs are held against earlier ones
        too_large = refusal.kind == "memory" and running == CANDIDATE and not refusal.extra.get("ever", True)
        if blamed or too_large:
            return refused(self.name, refusal, started)
        verdict = self._declined(refusal.message, started)
        sizes = {f"{k}_bytes": float(refusal.extra[k]) for k in ("needed", "free") if refusal.extra.get(k)}
        return verdict.model_copy(update={"numbers": sizes})

    def _declined(self, why: str, started: float) -> Verdict:
        told = f"Not measured: {why.rstrip('.')}. The times stay modelled."
        return Verdict(gate=self.name, outcome=Outcome.DECLINED, summary=told, variant=self._variant(""),
                       seconds=time.monotonic() - started)  # fmt: skip


def leaves(exported: bytes) -> list[dict[str, Any]]:
    """Shape and dtype of each output of an exported program."""
    import jax.export

    avals = jax.export.deserialize(bytearray(exported)).out_avals
    return [{"shape": list(a.shape), "dtype": a.dtype.name} for a in avals]


async def _programs(ground: Ground, rehearsal: bool) -> tuple[bytes, bytes]:
    """The reference's and the candidate's exported programs for the timing case."""
    case = ground.task.timing_case
    reference = ground.task.reference(case.name).device
    if not reference:
        raise Refused("the reference has no exported program at full size")
    if not rehearsal or not ground.candidate.source:  # a reference's own program runs anywhere
        return ground.store.get(reference), ground.store.get(ground.exports[case.name])
    fingerprint = ground.facts[case.name]["fingerprint"]
    job = ground.job("rehearse", ground.limits.trace_s, case=case.to_dict(), fingerprint=fingerprint)
    reply = await ground.ask(job)
    if len(reply.buffers) != 1:
        raise JobRefused("crash", "The kernel's worker gave an answer that is none.")
    return ground.store.get(reference), reply.buffers[0]
