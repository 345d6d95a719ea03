"""When a chip may be measured: never while a person's cell runs. Plain threading, so that loading stays cheap.

A cell that waits for a run (``run.wait()``, ``%maxkernel wait``) is not at work: it lets measuring go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_WAIT_S = 0.2  # what a cell waits at most for the run in flight


class Quiet:
    """``cells`` that run, and those that only wait, are counted; ``epoch`` goes up with each cell that begins."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._cells = 0
        self._waiting = 0
        self._runs = 0
        self.epoch = 0

    # -- the notebook ------------------------------------------------------------------------------------------------

    def cell_begins(self) -> float:
        """Called before a cell: no new run starts, and the one in flight may end. Gives the seconds it waited."""
        began = time.monotonic()
        with self._changed:
            self._cells += 1
            self.epoch += 1
            self._changed.wait_for(lambda: self._runs == 0, timeout=LONGEST_WAIT_S)
        return time.monotonic() - began

    def cell_ends(self) -> None:
        with self._changed:
            self._cells = max(0, self._cells - 1)
            self._changed.notify_all()

    @contextmanager
    def only_waiting(self) -> Iterator[None]:
        """Around what makes a cell wait for a run."""
        with self._changed:
            self._waiting += 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._waiting -= 1

    # -- who measures ------------------------------------------------------------------------------------------------

    @property
    def still(self) -> bool:
        return self._cells == 0 or self._waiting > 0

    def wait(self, seconds: float) -> bool:
        """Until no cell is at work, for ``seconds`` at most. True when it is still."""
        with self._changed:
            return self._changed.wait_for(lambda: self.still, timeout=seconds)

    def enter(self) -> bool:
        """Before one run on the chip: False while a cell is at work. After True, ``leave`` must follow."""
        with self._changed:
            if not self.still:
                return False
            self._runs += 1
            return True

    def leave(self) -> None:
        with self._changed:
            self._runs -= 1
            self._changed.notify_all()


QUIET = Quiet()  # one a process, as there is one notebook
