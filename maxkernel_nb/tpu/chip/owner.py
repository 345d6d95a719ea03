"""Which process measures: decided once a kernel, from what the notebook's jax has already done.

``kernel``: the notebook's jax computes on the TPU, so it holds the chip, and measuring happens in the notebook's
process. ``worker``: the notebook's jax has not begun, or is on the CPU; one worker process holds the chip, and the
notebook stays on the CPU. ``none``: there is nothing to measure on. Environment variable ``MAXKERNEL_MEASURE``:
``auto`` (default), ``off``, ``cpu`` or ``cpu:kernel`` (a rehearsal: XLA's CPU backend stands in for the chip).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from maxkernel_nb.errors import UsageError
from maxkernel_nb.tpu.chips import detect_chip
from maxkernel_nb.tpu.present import count_present_chips, detect_present_chip

VARIABLE = "MAXKERNEL_MEASURE"
CHOICES = ("auto", "off", "cpu", "cpu:kernel")
CPU = "cpu"


@dataclass(frozen=True)
class Ownership:
    """``platform`` is ``tpu``, or ``cpu`` for a rehearsal, or empty. ``chip``: its name where it is known."""

    owner: Literal["kernel", "worker", "none"]
    platform: str
    chips: int
    chip: str
    reason: str
    rehearsal: bool = False  # what is measured then says nothing about a TPU

    def device(self, number: int) -> str:
        """A device's name, for its lock and for a person."""
        return f"{self.platform}{number}"


@dataclass(frozen=True)
class Notebook:
    """What the notebook's process has done with jax. ``platform`` is empty while no backend is in use."""

    platform: str = ""
    kind: str = ""
    devices: int = 0


def decide(choice: str, notebook: Notebook, present: str | None, present_chips: int) -> Ownership:
    """``present``: the chip on this machine's bus, None when there is none."""
    if choice not in CHOICES:
        raise UsageError(f"{VARIABLE} is {choice!r}; set it to one of {', '.join(CHOICES)}.")
    if choice == "off":
        return Ownership("none", "", 0, "", f"measuring is turned off ({VARIABLE}=off): times are modelled")
    if choice.startswith(CPU):
        owner: Literal["kernel", "worker"] = "kernel" if choice.endswith("kernel") else "worker"
        told = f"a rehearsal: the CPU stands in for the chip ({VARIABLE}={choice})"
        return Ownership(owner, CPU, 1, "", told, rehearsal=True)
    if notebook.platform == "tpu":
        chip = detect_chip(notebook.kind) or present or ""
        return Ownership("kernel", "tpu", notebook.devices, chip,
                         "this notebook's jax holds the TPU, so measuring happens in its process")
    if present is None:
        return Ownership("none", "", 0, "", "there is no TPU here: times are modelled")
    why = "is on " + notebook.platform if notebook.platform else "has not begun"
    return Ownership("worker", "tpu", present_chips, present,
                     f"this notebook's jax {why}, so a worker process holds the TPU and the notebook stays on the CPU")


def notebook_state() -> Notebook:
    """Asks jax without starting it."""
    if "jax" not in sys.modules:
        return Notebook()
    from maxkernel_nb import compat

    if not compat.backends_in_use():
        return Notebook()
    import jax

    devices = jax.local_devices()
    return Notebook(devices[0].platform, devices[0].device_kind, len(devices))


_decided: list[Ownership] = []
_guard = threading.Lock()


def ownership(
    environ: Mapping[str, str] | None = None, notebook: Callable[[], Notebook] = notebook_state
) -> Ownership:
    """The decision for this process: made on the first call, the same ever after (``forget`` makes it anew)."""
    with _guard:
        if not _decided:
            choice = (os.environ if environ is None else environ).get(VARIABLE, "").strip().lower() or "auto"
            _decided.append(decide(choice, notebook(), detect_present_chip(), count_present_chips()))
        return _decided[0]


def preview() -> Ownership:
    """What would be decided now."""
    choice = os.environ.get(VARIABLE, "").strip().lower() or "auto"
    return decide(choice, notebook_state(), detect_present_chip(), count_present_chips())


def decided() -> Ownership | None:
    return _decided[0] if _decided else None


def forget() -> None:
    """The next call decides anew: after ``give_chip_to_notebook``, and in tests."""
    with _guard:
        _decided.clear()
