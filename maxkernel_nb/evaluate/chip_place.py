"""Where measuring happens: in one worker process that holds the chip, or in the notebook's process that already does.

Either way under the device's lease, one measurement at a time, with a watchdog. A worker that does not answer is killed
and its lease ends with it; a thread of the notebook cannot be killed, so its chip is then lost until the kernel is
restarted, and measuring ends.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any

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
from maxkernel_nb.evaluate.process import WorkerProcess
from maxkernel_nb.tpu.chip.lease import ChipBusy, Lease, explain_start
from maxkernel_nb.tpu.chip.owner import Ownership, forget, notebook_state, ownership
from maxkernel_nb.tpu.chip.quiet import QUIET, Quiet

IDLE_S = 60.0  # an idle worker gives the chip back after this long
PASSED_ON = ("TPU_", "LIBTPU_", "PJRT_")  # of the notebook's environment: how this machine's chips are set up
Answer = Callable[[], Reply]


class Place(ABC):
    """One device. ``ask`` runs one operation of ``ops_chip`` and raises ``JobRefused``, ``DeadlinePassed``,
    ``WorkerDied`` or ``InfrastructureError``. ``lost`` says why it can be used no more.
    """

    def __init__(self, ownership: Ownership, number: int) -> None:
        self.ownership, self.number = ownership, number
        self.name = ownership.device(number)
        self.lost = ""
        self.lease: Lease | None = None

    async def ask(self, op: str, args: dict[str, Any], buffers: tuple[bytes, ...] = (), seconds: float = 60.0) -> Reply:
        job = Job(WorkerKind.CHIP, op, args, buffers, seconds)
        future = self._start(job)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self.end("the measurement was stopped")
            raise

    @abstractmethod
    def _start(self, job: Job) -> Future[Reply]:
        """Begins a job on the place's own thread."""

    @abstractmethod
    def end(self, why: str) -> None:
        """Whatever runs there is to stop; the lease ends."""

    @abstractmethod
    def begin(self) -> None:
        """Takes the lease, where it is not held. Raises ``ChipBusy``."""

    @abstractmethod
    def pause(self) -> None:
        """A measurement is over."""


