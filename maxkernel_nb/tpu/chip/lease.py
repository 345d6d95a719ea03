"""One process on one chip: a lock file for each device, with its owner's process id in it.

The lock is the operating system's (``flock``): it goes with its process, however that ends, so a lock that is free but
names somebody is stale and is taken over. What a lock cannot know, a foreign program that opened the chip itself, is
seen in ``/proc``.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from maxkernel_nb.errors import InfrastructureError

FOLDER = "maxkernel-chips"
DEVICES = ("/dev/accel*", "/dev/vfio/[0-9]*")
LIBTPU_LOCK = Path("/tmp/libtpu_lockfile")


class ChipBusy(InfrastructureError):
    """Another process has the chip; the message says which, and what to do."""


@dataclass(frozen=True)
class Holder:
    """Who has, or had, a chip. ``alive``: the process still runs."""

    pid: int
    since: float
    purpose: str
    alive: bool


class Lease:
    """A device's lock, held from ``Lease.take`` until ``release`` (or the end of the process)."""

    def __init__(self, device: str, handle: int, took_over: Holder | None) -> None:
        self.device, self.took_over = device, took_over
        self._handle: int | None = handle

    @property
    def held(self) -> bool:
        return self._handle is not None

    @classmethod
    def take(cls, device: str, purpose: str, folder: Path | None = None) -> Lease:
        """``device`` is a name such as ``tpu0``. Raises ``ChipBusy``."""
        path = lock_path(device, folder)
        handle = _open(path)
        if not _lock(handle):
            holder = _read(path)
            os.close(handle)
            raise ChipBusy(_busy(device, holder))
        before = _read(path)
        _write(handle, purpose)
        stale = before if before is not None and before.pid != os.getpid() else None
        return cls(device, handle, stale)

    def release(self) -> None:
        """Safe to call twice."""
        handle, self._handle = self._handle, None
        if handle is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(handle, 0)
            os.close(handle)


def lock_path(device: str, folder: Path | None = None) -> Path:
    return (folder or Path(tempfile.gettempdir()) / FOLDER) / f"{device}.lock"


def holder(device: str, folder: Path | None = None) -> Holder | None:
    """Who holds the device's lock now, without taking it; None when it is free."""
    path = lock_path(device, folder)
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        return None if _lock(handle) else (_read(path) or Holder(0, 0.0, "", True))
    finally:
        os.close(handle)


def _open(path: Path) -> int:
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(OSError):
                path.parent.chmod(0o1777)  # every user of the machine, each for his own files
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise ChipBusy(
            f"The chip's lock {path} cannot be opened ({error.strerror}): another user may have made it; ask for its "
            "removal, or measure later."
        ) from error


def _lock(handle: int) -> bool:
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _write(handle: int, purpose: str) -> None:
    about = json.dumps({"pid": os.getpid(), "since": time.time(), "purpose": purpose}).encode()
    os.ftruncate(handle, 0)
    os.pwrite(handle, about, 0)


def _read(path: Path) -> Holder | None:
    try:
        told = json.loads(path.read_bytes())
        return Holder(int(told["pid"]), float(told["since"]), str(told["purpose"]), _alive(int(told["pid"])))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _busy(device: str, who: Holder | None) -> str:
    if who is None:
        return f"Chip {device} is locked by another process; wait for it to end."
    return (
        f"Chip {device} is measured by process {who.pid} ({who.purpose}) since "
        f"{time.strftime('%H:%M', time.localtime(who.since))}; wait for it, or stop that notebook's runs."
    )


def opened_by(patterns: Iterable[str] = DEVICES, proc: Path = Path("/proc")) -> tuple[int, ...]:
    """Process ids, other than ours, that have the chip's device file open. Only processes of this user can be seen."""
    found = set()
    for link in proc.glob("[0-9]*/fd/*"):
        pid = int(link.parent.parent.name)
        if pid == os.getpid() or pid in found:
            continue
        with contextlib.suppress(OSError):
            target = os.readlink(link)
            if any(Path(target).match(p.lstrip("/")) for p in patterns):
                found.add(pid)
    return tuple(sorted(found))


def explain_start(text: str, proc: Path = Path("/proc"), lock: Path = LIBTPU_LOCK) -> str:
    """Why a chip could not be opened, in one sentence, from the runtime's own words; empty when they say nothing."""
    low = text.lower()
    if not any(word in low for word in ("lockfile", "already in use", "device or resource busy", "in use by")):
        return ""
    if others := opened_by(proc=proc):
        pids = ", ".join(map(str, others))
        return f"Process {pids} has the TPU open, and only one process can: end it, or measure there."
    if lock.exists():
        return (
            f"The TPU's lock file {lock} was left behind by a process that has ended: remove it (rm {lock}) and run "
            "again."
        )
    return "Another process has the TPU open (of another user, for it cannot be seen): end it, then run again."


@contextlib.contextmanager
def leased(device: str, purpose: str, folder: Path | None = None) -> Iterator[Lease]:
    lease = Lease.take(device, purpose, folder)
    try:
        yield lease
    finally:
        lease.release()
