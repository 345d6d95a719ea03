"""A run's journal: one SQLite file of events, one writer, any number of readers."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

from maxkernel_nb.errors import JournalError
from maxkernel_nb.events import AnyEvent, event_from_json

FILE = "journal.sqlite3"
_VERSION = 1
_SCHEMA = "CREATE TABLE IF NOT EXISTS events (seq INTEGER PRIMARY KEY, at REAL NOT NULL, body TEXT NOT NULL)"


class Journal:
    """The writer. Every ``append`` is committed before it returns; safe to call from several threads.

    Raises ``JournalError`` when another process is writing, or the file cannot be read or written.
    The writer's lock is the kernel's (flock): it goes with the process, however that ends.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mutex = threading.Lock()
        self._lock_file = self._lock()
        with _explained(folder):
            self._db = sqlite3.connect(folder / FILE, check_same_thread=False, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute(_SCHEMA)
            self._db.execute(f"PRAGMA user_version={_VERSION}")

    def _lock(self) -> int:
        with _explained(self.folder):
            handle = os.open(self.folder / "writer.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(handle, 32, 0).decode() or "another process"
            os.close(handle)
            raise JournalError(
                f"Run {self.folder.name} is being driven by process {owner}; stop it there, or restart that kernel."
            ) from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        return handle

    def append(self, event: AnyEvent, at: float) -> None:
        body = json.dumps(event.to_dict(), separators=(",", ":"))
        with self._mutex, _explained(self.folder):
            self._db.execute("INSERT INTO events (at, body) VALUES (?, ?)", (at, body))

    def count(self) -> int:
        with self._mutex, _explained(self.folder):
            return int(self._db.execute("SELECT COUNT(*) FROM events").fetchone()[0])

    def close(self) -> None:
        with self._mutex:
            self._db.close()
            if self._lock_file >= 0:
                os.close(self._lock_file)
                self._lock_file = -1


def writer(folder: Path) -> str:
    """The process that writes this journal now; empty when none does."""
    try:
        with open(folder / "writer.lock", "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read(32).decode() or "unknown"
    except OSError:
        pass
    return ""


def read_events(folder: Path) -> list[AnyEvent]:
    """All committed events, oldest first, without disturbing a writer."""
    return [event for _, event in read_timed_events(folder)]


def read_timed_events(folder: Path) -> list[tuple[float, AnyEvent]]:
    """``(seconds since the epoch, event)`` pairs, oldest first."""
    if not (folder / FILE).is_file():
        raise JournalError(f"There is no journal in {folder}; `%maxkernel list` shows the runs of this project.")
    with _explained(folder), no_collections(), contextlib.closing(sqlite3.connect(folder / FILE)) as db:
        rows = db.execute("SELECT at, body FROM events ORDER BY seq").fetchall()
        return [(at, event_from_json(body)) for at, body in rows]


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """Many small objects that all stay: the collector would look at them again and again (two thirds of the time)."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError, ValueError) as error:
        raise JournalError(
            f"The journal of run {folder.name} cannot be used ({error}); check free space and write access of "
            f"{folder}, or move that folder away and run the cell again."
        ) from error
