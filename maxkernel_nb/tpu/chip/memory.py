"""What a measurement needs of a device's memory, and whether it is there. Only arrays of our own are touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ROTATIONS_MOST = 8
RESERVE = 0.05  # of what is free, left alone
_OUT = ("RESOURCE_EXHAUSTED", "Out of memory", "out of memory", "Ran out of memory in memory space hbm")


@dataclass(frozen=True)
class Need:
    """Bytes: of one set of inputs, of the outputs of both programs, and of the larger program's temporaries."""

    inputs: int
    outputs: int
    temporaries: int

    def total(self, sets: int) -> int:
        return self.inputs * sets + 2 * self.outputs + self.temporaries


class DoesNotFit(Exception):
    """``needed`` and ``free`` bytes; ``ever``: it would fit an empty device."""

    def __init__(self, needed: int, free: int, ever: bool) -> None:
        remedy = (
            "delete arrays that the notebook no longer needs, and resume" if ever else "it is larger than the device"
        )
        super().__init__(f"Measuring needs {size(needed)} of the device's memory and {size(free)} is free: {remedy}.")
        self.needed, self.free, self.ever = needed, free, ever


def free_bytes(device: Any) -> tuple[int | None, int | None]:
    """Free and total bytes of a device, None where the backend does not say (the CPU)."""
    stats = device.memory_stats() or {}
    limit, used = stats.get("bytes_limit"), stats.get("bytes_in_use", 0)
    return (None, None) if not limit else (max(0, int(limit) - int(used)), int(limit))


def sets_that_fit(need: Need, on_chip: int, free: int | None, total: int | None) -> int:
    """How many sets of inputs to rotate through: enough that twice the on-chip memory lies between two uses of one.

    Raises ``DoesNotFit`` when not even one set fits.
    """
    wanted = min(ROTATIONS_MOST, max(2, -(-2 * on_chip // max(need.inputs, 1)) + 1))
    if free is None:
        return wanted
    usable = int(free * (1 - RESERVE))
    if need.total(1) > usable:
        raise DoesNotFit(need.total(1), free, total is None or need.total(1) <= total * (1 - RESERVE))
    return max(1, min(wanted, 1 + (usable - need.total(1)) // max(need.inputs, 1)))


def ran_out(error: BaseException) -> bool:
    return any(word in str(error) for word in _OUT)


def size(count: float) -> str:
    """``1.25 GiB``."""
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} GiB"
