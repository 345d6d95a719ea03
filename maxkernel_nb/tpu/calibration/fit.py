"""Fits the constants to the published times, and holds each row against constants that never saw it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from maxkernel_nb.tpu.calibration.rows import Environment, Row, modelled_ms
from maxkernel_nb.tpu.constants import Constants

GRID: dict[str, tuple[float, ...]] = {
    "hbm_efficiency": (0.84, 0.86, 0.88, 0.9, 0.92, 0.94),
    "one_way_efficiency": (0.7, 0.72, 0.74, 0.76, 0.78, 0.8, 0.82),
    "dma_latency_us": (0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
    "dma_setup_us": (0.12, 0.14, 0.16, 0.18, 0.2),
    "contention": (0.0, 0.04, 0.06, 0.08, 0.1, 0.12, 0.14, 0.16),
    "launch_us": (0.0, 0.5, 1.0, 2.0),
}
PASSES = 3
OUTLIER = 0.25  # a row that is off by more counts no more than this: something else is wrong with it


class Fit:
    """Coordinate search over ``GRID`` for the least mean error; every modelled time is computed once."""

    def __init__(self, environment: Environment, rows: Sequence[Row]) -> None:
        self.rows = [r for r in rows if r.program in environment.programs]
        self.environment = environment
        self._known: dict[tuple[str, Constants], float] = {}

    def modelled(self, program: str, constants: Constants) -> float:
        key = (program, constants)
        if key not in self._known:
            self._known[key] = modelled_ms(self.environment.programs[program], constants)
        return self._known[key]

    def loss(self, rows: Iterable[Row], constants: Constants) -> float:
        errors = [abs(math.log(self.modelled(r.program, constants) / r.published_ms)) for r in rows]
        return sum(min(e, OUTLIER) for e in errors) / len(errors)

    def best(self, without: str = "", start: Constants | None = None) -> Constants:
        """The constants that fit all rows but ``without`` (a program's name) best."""
        rows = [r for r in self.rows if r.program != without]
        found = start or Constants()
        for _ in range(PASSES):
            before = found
            for name, values in GRID.items():
                tries = [found, *(found.model_copy(update={name: v}) for v in values)]
                found = min(tries, key=lambda c: self.loss(rows, c))
            if found == before:
                break
        return found

    def leave_one_out(self, start: Constants) -> dict[str, Constants]:
        """For each program, the constants fitted without it."""
        return {r.program: self.best(r.program, start) for r in self.rows}
