"""Three clocks for one run: the trace, the wall around it, and the slope of N against 2N runs. They must agree."""

from __future__ import annotations

from dataclasses import dataclass


class ClocksDisagree(Exception):
    """The figures contradict each other; the message says which and by how much."""


@dataclass(frozen=True)
class Clocks:
    """Milliseconds a run. ``device``: median in the traces; ``fastest``: a low quantile of it. ``wall``: least time
    around one run that was waited for. ``slope``: least of ``(t(2N) - t(N)) / N`` for runs sent without waiting.
    ``overhead``: the same for an empty program, what sending alone takes. ``abreast``: runs that the device may do at
    once (1 on a TPU; XLA's CPU backend may do as many as it has threads).
    """

    device: float
    fastest: float
    wall: float
    slope: float
    overhead: float
    abreast: int = 1


TOLERANCE = 0.25  # relative; an uncounted or double-counted part of a program is larger than that


def agree(clocks: Clocks, who: str, tolerance: float = TOLERANCE) -> None:
    """Raises ``ClocksDisagree`` when the device time claims more than the wall allows, or less than the slope shows."""
    c = clocks
    if min(c.device, c.fastest) <= 0:
        raise ClocksDisagree(f"The trace gives {who} no duration.")
    if c.fastest > c.wall * (1 + tolerance):
        raise ClocksDisagree(
            f"The trace gives {who} {c.fastest:.4g} ms where the wall clock saw all of it in {c.wall:.4g} ms."
        )
    if c.slope < c.fastest * (1 - tolerance) / c.abreast:
        raise ClocksDisagree(
            f"The trace gives {who} {c.fastest:.4g} ms, but each further run takes only {c.slope:.4g} ms."
        )
    if c.slope > c.device * (1 + tolerance) + c.overhead * (1 + tolerance):
        raise ClocksDisagree(
            f"Each further run of {who} takes {c.slope:.4g} ms, of which the trace shows only {c.device:.4g} ms "
            f"(sending takes {c.overhead:.4g} ms): part of the work is not in the trace."
        )
