"""The one evaluator, on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace

from maxkernel_nb.errors import Declined, InfrastructureError
from maxkernel_nb.evaluate.base import ALL_GATES, Judged
from maxkernel_nb.evaluate.calls import ABANDON, Caller
from maxkernel_nb.evaluate.chip_gate import ChipGate, Places, leaves
from maxkernel_nb.evaluate.chip_place import fleet
from maxkernel_nb.evaluate.compile_gates import CompileGate, ModelGate, fitted, profiled, recorded, without_compiler
from maxkernel_nb.evaluate.executor import Executor, ExecutorClosed, Job, JobRefused, WorkerKind
from maxkernel_nb.evaluate.gates import CheckGate, ScreenGate, TraceGate
from maxkernel_nb.evaluate.gradient_gate import GradientGate
from maxkernel_nb.evaluate.ground import Gate, Ground, InFlight, Limits, our_fault, refused
from maxkernel_nb.evaluate.known import KnownChecks
from maxkernel_nb.evaluate.pool import LocalPool
from maxkernel_nb.evaluate.probes import Probe
from maxkernel_nb.evaluate.records import Records
from maxkernel_nb.store import ObjectStore
from maxkernel_nb.task import Assessment, Candidate, CaseRole, GateName, KernelTask, Outcome, Verdict
from maxkernel_nb.tpu.profiles import ScheduleProfile

GATES: tuple[Gate, ...] = (ScreenGate(), TraceGate(), CheckGate(), GradientGate(), CompileGate(), ModelGate())
_PATIENCE = 3  # times a kernel's: the reference is nobody's trap, and without it no gain can be told
_STOPPING = (Outcome.FAIL, Outcome.INFRASTRUCTURE)


class LocalEvaluator:
    """Judges in warm worker processes of this machine.

    ``workers``: candidate workers and compiler workers at most (one judge worker serves them); the pool starts them as
    jobs need them, four of a kind at most. ``executor``: another place to run the jobs. ``chips``: what lends devices
    to measure on, asked when a candidate has passed every other gate. Nothing starts before the first
    job or ``warm``.
    """

    def __init__(
        self, store: ObjectStore, workers: int = 1, limits: Limits | None = None, executor: Executor | None = None,
        chips: Callable[[], Places | None] = fleet,
    ) -> None:
        self._chips = chips
        self.store, self.limits, self.records = store, limits or Limits(), Records(store)
        places = {WorkerKind.CANDIDATE: workers, WorkerKind.JUDGE: 1, WorkerKind.COMPILER: workers}
        self.executor = executor or LocalPool(places, self.limits.memory_bytes)
        self._caller = Caller(self.executor)
        self._background: set[asyncio.Task[None]] = set()
        self._known = KnownChecks(self.records)
        self._in_flight: dict[tuple[str, ...], InFlight] = {}
        self._probes: dict[str, list[Probe]] = {}

    def warm(self) -> None:
        """Starts the workers in the background (each imports jax once), while a plan is still being made."""
        if isinstance(self.executor, LocalPool):
            compilers = () if without_compiler() else (WorkerKind.COMPILER,)
            self.executor.warm(WorkerKind.CANDIDATE, WorkerKind.JUDGE, *compilers)

    async def baseline(self, task: KernelTask) -> ScheduleProfile | None:
        """As the contract says; None too where the reference has no export for a chip."""
        if without_compiler() or not task.reference(task.timing_case.name).device:
            return None
        try:
            return await self.reference_profile(task)
        except JobRefused as refused:
            raise Declined(refused.message) from refused

    async def reference_profile(self, task: KernelTask) -> ScheduleProfile:
        """As ``baseline``; raises ``JobRefused`` with the compiler's reason, or what a missing compiler raises."""
        ground = self._ground(task, Candidate(source="", entry="", author=""), ())
        ground.limits = replace(ground.limits, compile_s=_PATIENCE * ground.limits.compile_s)
        data = await recorded(ground, "profile", task.reference(task.timing_case.name).device)
        return fitted(ScheduleProfile.from_dict(data["profile"]))

    async def measure_reference(self, task: KernelTask, other: str = "") -> tuple[Verdict, ...]:
        """The chip's verdicts on the reference's program, in turn with ``other`` (an exported program's digest; empty:
        with itself). None where there is nothing to measure on."""
        places = self._chips()
        if places is None:
            return ()
        ground, case = self._ground(task, Candidate(source="", entry="", author=""), ()), task.timing_case.name
        ground.exports[case] = other or task.reference(case).device
        ground.facts[case] = {"outputs": {"leaves": leaves(self.store.get(ground.exports[case]))}}
        with contextlib.suppress(Declined, InfrastructureError):
            ground.profile = await self.baseline(task)
        return tuple([verdict async for verdict in ChipGate(places).run(ground)])

    async def admit(self, task: KernelTask) -> tuple[str, ...]:
        """Cheap wrong answers that this task's tolerance would let pass, on its first check case."""
        case = next((c for c in task.check_cases if c.role is CaseRole.CHECK and task.reference(c.name).own), None)
        if case is None:
            return ()
        ground = self._ground(task, Candidate(source="", entry="", author=""), ())
        args = {
            "case": case.to_dict(),
            "seeds": [task.draws(s) for s in task.seeds[:2]],
            "tolerance": task.tolerance.to_dict(),
            "wide": task.reference(case.name).oracle_dtype == "float64",
            "shortcuts": list(task.reference(case.name).shortcuts),
        }
        programs = (self.store.get(digest) for digest in task.reference(case.name).shortcuts.values())
        job = Job(WorkerKind.JUDGE, "admit", args, (*ground.reference(case), *programs), self.limits.compare_s)
        return tuple((await self._caller.ask(job)).data["weak"])

    async def judge(
        self,
        task: KernelTask,
        candidate: Candidate,
        gates: Sequence[GateName] = ALL_GATES,
        on_verdict: Callable[[Verdict], None] = lambda verdict: None,
    ) -> Judged:
        ground = self._ground(task, candidate, gates)
        verdicts: list[Verdict] = []
        try:
            async for verdict in self._ladder(ground):
                verdicts.append(verdict)
                on_verdict(verdict)
        except asyncio.CancelledError as stopped:
            if ground.ahead is not None:
                ground.ahead.cancel(*stopped.args)
            raise
        assessment = _assessment(candidate, verdicts, gates)
        return Judged(assessment=assessment, profile=ground.profile, measured=ground.measured)

    async def _ladder(self, ground: Ground) -> AsyncIterator[Verdict]:
        for gate in self._gates(ground):
            self._look_ahead(gate, ground)
            stopping = False
            async for verdict in self._climb(gate, ground):
                stopping = verdict.outcome in _STOPPING
                yield verdict
            if stopping:
                return

    def _gates(self, ground: Ground) -> Iterator[Gate]:
        """Those asked for, and with a check the gradient where the task wants it; what passes all of them is also
        measured, where there is a chip.
        """
        asked = {*ground.gates}
        if (ground.task.gradient or ground.task.differentiated) and GateName.CHECK in asked:
            asked.add(GateName.GRADIENT)
        yield from (g for g in GATES if g.name in asked)
        if set(ALL_GATES) <= set(asked) and (places := self._chips()) is not None:
            yield ChipGate(places)

    async def _climb(self, gate: Gate, ground: Ground) -> AsyncIterator[Verdict]:
        started = time.monotonic()
        known = self._known.get(ground) if gate.name is GateName.CHECK else None
        made: list[Verdict] = []
        try:
            async for verdict in _each(known) if known else gate.run(ground):
                made.append(verdict)
                yield verdict
            if gate.name is GateName.CHECK and known is None:
                self._known.put(ground, tuple(made))  # the dearest gate: the same kernel of the same task is run once
        except JobRefused as refusal:
            yield refused(gate.name, refusal, started)
        except ExecutorClosed:
            raise
        except InfrastructureError as error:
            yield our_fault(gate.name, error, started)

    def _look_ahead(self, gate: Gate, ground: Ground) -> None:
        """Compiles while the check runs: another worker, and the answer is kept either way."""
        if gate.name is GateName.CHECK and GateName.COMPILE in ground.gates and not without_compiler():
            ground.ahead = asyncio.create_task(_compiled_ahead(ground))
            self._background.add(ground.ahead)
            ground.ahead.add_done_callback(self._background.discard)

    def _ground(self, task: KernelTask, candidate: Candidate, gates: Sequence[GateName]) -> Ground:
        shared = self._in_flight, self._probes
        return Ground(task, candidate, gates, self._caller, self.store, self.records, self.limits, *shared)

    def close(self) -> None:
        for task in list(self._background):
            task.cancel(ABANDON)
        self.executor.close()


async def _each(verdicts: Sequence[Verdict]) -> AsyncIterator[Verdict]:
    for verdict in verdicts:
        yield verdict


async def _compiled_ahead(ground: Ground) -> None:
    with contextlib.suppress(JobRefused, InfrastructureError):  # the compile gate will ask again, and report
        await profiled(ground)


def _assessment(candidate: Candidate, verdicts: list[Verdict], gates: Sequence[GateName]) -> Assessment:
    stopped = any(v.outcome in _STOPPING for v in verdicts)
    declined = any(v.outcome is Outcome.DECLINED and v.gate in (GateName.COMPILE, GateName.MODEL) for v in verdicts)
    missing = set(ALL_GATES) - set(gates)
    return Assessment(candidate=candidate.id, verdicts=tuple(verdicts), complete=not (stopped or declined or missing))
