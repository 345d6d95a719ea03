"""The seam between the ladder and the machines it runs on."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from maxkernel_nb.errors import InfrastructureError


class WorkerKind(StrEnum):
    CANDIDATE = "candidate"  # runs a candidate's Python, to trace and to interpret it; trusted with nothing
    JUDGE = "judge"  # oracle and comparison
    COMPILER = "compiler"  # the TPU compiler and its schedule
    CHIP = "chip"  # the one that holds a TPU and measures on it; see ``chip_place``


@dataclass(frozen=True)
class Job:
    """One request to one worker: operation, JSON arguments, binary buffers, and the seconds it may take.

    Jobs with the same ``key`` prefer the worker that served the key last; no job may rely on it.
    """

    kind: WorkerKind
    op: str
    args: Mapping[str, Any]
    buffers: tuple[bytes, ...] = field(default=(), repr=False)
    seconds: float = 60.0
    key: str = ""


@dataclass(frozen=True)
class Reply:
    data: dict[str, Any]
    buffers: tuple[bytes, ...] = field(default=(), repr=False)


class JobRefused(Exception):
    """The operation's own answer 'no', with data for a diagnostic: the work is at fault, not the worker."""

    def __init__(self, kind: str, message: str, line: int = 0, advice: str = "", **extra: Any) -> None:
        super().__init__(message)
        self.kind, self.message, self.line, self.advice, self.extra = kind, message, line, advice, extra


class WorkerDied(InfrastructureError):
    """The worker ended before it answered. ``signal`` is None when it exited by itself with ``code``."""

    def __init__(self, reason: str, code: int | None = None, signal: int | None = None) -> None:
        super().__init__(reason)
        self.code, self.signal = code, signal


class WorkerBabbled(WorkerDied):
    """The worker was killed because what it sent is no answer."""


class DeadlinePassed(InfrastructureError):
    """The worker was killed because it did not answer in time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"No answer within {seconds:g} s; the worker was killed.")
        self.seconds = seconds


class ExecutorClosed(InfrastructureError):
    """The executor is closed or draining, or the job was cancelled."""


class Executor(Protocol):
    """In order: ``submit`` queues a job and returns at once; its future yields a ``Reply``, or raises ``JobRefused``,
    ``WorkerDied``, ``DeadlinePassed``, ``ExecutorClosed`` or ``InfrastructureError``, always. A worker is leased
    to a job until the job's deadline, then killed with its children. A worker that died, or that sent what is no
    answer, is replaced before the next job.
    """

    def submit(self, job: Job) -> Future[Reply]: ...

    def cancel(self, future: Future[Reply], kill: bool = True) -> None:
        """Drops a queued job; kills the worker of a running one, or lets it finish unheard."""
        ...

    def drain(self, seconds: float) -> bool:
        """Takes no new jobs and waits for the running ones. True when nothing is left."""
        ...

    def close(self) -> None:
        """Kills every worker with its children, at once. Pending futures raise ``ExecutorClosed``."""
        ...
