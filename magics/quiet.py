"""Keeps the chip still while a person's cell runs: tells the engine when cells begin and end."""

from __future__ import annotations

from typing import Any

from maxkernel_nb.tpu.chip.quiet import QUIET, Quiet


class CellWatch:
    """``attach`` and ``detach`` are each other's inverse, also within a cell."""

    def __init__(self, shell: Any, quiet: Quiet = QUIET) -> None:
        self.shell, self.quiet = shell, quiet
        self._open = 0  # cells that began under our watch

    def attach(self) -> None:
        self.shell.events.register("pre_run_cell", self._begins)
        self.shell.events.register("post_run_cell", self._ends)

    def detach(self) -> None:
        self.shell.events.unregister("pre_run_cell", self._begins)
        self.shell.events.unregister("post_run_cell", self._ends)
        while self._open:
            self._ends()

    def _begins(self, *info: Any) -> None:
        self._open += 1
        self.quiet.cell_begins()

    def _ends(self, *result: Any) -> None:
        if self._open:  # the cell that loaded the extension ends without having begun here
            self._open -= 1
            self.quiet.cell_ends()
