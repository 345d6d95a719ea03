"""What the gates share while one candidate is judged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from maxkernel_nb.errors import InfrastructureError
from maxkernel_nb.evaluate import wire
from maxkernel_nb.evaluate.calls import Caller
from maxkernel_nb.evaluate.executor import Job, JobRefused, Reply, WorkerKind
from maxkernel_nb.evaluate.probes import Probe
from maxkernel_nb.evaluate.records import Records
from maxkernel_nb.store import ObjectStore
from maxkernel_nb.task import Candidate, Case, Diagnostic, GateName, KernelTask, Outcome, Verdict
from maxkernel_nb.tpu.chip.profile import MeasuredPair
from maxkernel_nb.tpu.profiles import ScheduleProfile


@dataclass(frozen=True)
class Limits:
    """Wall-clock seconds a worker may take for one request, and bytes of memory it may add."""

    trace_s: float = 90.0
    check_s: float = 180.0
    compare_s: float = 180.0
    compile_s: float = 300.0
    full_s: float = 240.0
    memory_bytes: int = 8 << 30


@dataclass
class InFlight:
    """A job that several judgements may wait for; it is stopped with the last one."""

    task: asyncio.Task[dict[str, Any]]
    waiters: int = 0


@dataclass
class Ground:
    """In: task, candidate, gates. Filled by the trace gate: facts by case, exports by case, declined cases. ``ahead``:
    what compiles while the check runs.
    """

    task: KernelTask
    candidate: Candidate
    gates: Sequence[GateName]
    caller: Caller
    store: ObjectStore
    records: Records
    limits: Limits
    in_flight: dict[tuple[str, ...], InFlight] = field(default_factory=dict)  # shared by candidates
    probes: dict[str, list[Probe]] = field(default_factory=dict)  # shared by candidates
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    declined: dict[str, str] = field(default_factory=dict)
    exports: dict[str, str] = field(default_factory=dict)  # case -> digest
    profile: ScheduleProfile | None = None
    measured: MeasuredPair | None = None
    ahead: asyncio.Task[None] | None = None

    def program(self) -> dict[str, Any]:
        """What identifies the candidate to its worker."""
        task, candidate = self.task, self.candidate
        return {"source": candidate.source, "entry": candidate.entry, "static": task.static, "chip": task.chip,
                "trees": [p.to_dict() for p in task.trees]}

    def job(self, op: str, seconds: float, **args: Any) -> Job:
        return Job(WorkerKind.CANDIDATE, op, {**self.program(), **args}, (), seconds, key=self.candidate.id)

    async def ask(self, job: Job) -> Reply:
        return await self.caller.ask(job)

    def reference(self, case: Case) -> tuple[bytes, bytes]:
        """Exports of the reference for a check case: its own dtypes, and the oracle (empty: there is none)."""
        artefacts = self.task.reference(case.name)
        return tuple(self.store.get(d) if d else b"" for d in (artefacts.own, artefacts.oracle))  # type: ignore[return-value]


@contextmanager
def reading() -> Iterator[None]:
    """Around what reads a candidate worker's answer, which may be anything: raises ``JobRefused`` when it is none."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, wire.WireError) as error:
        told = f"The kernel's worker gave an answer that is none ({type(error).__name__}: {str(error)[:200]})."
        raise JobRefused("crash", told) from error


class Gate(Protocol):
    """One step of the ladder. In order, ``run`` yields its verdicts and stops after the first that is not ``pass`` or
    ``declined``. It raises nothing for what a candidate does. The ladder turns a raised ``JobRefused`` into ``fail``
    and an ``InfrastructureError`` into ``infrastructure``.
    """

    name: GateName

    def run(self, ground: Ground) -> AsyncIterator[Verdict]: ...


def refused(
    gate: GateName, refusal: JobRefused, started: float, case: str = "", seed: int | None = None, variant: str = ""
) -> Verdict:
    found = Diagnostic(kind=refusal.kind, message=refusal.message, line=refusal.line, advice=refusal.advice)
    return Verdict(
        gate=gate,
        outcome=Outcome.FAIL,
        summary=refusal.message,
        case=case or str(refusal.extra.get("case", "")),
        seed=seed,
        variant=variant,
        diagnostics=(found,),
        seconds=time.monotonic() - started,
    )


def numbers(facts: dict[str, Any]) -> dict[str, float]:
    """A comparison's, as a verdict carries them."""
    names = {"ratio": "worst_error_ratio", "norm_ratio": "rms_error_ratio", "max_abs_error": "max_abs_error"}
    return {new: float(facts[old]) for old, new in names.items()}


def our_fault(gate: GateName, error: InfrastructureError, started: float) -> Verdict:
    summary = f"The judge failed, not the kernel: {error}"
    return Verdict(gate=gate, outcome=Outcome.INFRASTRUCTURE, summary=summary, seconds=time.monotonic() - started)
