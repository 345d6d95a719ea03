"""At most one write per interval, always ending with the newest value, on a thread that lives only while needed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

log = logging.getLogger(__name__)
T = TypeVar("T")
_REST = 3.0  # times as long as a write took, before the next one
_LONGEST_REST_S = 1.0  # a person does not wait longer for the newest


class Coalescer(Generic[T]):
    """``submit`` returns at once from any thread; ``write`` runs on one background thread at a time.

    A value submitted after a quiet interval is written immediately; while values keep coming, one is written every
    ``interval`` seconds and the ones in between are dropped. A write that takes long makes the next one later, so that
    writing takes a quarter of the time where it can: a large run leaves the kernel to the person's cells.
    """

    def __init__(self, write: Callable[[T], None], interval: float = 0.1) -> None:
        self._write = write
        self._interval = interval
        self._idle = threading.Condition()
        self._pending: list[T] = []
        self._running = False

    def submit(self, value: T) -> None:
        with self._idle:
            self._pending = [value]
            if self._running:
                return
            self._running = True
        try:
            threading.Thread(target=self._drain, name="maxkernel-panel", daemon=True).start()
        except RuntimeError:  # the interpreter is shutting down and starts no thread any more
            self._drain()

    def _drain(self) -> None:
        while (value := self._take()) is not None:
            began = time.monotonic()
            try:
                self._write(value[0])
            except Exception:  # the dispatcher: a view that cannot be written must not stop the run
                log.exception("a panel could not be updated")
            with self._idle:
                self._idle.wait(max(self._interval, min(_LONGEST_REST_S, _REST * (time.monotonic() - began))))

    def _take(self) -> list[T] | None:
        with self._idle:
            value, self._pending = self._pending, []
            if value:
                return value
            self._running = False
            self._idle.notify_all()
            return None

    def settle(self, timeout: float | None = None) -> bool:
        """Waits until everything submitted is written. False after ``timeout`` seconds."""
        with self._idle:
            return self._idle.wait_for(lambda: not self._running, timeout)
