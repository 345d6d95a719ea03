"""The local executor: a few warm worker processes, one dispatching thread each."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field

from maxkernel_nb.errors import InfrastructureError
from maxkernel_nb.evaluate.executor import (
    DeadlinePassed,
    ExecutorClosed,
    Job,
    JobRefused,
    Reply,
    WorkerDied,
    WorkerKind,
)
from maxkernel_nb.evaluate.process import WorkerProcess, WorkerTainted

REMEMBERED = 4  # candidates that a worker keeps loaded (``ops_candidate.PROGRAMS``)
JUDGED = 10
MOST = 4  # places of a kind: each holds a whole process with jax, and a run has few jobs at a time


@dataclass
class _Slot:
    """One place for a worker of a kind. ``running`` is guarded by the pool's lock."""

    kind: WorkerKind
    worker: WorkerProcess | None = None
    running: Future[Reply] | None = None
    keys: tuple[str, ...] = ()  # of the jobs served last: what the worker may remember
    jobs: int = 0
    cancelled: bool = False


def _here(kind: WorkerKind, memory_bytes: int) -> WorkerProcess:
    return WorkerProcess(kind, memory_bytes)


@dataclass
class LocalPool:
    """Workers start one by one, when a job (or ``warm``) finds all others of its kind busy, and are recycled after any
    crash or timeout.

    ``places`` is the largest number of workers of each kind (never more than ``most``, however large the machine),
    ``memory_bytes`` the address space each may add to what it needs when idle, ``jobs_per_worker`` the number of jobs
    after which a worker is replaced (a judge, whose jobs are small and never a candidate's, after ten times as many).
    """

    places: Mapping[WorkerKind, int]
    memory_bytes: int = 8 << 30
    jobs_per_worker: int = 500
    start: Callable[[WorkerKind, int], WorkerProcess] = _here  # or what looks like one, elsewhere
    most: int = MOST
    _pending: list[tuple[Job, Future[Reply]]] = field(default_factory=list, repr=False)
    _slots: list[_Slot] = field(default_factory=list, repr=False)
    _wake: threading.Condition = field(default_factory=threading.Condition, repr=False)
    _closed: bool = False
    _draining: bool = False

    def submit(self, job: Job) -> Future[Reply]:
        future: Future[Reply] = Future()
        with self._wake:
            if self._closed or self._draining:
                future.set_exception(ExecutorClosed("The worker pool is closed."))
                return future
            self._pending.append((job, future))
            self._add_slot(job.kind)
            self._wake.notify_all()
        return future

    def warm(self, *kinds: WorkerKind) -> None:
        """Starts one worker of each of these kinds in the background, so that the first job does not wait for jax."""
        for kind in kinds:
            with self._wake:
                started = any(s.kind is kind for s in self._slots)
            if not started:
                self.submit(Job(kind, "ping", {}))

    def cancel(self, future: Future[Reply], kill: bool = True) -> None:
        with self._wake:
            queued = [entry for entry in self._pending if entry[1] is future]
            for entry in queued:
                self._pending.remove(entry)
            slot = next((s for s in self._slots if kill and s.running is future), None)
            if slot is not None:
                slot.cancelled = True
        if slot is not None and slot.worker is not None:
            slot.worker.kill()
        if queued:
            _resolve(future, ExecutorClosed("The job was cancelled."))

    def drain(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        with self._wake:
            self._draining = True
            while self._pending or any(s.running for s in self._slots):
                if not self._wake.wait(end - time.monotonic()) and time.monotonic() >= end:
                    return False
        return True

    def close(self) -> None:
        with self._wake:
            self._closed = True
            dropped, self._pending = self._pending, []
            workers = [s.worker for s in self._slots if s.worker is not None]
            self._wake.notify_all()
        for worker in workers:
            worker.kill()
        for _, future in dropped:
            _resolve(future, ExecutorClosed("The worker pool was closed."))

    def pids(self) -> list[int]:
        """Process ids (each also a process group id) of the living workers."""
        with self._wake:
            return [s.worker.pid for s in self._slots if s.worker is not None]

    def _add_slot(self, kind: WorkerKind) -> None:
        """One more, when the idle ones do not suffice for what waits."""
        present = [s for s in self._slots if s.kind is kind]
        waiting = sum(job.kind is kind for job, _ in self._pending)
        if waiting <= sum(s.running is None for s in present) or len(present) >= min(self.places[kind], self.most):
            return
        slot, name = _Slot(kind), f"maxkernel-{kind}-{len(present)}"
        self._slots.append(slot)
        threading.Thread(target=self._serve, args=(slot,), name=name, daemon=True).start()

    def _serve(self, slot: _Slot) -> None:
        while (taken := self._take(slot)) is not None:
            job, future = taken
            result = self._run(slot, job)
            with self._wake:
                slot.running = None
                self._wake.notify_all()
            _resolve(future, result)
        self._dispose(slot)

    def _take(self, slot: _Slot) -> tuple[Job, Future[Reply]] | None:
        with self._wake:
            while not self._closed:
                entry = self._choose(slot)
                if entry is None:
                    self._wake.wait()
                    continue
                self._pending.remove(entry)
                if entry[1].set_running_or_notify_cancel():
                    slot.running, slot.cancelled = entry[1], False
                    slot.keys = (*(k for k in slot.keys if k != entry[0].key), entry[0].key)[-REMEMBERED:]
                    return entry
                self._wake.notify_all()  # someone cancelled it while it waited; ``drain`` may wait for this
        return None

    def _choose(self, slot: _Slot) -> tuple[Job, Future[Reply]] | None:
        mine = [entry for entry in self._pending if entry[0].kind is slot.kind]
        elsewhere = {k for s in self._slots if s.kind is slot.kind and s is not slot and s.worker for k in s.keys}
        for wanted in (lambda j: j.key and j.key in slot.keys, lambda j: not j.key or j.key not in elsewhere):
            for entry in mine:
                if wanted(entry[0]):
                    return entry
        return mine[0] if mine else None

    def _run(self, slot: _Slot, job: Job) -> Reply | Exception:
        try:
            return self._answer(slot, job)
        except Exception as error:  # noqa: BLE001 - the thread's top: no job may stay unanswered, no place be lost
            self._forget(slot)
            return InfrastructureError(f"A worker could not be used: {type(error).__name__}: {error}")

    def _answer(self, slot: _Slot, job: Job) -> Reply | Exception:
        try:
            worker = self._worker(slot)
            slot.jobs += 1
            reply = worker.call(job)
            if worker.spent:
                self._dispose(slot)
            return reply
        except JobRefused as refusal:
            return refusal
        except WorkerTainted as tainted:
            self._dispose(slot)
            return tainted.refusal
        except (WorkerDied, DeadlinePassed) as error:
            self._dispose(slot)
            return ExecutorClosed("The job was cancelled.") if slot.cancelled or self._closed else error
        except (InfrastructureError, OSError) as error:
            self._dispose(slot)
            return InfrastructureError(f"A worker could not do its work: {error}")

    def _worker(self, slot: _Slot) -> WorkerProcess:
        many = self.jobs_per_worker * (JUDGED if slot.kind is WorkerKind.JUDGE else 1)
        if slot.worker is not None and slot.jobs >= many:
            self._dispose(slot)
        if slot.worker is None:
            worker = self.start(slot.kind, self.memory_bytes)
            with self._wake:
                slot.worker, slot.jobs = worker, 0
            if self._closed or slot.cancelled:
                worker.kill()
        return slot.worker

    def _forget(self, slot: _Slot) -> None:
        """Recycles a worker whose state nobody knows."""
        with contextlib.suppress(Exception):
            self._dispose(slot)

    def _dispose(self, slot: _Slot) -> None:
        with self._wake:
            worker, slot.worker, slot.keys = slot.worker, None, ()
        if worker is not None:
            worker.dispose()


def _resolve(future: Future[Reply], result: Reply | Exception) -> None:
    """Nothing happens when somebody cancelled it first."""
    with contextlib.suppress(InvalidStateError):
        if isinstance(result, Reply):
            future.set_result(result)
        else:
            future.set_exception(result)