class WorkerPlace(Place):
    """A long-lived worker. The lease is held as long as it lives; both end after a minute without work."""

    def __init__(self, ownership: Ownership, number: int, more: dict[str, str] | None = None) -> None:
        super().__init__(ownership, number)
        self.worker: WorkerProcess | None = None
        self._more = more or {}
        self._thread: _Thread | None = None
        self._guard = threading.Lock()
        self._idle: threading.Timer | None = None

    def begin(self) -> None:
        self._stop_timer()
        if self.worker is None and not self.ownership.rehearsal and notebook_state().platform == "tpu":
            raise ChipBusy(
                "This notebook's jax took the TPU after its first run had begun, so a worker cannot have it: restart "
                "the kernel and use jax before the first run to measure in the notebook."
            )
        if self.lease is None:
            self.lease = Lease.take(self.name, f"maxkernel in notebook process {os.getpid()}")

    def _start(self, job: Job) -> Future[Reply]:
        if self._thread is None:
            self._thread = _Thread(f"maxkernel-{self.name}")
        return self._thread.submit(lambda: self._answer(job))

    def _answer(self, job: Job) -> Reply:
        try:
            return self._worker().call(job)
        except (WorkerDied, DeadlinePassed):
            self.end("its worker died")
            raise
        except InfrastructureError as error:
            self.end("its worker could not start")
            told = explain_start(str(error))
            raise InfrastructureError(told or str(error)) from error

    def _worker(self) -> WorkerProcess:
        with self._guard:
            if self.worker is None:
                seen = {**environment(self.ownership, self.number), **self._more}
                self.worker = WorkerProcess(WorkerKind.CHIP, 0, seen)
            return self.worker

    def end(self, why: str) -> None:
        self._stop_timer()
        with self._guard:
            worker, self.worker = self.worker, None
            lease, self.lease = self.lease, None
        if worker is not None:
            worker.dispose()
        if lease is not None:
            lease.release()

    def pause(self) -> None:
        self._stop_timer()
        self._idle = threading.Timer(IDLE_S, self.end, ("nothing was measured for a minute",))
        self._idle.daemon = True
        self._idle.start()

    def _stop_timer(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None


class KernelPlace(Place):
    """The notebook's own process, from a thread. The lease is held for one measurement."""

    def __init__(self, ownership: Ownership, number: int, quiet: Quiet = QUIET) -> None:
        super().__init__(ownership, number)
        self._quiet = quiet
        self._operations: dict[str, Callable[..., Reply]] | None = None
        self._one = threading.Lock()  # a job that nobody waits for any more may still be running

    def begin(self) -> None:
        if self.lease is None:
            self.lease = Lease.take(self.name, f"maxkernel in notebook process {os.getpid()}")

    def _start(self, job: Job) -> Future[Reply]:
        future = _Thread(f"maxkernel-{self.name}", jobs=1).submit(lambda: self._run(job))
        watchdog = threading.Timer(job.seconds, self._bark, (future, job))
        watchdog.daemon = True
        watchdog.start()
        future.add_done_callback(lambda _: watchdog.cancel())
        return future

    def _run(self, job: Job) -> Reply:
        with self._one:
            return self._done(job)

    def _done(self, job: Job) -> Reply:
        if self._operations is None:
            import jax

            from maxkernel_nb.evaluate.ops_chip import Chip

            device = jax.local_devices(backend=self.ownership.platform)[self.number]
            self._operations = Chip(device, self._quiet).operations()
        return self._operations[job.op](dict(job.args), job.buffers)

    def _bark(self, future: Future[Reply], job: Job) -> None:
        if not future.done():
            self.end(f"{job.op} did not end within {job.seconds:g} s")
            with contextlib.suppress(InvalidStateError):  # it ended in this very moment
                future.set_exception(DeadlinePassed(job.seconds))

    def end(self, why: str) -> None:
        if "did not end" in why:
            self.lost = f"the chip of this notebook stopped answering ({why}); restart the kernel to measure again"
        self.pause()

    def pause(self) -> None:
        lease, self.lease = self.lease, None
        if lease is not None:
            lease.release()


class _Thread:
    """A daemon that does one job after another; ``jobs``: it ends after that many.

    A worker must be started by a thread that stays: the operating system kills it when that thread ends.
    """

    def __init__(self, name: str, jobs: int | None = None) -> None:
        self._queue: queue.SimpleQueue[tuple[Answer, Future[Reply]]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, args=(jobs,), name=name, daemon=True).start()

    def submit(self, work: Answer) -> Future[Reply]:
        future: Future[Reply] = Future()
        self._queue.put((work, future))
        return future

    def _serve(self, jobs: int | None) -> None:
        done = 0
        while jobs is None or done < jobs:
            _resolve(*self._queue.get())
            done += 1


def _resolve(work: Answer, future: Future[Reply]) -> None:
    try:
        result: Reply | Exception = work()
    except Exception as error:  # noqa: BLE001 - the thread's top: whoever waits gets whatever it was
        result = error
    with contextlib.suppress(InvalidStateError):  # the watchdog answered first, or nobody waits any more
        if isinstance(result, Reply):
            future.set_result(result)
        else:
            future.set_exception(result)


def environment(owned: Ownership, number: int) -> dict[str, str]:
    """What the worker of one device sees: that device alone, and no other platform."""
    if owned.rehearsal or owned.platform != "tpu":
        # One thread: several would wait for each other whenever something else runs on this machine.
        return {
            "JAX_PLATFORMS": "cpu", "NPROC": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
            "JAX_CPU_ENABLE_ASYNC_DISPATCH": "false",
        }  # fmt: skip
    passed = {k: v for k, v in os.environ.items() if k.startswith(PASSED_ON)}
    alone = {
        "TPU_VISIBLE_CHIPS": str(number), "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1", "TPU_PROCESS_BOUNDS": "1,1,1",
    } if owned.chips > 1 else {}  # fmt: skip
    return {**passed, **alone, "JAX_PLATFORMS": "tpu,cpu"}


class Fleet:
    """All devices of this process. ``place`` gives one that is free, its lease taken; tasks spread over them."""

    def __init__(self, owned: Ownership, places: list[Place] | None = None) -> None:
        self.ownership = owned
        kind = KernelPlace if owned.owner == "kernel" else WorkerPlace
        self.places = places if places is not None else [kind(owned, n) for n in range(max(1, owned.chips))]
        self._free = list(self.places)
        self._guard = threading.Lock()
        self._closed = False

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncIterator[Place]:
        """Waits for a free device. Raises ``ChipBusy`` when another process has it, ``InfrastructureError`` when all
        of this process's are lost."""
        found = await self._next()
        try:
            found.begin()
            yield found
            found.pause()
        except JobRefused as refusal:
            await self._tidied(found, ended=refusal.kind == "halt")
            raise
        except (InfrastructureError, asyncio.CancelledError):
            found.end("the measurement was stopped")
            raise
        except Exception:
            await self._tidied(found, ended=False)
            raise
        finally:
            with self._guard:
                self._free.append(found)

    async def _tidied(self, found: Place, ended: bool) -> None:
        """After a refusal: the device goes on, without the arrays of the measurement. ``ended``: it does not."""
        if not ended:
            with contextlib.suppress(JobRefused, InfrastructureError):
                await found.ask("close", {}, seconds=30.0)
                found.pause()
                return
        found.end("the device stopped")

    async def _next(self) -> Place:
        while True:
            with self._guard:
                usable = [p for p in self.places if not p.lost]
                if self._closed:
                    raise ExecutorClosed("The chip was given back.")
                if not usable:
                    raise InfrastructureError(f"Nothing can be measured: {self.places[0].lost}.")
                free = [p for p in self._free if not p.lost]
                if free:
                    self._free.remove(free[0])
                    return free[0]
            await asyncio.sleep(0.05)

    def close(self) -> None:
        with self._guard:
            self._closed = True
        for place in self.places:
            place.end("maxkernel was closed")


_fleets: list[Fleet] = []


def fleet() -> Fleet | None:
    """This process's devices; None where there is nothing to measure on."""
    owned = ownership()
    if owned.owner == "none":
        return None
    if not _fleets:
        _fleets.append(Fleet(owned))
        atexit.register(close_fleet)
    return _fleets[0]


def close_fleet() -> None:
    """Gives every device back, and forgets who owned them."""
    while _fleets:
        _fleets.pop().close()
    forget()


def give_chip_to_notebook() -> None:
    """Ends the worker that holds the TPU, and has this notebook's jax look for its devices anew.

    Arrays that the notebook's jax made on the CPU before become unusable; make them again.
    """
    import jax.extend.backend

    close_fleet()
    jax.extend.backend.clear_backends()
