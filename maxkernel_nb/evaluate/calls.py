"""How the ladder asks workers: never blocking the event loop, retrying our faults, blaming only others'."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass

from maxkernel_nb.errors import InfrastructureError
from maxkernel_nb.evaluate.executor import (
    DeadlinePassed,
    Executor,
    ExecutorClosed,
    Job,
    JobRefused,
    Reply,
    WorkerBabbled,
    WorkerDied,
    WorkerKind,
)

ABANDON = "abandon"  # task.cancel(ABANDON): nobody wants the answer, but the worker is worth keeping
_OWN_DEATHS = {getattr(signal, f"SIG{name}") for name in ("SEGV", "ABRT", "BUS", "FPE", "ILL", "XFSZ", "SYS")}
_WHO = {WorkerKind.CANDIDATE: "The kernel", WorkerKind.COMPILER: "The TPU compiler"}


@dataclass(frozen=True)
class Caller:
    """``ask`` yields a reply, or raises ``JobRefused`` (the candidate's fault) or ``InfrastructureError`` (ours).

    A worker that dies is retried once on a fresh one. A second death of a candidate's or compiler's worker by its own
    hand (a crash, an exit, an answer that is none) is the candidate's; a second death by SIGKILL (someone else's) is
    ours. A deadline is the candidate's, except in the judge worker, which runs nothing of it.
    """

    executor: Executor

    async def ask_once(self, job: Job) -> Reply:
        """Raises what the executor raises: for what is given up where it does not work."""
        return await self._once(job)

    async def ask(self, job: Job) -> Reply:
        try:
            return await self._once(job)
        except DeadlinePassed as late:
            if job.kind is not WorkerKind.JUDGE:
                raise _too_slow(job) from late
        except ExecutorClosed:
            raise
        except InfrastructureError:
            pass
        return await self._again(job)

    async def _again(self, job: Job) -> Reply:
        try:
            return await self._once(job)
        except DeadlinePassed as late:
            if job.kind is WorkerKind.JUDGE:
                raise
            raise _too_slow(job) from late
        except WorkerDied as death:
            if job.kind is WorkerKind.JUDGE or not _by_own_hand(death):
                raise
            told = f"{_WHO[job.kind]} ended its worker twice while in {job.op}: {death}"
            raise JobRefused("crash", told) from death

    async def _once(self, job: Job) -> Reply:
        future = self.executor.submit(job)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError as cancelled:
            self.executor.cancel(future, kill=ABANDON not in cancelled.args)
            raise


def _by_own_hand(death: WorkerDied) -> bool:
    if isinstance(death, WorkerBabbled):
        return True
    return death.signal in _OWN_DEATHS if death.signal is not None else death.code is not None


def _too_slow(job: Job) -> JobRefused:
    told = f"{_WHO[job.kind]} did not finish {job.op} within {job.seconds:g} s and was stopped."
    return JobRefused("timeout", told, advice="Look for a loop without end, or a wait that no copy ever signals.")
