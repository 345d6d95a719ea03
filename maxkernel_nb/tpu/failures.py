"""The compiler refuses a program: one typed error with its diagnosis and the memory figures."""

from __future__ import annotations

import math
import re
from typing import Any

from maxkernel_nb.errors import MaxKernelError
from maxkernel_nb.task import Diagnostic
from maxkernel_nb.tpu.diagnosis import Diagnosis, FailureKind, diagnose

MIB = 1024 * 1024
UNITS = {"": 1, "B": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


class CompileFailure(MaxKernelError):
    """The compiler (or the lowering before it) refuses a program.

    ``kind`` is the family, ``diagnosis`` the kind with its place, reason and remedy, ``message`` the cleaned text,
    ``advice`` what to try, ``line`` the 1-based line in the kernel's own source (0 where unknown),
    ``used_bytes``/``limit_bytes`` the memory figures where the kind has them.
    """

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        advice: str = "",
        line: int = 0,
        used_bytes: int = 0,
        limit_bytes: int = 0,
        diagnosis: Diagnosis | None = None,
    ) -> None:
        super().__init__(message)
        self.kind, self.message, self.advice, self.line = FailureKind(kind), message, advice, line
        self.used_bytes, self.limit_bytes = used_bytes, limit_bytes
        self.diagnosis = diagnosis or Diagnosis(
            kind=self.kind.value, family=self.kind, line=line, advice=advice, message=message
        )

    def __reduce__(self):
        return CompileFailure, (
            self.kind, self.message, self.advice, self.line, self.used_bytes, self.limit_bytes, self.diagnosis,
        )  # fmt: skip

    def diagnostic(self) -> Diagnostic:
        found = self.diagnosis
        return Diagnostic(kind=found.kind, message=self.message, line=self.line, advice=found.explained)

    def numbers(self) -> dict[str, float]:
        """The memory figures under names a verdict can carry; empty where the kind has none."""
        if not self.used_bytes:
            return {}
        return {"used_bytes": float(self.used_bytes), "limit_bytes": float(self.limit_bytes)}


def compile_failure(
    error: BaseException, source_file: str = "", vmem_capacity: int = 0, program: Any = None
) -> CompileFailure:
    """The typed form of any exception from tracing, lowering or compiling.

    ``source_file`` is the file name under which the candidate's source was compiled: the nearest of its lines becomes
    ``line``, found in the traced ``program`` (a jaxpr) where the error does not tell. ``vmem_capacity`` (bytes of the
    chip) sharpens the advice.
    """
    if isinstance(error, CompileFailure):
        return error
    raw = str(error) or type(error).__name__
    found = diagnose(error, source_file, program)
    used, limit = memory_figures(raw)
    if used and found.family in (FailureKind.VMEM_EXCEEDED, FailureKind.SMEM_EXCEEDED):
        found = found.model_copy(update={"message": memory_message(raw, used, limit)})
    if used and found.kind == "vmem-exceeded":
        found = found.model_copy(update={"advice": vmem_advice(used, limit, vmem_capacity)})
    return CompileFailure(found.family, found.message, found.advice, found.line, used, limit, found)


def memory_message(raw: str, used: int, limit: int) -> str:
    """One sentence for an allocation that does not fit, with the largest windows where the compiler lists them."""
    space = "SMEM" if re.search(r"space=smem|memory space smem", raw) else "VMEM"
    text = f"The kernel asks for {used / MIB:.1f} MiB of {space} and {limit / MIB:.1f} MiB are allowed"
    windows = re.findall(
        r"(input|output) window allocation for operator (?:input|output) (\d+)\. The window shape is ([\w\[\],]+), "
        r"while[^.]*\..*?This allocation (?:is|has) ([^.'\n]+)",
        raw,
        flags=re.S,
    )
    listed = [f"{kind} {i} window {shape} ({how})" for kind, i, shape, how in windows[:3]]
    return f"{text}: {'; '.join(listed)}." if listed else f"{text}."


def vmem_advice(used: float, limit: float, capacity: float = 0) -> str:
    """What to try when a kernel needs ``used`` bytes of VMEM and may have ``limit``; ``capacity``: the chip's."""
    shrink = f"Make the largest blocks about {max(used / max(limit, 1), 1.1):.1f}x smaller"
    if used < 0.9 * capacity:
        need = math.ceil(used / MIB * 1.1)
        return f"{shrink}, or raise vmem_limit_bytes to at least {need} MiB (the chip has {capacity / MIB:.0f})."
    return f"{shrink}, or walk the long axis with a grid axis or an inner fori_loop."


def memory_figures(raw: str) -> tuple[int, int]:
    """(used, limit) in bytes as the compiler's text gives them, (0, 0) where it gives none."""
    size = r"([\d.]+)([KMG]?)i?B?"
    for pattern in (
        rf"Scoped allocation with size {size} and limit {size}",
        rf"Used {size} of {size}",
        rf"\(size={size}\) would exceed memory \(size={size}\)",
        rf"\({size}\) exceeds available HBM \({size}\)",
    ):
        match = re.search(pattern, raw)
        if match:
            a, ua, b, ub = match.groups()
            return _bytes(a, ua), _bytes(b, ub)
    return 0, 0


def _bytes(number: str, unit: str) -> int:
    return int(float(number.rstrip(".")) * UNITS[unit])
