"""TPUs without a TPU: chips, ahead-of-time compilation, the schedule's reader, time model, diagnosis.

``profile(fn, *specs, chip="v6e")`` gives a function's ``ScheduleProfile``; it compiles in the evaluator's workers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_LAZY = {
    "profile": "maxkernel_nb.evaluate.profiling",
    "diagnose": "maxkernel_nb.tpu.diagnosis",
    "Diagnosis": "maxkernel_nb.tpu.diagnosis",
    "ScheduleProfile": "maxkernel_nb.tpu.profiles",
}
__all__ = ["Diagnosis", "ScheduleProfile", "diagnose", "profile"]

if TYPE_CHECKING:
    from maxkernel_nb.evaluate.profiling import profile
    from maxkernel_nb.tpu.diagnosis import Diagnosis, diagnose
    from maxkernel_nb.tpu.profiles import ScheduleProfile


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'maxkernel_nb.tpu' has no attribute {name!r}")
