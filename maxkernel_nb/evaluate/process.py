"""One worker process as the notebook sees it: started, asked, killed with everything it started."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import maxkernel_nb
from maxkernel_nb.errors import InfrastructureError
from maxkernel_nb.evaluate import wire
from maxkernel_nb.evaluate.executor import (
    DeadlinePassed,
    Job,
    JobRefused,
    Reply,
    WorkerBabbled,
    WorkerDied,
    WorkerKind,
)

FOLDER = "maxkernel-worker-"  # in the temporary folder; then the notebook's process id and the worker's kind
START_SECONDS = 120.0
SAID = 500  # characters of a worker's own words in an error
PASSED_ON = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TZ")  # of the notebook's environment; nothing else


class WorkerTainted(Exception):
    """The job was refused, and the worker is not to be used again."""

    def __init__(self, refusal: JobRefused) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class WorkerProcess:
    """A warm worker. Not thread-safe, except ``kill``."""

    def __init__(self, kind: WorkerKind, memory_bytes: int, more: Mapping[str, str] | None = None) -> None:
        """``more``: variables of this worker's environment, over the ones that every worker of its kind has."""
        sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-{kind}-"))
        request_read, self._requests = os.pipe()
        self._replies, reply_write = os.pipe()
        os.set_blocking(self._requests, False)
        home = self.folder / "home"
        home.mkdir()
        try:
            self.process = subprocess.Popen(
                command(kind, request_read, reply_write, memory_bytes),
                cwd=home,
                env={**environment(kind, self.folder), **(more or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=(self.folder / "log").open("wb"),
                pass_fds=(request_read, reply_write),
                start_new_session=True,
            )
        finally:
            os.close(request_read)
            os.close(reply_write)
        self.ready = False
        self.spent = False  # the worker itself asks not to be used again

    @property
    def pid(self) -> int:
        return self.process.pid

    def call(self, job: Job) -> Reply:
        """Sends the job and waits for its answer; see ``Executor`` for what it raises."""
        self._await_start()
        deadline = time.monotonic() + job.seconds
        try:
            wire.send(self._requests, wire.Message({"op": job.op, "args": dict(job.args)}, job.buffers), deadline)
        except wire.WireTimeout as error:
            raise DeadlinePassed(job.seconds) from error
        except wire.WireError as error:
            raise self._death() from error
        return self._receive(deadline, job.seconds)

    def _await_start(self) -> None:
        if self.ready:
            return
        try:
            self._receive(time.monotonic() + START_SECONDS, START_SECONDS)
        except (DeadlinePassed, WorkerDied) as error:
            raise InfrastructureError(f"A worker did not start: {error}") from error
        self.ready = True

    def _receive(self, deadline: float, seconds: float) -> Reply:
        try:
            message = wire.receive(self._replies, deadline)
        except wire.WireTimeout as error:
            raise DeadlinePassed(seconds) from error
        except wire.NoMessage as error:
            raise _babbled(error) from error
        except wire.WireError as error:
            raise self._death() from error
        reply = unpack(message)
        self.spent = bool(reply.data.pop("retire", False))
        return reply

    def _death(self) -> WorkerDied:
        try:
            code = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return WorkerDied("The worker closed its channel without an answer.")
        if code < 0:
            return WorkerDied(f"The worker died of {signal.Signals(-code).name}.{self._last_words()}", None, -code)
        return WorkerDied(f"The worker ended with exit code {code}.{self._last_words()}", code)

    def _last_words(self) -> str:
        try:
            tail = (self.folder / "log").read_bytes()[-2000:].decode(errors="replace").strip()
        except OSError:
            return ""
        return f" Its last line: {tail.splitlines()[-1][:300]}" if tail else ""

    def kill(self) -> None:
        """Kills the whole process group and removes the worker's folder. Safe to call twice, from any thread."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def dispose(self) -> None:
        self.kill()
        for fd in (self._requests, self._replies):
            os.close(fd)


@functools.cache
def sweep() -> None:
    """Removes, once, the folders that notebooks left behind when they were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*-*"):
        owner = folder.name.removeprefix(FOLDER).split("-")[0]
        if owner.isdecimal() and not _alive(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def unpack(message: wire.Message) -> Reply:
    """Turns a worker's message into its reply, or raises what it reports; ``WorkerBabbled`` when it is neither."""
    match message.header:
        case {"status": "ok", **rest} if isinstance(data := rest.get("data") or {}, dict):
            return Reply(data, message.buffers)
        case {"status": "refused", "refusal": dict(told)} if _is_refusal(told):
            refusal = JobRefused(**{name: _readable(value) for name, value in told.items()})
            if refusal.extra.pop("retire", False):
                raise WorkerTainted(refusal)
            raise refusal
        case {"status": "fault", "message": str(why)}:
            raise InfrastructureError(f"A worker failed at its own work: {why[:SAID]}")
        case header:
            raise _babbled(repr(header)[:SAID])


def _is_refusal(told: dict[str, Any]) -> bool:
    words = (told.get("kind"), told.get("message"), told.get("advice", ""))
    return all(isinstance(w, str) for w in words) and isinstance(told.get("line", 0), int) and "self" not in told


def _readable(value: Any) -> Any:
    """Text as any encoder takes it: JSON may carry half a surrogate pair."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def _babbled(what: object) -> WorkerBabbled:
    return WorkerBabbled(f"The worker sent what is no answer and was killed: {what}")


def command(kind: WorkerKind, read: int, write: int, memory_bytes: int) -> list[str]:
    options = [str(kind), str(read), str(write), str(memory_bytes), str(os.getpid())]
    return [sys.executable, "-P", "-m", "maxkernel_nb.evaluate.worker", *options]


def environment(kind: WorkerKind, folder: Path) -> Mapping[str, str]:
    """An allow-list: no key, token or notebook setting reaches a worker."""
    package_root = str(Path(maxkernel_nb.__file__).parent.parent)
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    user_base = {"PYTHONUSERBASE": site.getuserbase()} if site.ENABLE_USER_SITE else {}
    home = str(folder / "home")
    return {
        **passed,
        **user_base,
        **(_compiler_environment(folder / "dump") if kind is WorkerKind.COMPILER else {}),
        "HOME": home,
        "TMPDIR": home,
        "PYTHONPATH": package_root,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "OPENBLAS_NUM_THREADS": "1",  # others wait spinning, and workers are several
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }


def _compiler_environment(dump: Path) -> dict[str, str]:
    from maxkernel_nb.tpu.aot import worker_environment

    dump.mkdir()
    return worker_environment(dump)
