"""The run's own clock: it goes while work is done, once however much runs side by side, and stands for a person."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class WorkClock:
    """Seconds of work since the last ``take``. Time with nothing in progress, or spent waiting, does not count."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._working = self._waiting = 0
        self._since = now()
        self._owed = 0.0

    @contextmanager
    def working(self) -> Iterator[None]:
        self._settle()
        self._working += 1
        try:
            yield
        finally:
            self._settle()
            self._working -= 1

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """For a person's answer or the end of a pause."""
        self._settle()
        self._waiting += 1
        try:
            yield
        finally:
            self._settle()
            self._waiting -= 1

    def take(self) -> float:
        self._settle()
        owed, self._owed = self._owed, 0.0
        return owed

    def _settle(self) -> None:
        now = self._now()
        if self._working and not self._waiting:
            self._owed += now - self._since
        self._since = now
