"""The executor on a Ray cluster: the same queue and the same sandboxed workers, each hosted by an actor on some node.

Jobs are text and bytes; this package, with the same versions, has to be installed on the nodes. A worker that dies is
reported like a local one. A node that is lost takes its actors with it: their jobs are done again elsewhere.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

from maxkernel_nb.errors import InfrastructureError, UsageError
from maxkernel_nb.evaluate.executor import (
    DeadlinePassed,
    Job,
    JobRefused,
    Reply,
    WorkerBabbled,
    WorkerDied,
    WorkerKind,
)
from maxkernel_nb.evaluate.pool import LocalPool
from maxkernel_nb.evaluate.process import START_SECONDS, WorkerProcess, WorkerTainted

_LOST = 4  # times a job's node may be lost before the job counts as failed by our own fault
_PATIENCE = 60.0  # seconds beyond a job's own for Ray to start an actor and carry the answer
# Which nodes may host a kind. No processor is reserved: a lost node must not leave actors waiting for one for ever.
RESOURCES: Mapping[WorkerKind, Mapping[str, float]] = {WorkerKind.CHIP: {"TPU": 1}}


def ray_executor(address: str | None = None, places: Mapping[WorkerKind, int] | None = None,
                 memory_bytes: int = 8 << 30) -> LocalPool:
    """Connects to the cluster at ``address`` (default: RAY_ADDRESS, else ``auto``).

    ``places``: workers of each kind; by default one candidate worker and one compiler a processor of the cluster, and a
    judge for every four. Raises ``UsageError`` when Ray is not installed or no cluster answers.
    """
    ray = _ray()
    if not ray.is_initialized():
        where = address or os.environ.get("RAY_ADDRESS") or "auto"
        try:
            ray.init(address=where, log_to_driver=False, configure_logging=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UsageError(
                f"No Ray cluster answers at {where!r} ({str(error)[:200]}); start one with `ray start --head`, or name "
                "its address in RAY_ADDRESS."
            ) from error
    if places is None:
        processors = max(1, int(ray.cluster_resources().get("CPU", 1)))
        chips = int(ray.cluster_resources().get("TPU", 0))
        places = {WorkerKind.CANDIDATE: processors, WorkerKind.COMPILER: processors,
                  WorkerKind.JUDGE: -(-processors // 4), WorkerKind.CHIP: max(1, chips)}
    return LocalPool(places, memory_bytes, start=RemoteWorker, most=max(places.values()))  # type: ignore[arg-type]


def ray_width() -> int:
    """Draws a search keeps in flight on the cluster: eight a processor. They are observed in order, and one slow
    verdict must not leave the others idle (docs/scale.md has the figures)."""
    return max(2, 8 * int(_ray().cluster_resources().get("CPU", 1)))


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise UsageError("The Ray executor needs ray; install it with: pip install 'maxkernel-nb[ray]'") from error
    return ray


class Host:
    """The actor: one worker process on its node. Answers are data, whatever happened."""

    def __init__(self, kind: str, memory_bytes: int) -> None:
        self.kind, self.memory_bytes = WorkerKind(kind), memory_bytes
        self.worker: WorkerProcess | None = None

    def call(self, op: str, args: dict[str, Any], buffers: tuple[bytes, ...], seconds: float) -> dict[str, Any]:
        try:
            self.worker = self.worker or WorkerProcess(self.kind, self.memory_bytes)
            reply = self.worker.call(Job(self.kind, op, args, buffers, seconds))
            return {"reply": reply.data, "buffers": reply.buffers, "spent": self.worker.spent}
        except WorkerTainted as tainted:
            self.dispose()
            return {"refused": _told(tainted.refusal), "tainted": True}
        except JobRefused as refusal:
            return {"refused": _told(refusal)}
        except DeadlinePassed as late:
            self.dispose()
            return {"late": late.seconds}
        except WorkerDied as death:
            self.dispose()
            return {"died": [str(death), death.code, death.signal], "babbled": isinstance(death, WorkerBabbled)}
        except (InfrastructureError, OSError) as error:
            self.dispose()
            return {"fault": str(error)}

    def pid(self) -> int:
        return self.worker.pid if self.worker is not None else 0

    def dispose(self) -> None:
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.dispose()


class RemoteWorker:
    """To the pool, a worker like a local one."""

    def __init__(self, kind: WorkerKind, memory_bytes: int) -> None:
        self.kind, self.memory_bytes, self.spent = kind, memory_bytes, False
        self._killed = False
        self._actor = self._start()

    def _start(self) -> Any:
        options = {"num_cpus": 0, "max_restarts": 0, "scheduling_strategy": "SPREAD",
                   "resources": dict(RESOURCES.get(self.kind, {}))}
        return _ray().remote(Host).options(**options).remote(str(self.kind), self.memory_bytes)

    @property
    def pid(self) -> int:
        """Of the worker process, on its node; 0 before its first job."""
        return int(_ray().get(self._actor.pid.remote()))

    def call(self, job: Job) -> Reply:
        answer = self._answer(job)
        match answer:
            case {"reply": data, "buffers": buffers, "spent": spent}:
                self.spent = spent
                return Reply(data, tuple(buffers))
            case {"refused": told}:
                refusal = JobRefused(**told)
                raise WorkerTainted(refusal) if answer.get("tainted") else refusal
            case {"late": seconds}:
                raise DeadlinePassed(seconds)
            case {"died": [reason, code, signal], "babbled": babbled}:
                raise (WorkerBabbled if babbled else WorkerDied)(reason, code, signal)
            case _:
                raise InfrastructureError(str(answer.get("fault", answer)))

    def _answer(self, job: Job) -> dict[str, Any]:
        """Again on another node when its own is lost; a node is lost by nobody's fault."""
        ray = _ray()
        for _ in range(_LOST):
            try:
                asked = self._actor.call.remote(job.op, dict(job.args), job.buffers, job.seconds)
                return ray.get(asked, timeout=job.seconds + START_SECONDS + _PATIENCE)
            except ray.exceptions.GetTimeoutError as error:
                raise InfrastructureError(f"The Ray cluster gave no answer to {job.op} in time.") from error
            except ray.exceptions.RayError:
                if self._killed:
                    raise WorkerDied("The job was cancelled.") from None
                self._actor = self._start()
        raise InfrastructureError(f"The node that ran {job.op} was lost {_LOST} times in a row.")

    def kill(self) -> None:
        self._killed = True
        with contextlib.suppress(Exception):  # the cluster may be gone already
            _ray().kill(self._actor)

    dispose = kill


def _told(refusal: JobRefused) -> dict[str, Any]:
    return {**refusal.extra, "kind": refusal.kind, "message": refusal.message, "line": refusal.line,
            "advice": refusal.advice}
