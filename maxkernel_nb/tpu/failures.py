"""Errors of tracing, lowering and compiling a kernel, sorted into kinds with advice and without the noise."""

from __future__ import annotations

import math
import re
import traceback
from enum import StrEnum
from pathlib import Path

from maxkernel_nb.errors import MaxKernelError
from maxkernel_nb.task import Diagnostic

MIB = 1024 * 1024
UNITS = {"": 1, "B": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


class FailureKind(StrEnum):
    VMEM_EXCEEDED = "vmem-exceeded"
    SMEM_EXCEEDED = "smem-exceeded"
    HBM_EXCEEDED = "hbm-exceeded"
    UNSUPPORTED_OP = "unsupported-op"
    BLOCK_ALIGNMENT = "block-alignment"
    MOSAIC_LAYOUT = "mosaic-layout"
    DTYPE = "dtype"
    OTHER = "other"


class CompileFailure(MaxKernelError):
    """The compiler (or the lowering before it) refuses a program.

    ``message`` is the cleaned text, ``advice`` what to try, ``line`` the 1-based line in the kernel's own source (0
    where unknown), ``used_bytes``/``limit_bytes`` the memory figures where the kind has them.
    """

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        advice: str = "",
        line: int = 0,
        used_bytes: int = 0,
        limit_bytes: int = 0,
    ) -> None:
        super().__init__(message)
        self.kind, self.message, self.advice, self.line = FailureKind(kind), message, advice, line
        self.used_bytes, self.limit_bytes = used_bytes, limit_bytes

    def __reduce__(self):
        return CompileFailure, (
            self.kind, self.message, self.advice, self.line, self.used_bytes, self.limit_bytes,
        )  # fmt: skip

    def diagnostic(self) -> Diagnostic:
        return Diagnostic(kind=self.kind.value, message=self.message, line=self.line, advice=self.advice)

    def numbers(self) -> dict[str, float]:
        """The memory figures under names a verdict can carry; empty where the kind has none."""
        if not self.used_bytes:
            return {}
        return {"used_bytes": float(self.used_bytes), "limit_bytes": float(self.limit_bytes)}


# First match wins: (kind, pattern, advice). Patterns were taken from errors provoked on jax 0.10.2 / libtpu 0.0.42.1.
RULES: tuple[tuple[FailureKind, str, str], ...] = (
    (
        FailureKind.SMEM_EXCEEDED,
        r"space=smem|memory space smem",
        "SMEM holds 1 MiB and pads the last axis to 128 words: pass long tables as 1-D, or keep them in HBM.",
    ),
    (
        FailureKind.VMEM_EXCEEDED,
        r"space=vmem|memory space vmem|ScopedVmemOom|scoped vmem",
        "Make the largest blocks smaller, or raise vmem_limit_bytes in pltpu.CompilerParams.",
    ),
    (
        FailureKind.HBM_EXCEEDED,
        r"[Rr]an out of memory (on|in memory space) (HBM|hbm)|exceeds available HBM",
        "The arrays and temporaries do not fit the chip's HBM: use smaller shapes or a chip with more memory.",
    ),
    (
        FailureKind.BLOCK_ALIGNMENT,
        r"last two dimensions of your block shape|rank 1 block shapes|MisalignedBlock",
        "Make the last two block sizes multiples of 8 (16 for bf16, 32 for int8) and 128, or equal to the array's.",
    ),
    (
        FailureKind.BLOCK_ALIGNMENT,
        r"E2003|UnprovenMemoryAccessAlignment|cannot statically prove that index|must be aligned to tiling"
        r"|along tiled dimensions must be aligned",
        "Index in whole tiles: wrap the start in pl.multiple_of(i, 128) (lanes) or 8/16/32 (rows), or move the "
        "dynamic index to a leading axis.",
    ),
    (
        FailureKind.UNSUPPORTED_OP,
        r"Unimplemented primitive in Pallas TPU lowering[^:]*: *(?P<op>[\w-]+)",
        "Write {op} with operations that Pallas lowers for TPU (slices of refs, dot, where, reductions).",
    ),
    (
        FailureKind.UNSUPPORTED_OP,
        r"host callback|different from the lowering platform|Only interpret mode is supported",
        "Remove host callbacks, debug prints and interpret=True from the kernel.",
    ),
    (
        FailureKind.DTYPE,
        r"E2001|Bad (lhs|rhs) type|Expected matmul acc|Invalid vector type|Only vector<|Please cast your input"
        r"|X64|Unsupported (element|input|target) type|Unsupported data ?type|Unsupported cast|f64|dtype mismatch"
        r"|Invalid dtype|unsupported dtype|failed to legalize operation 'arith[\s\S]*xi(8|16)>",
        "Compute in float32 (or int32), feed the MXU bfloat16, and cast on load and store.",
    ),
    (
        FailureKind.MOSAIC_LAYOUT,
        r"[Uu]nsupported shape cast|infer-vector-layout|apply-vector-layout|relayout|[Ll]ayout|[Uu]nsupported reshape"
        r"|Not implemented:|Not Implemented|not implemented|implicit dim|offsets? (mismatch|not supported)",
        "Keep the last axis in whole 128-lane tiles, reduce with keepdims=True, and avoid reshapes that split lanes.",
    ),
    (
        FailureKind.UNSUPPORTED_OP,
        r"Unsupported operation|failed to legalize operation '(?P<op>[\w.]+)'|not supported",
        "Replace the operation named in the message; this chip's compiler has no form of it.",
    ),
)


def compile_failure(error: BaseException, source_file: str = "", vmem_capacity: int = 0) -> CompileFailure:
    """The typed form of any exception from tracing, lowering or compiling.

    ``source_file`` is the file name under which the candidate's source was compiled: the last of its lines in the
    traceback becomes ``line``. ``vmem_capacity`` (bytes of the chip) sharpens the advice.
    """
    if isinstance(error, CompileFailure):
        return error
    raw = str(error) or type(error).__name__
    used, limit = memory_figures(raw)
    kind, advice = _kind_and_advice(error, raw)
    message = clean_message(raw)
    if used and kind in (FailureKind.VMEM_EXCEEDED, FailureKind.SMEM_EXCEEDED):
        message = memory_message(raw, used, limit)
    if used and kind is FailureKind.VMEM_EXCEEDED:
        advice = vmem_advice(used, limit, vmem_capacity)
    return CompileFailure(kind, message, advice, source_line(error, source_file), used, limit)


def _kind_and_advice(error: BaseException, raw: str) -> tuple[FailureKind, str]:
    for kind, pattern, advice in RULES:
        match = re.search(pattern, raw)
        if match:
            return kind, advice.replace("{op}", match.groupdict().get("op") or "the operation")
    if isinstance(error, NotImplementedError):
        return FailureKind.UNSUPPORTED_OP, RULES[-1][2]
    return FailureKind.OTHER, ""


NOISE: tuple[tuple[str, str], ...] = (
    (r"\[type\.googleapis\.com/.*", ""),
    (r"backend_config=\{.*?\}\}?(?=[\s,.]|$)", ""),
    (r"[A-Za-z0-9+/]{120,}={0,2}", "..."),
    (r",? ?(metadata|frontend_attributes|operand_layout_constraints)=\{[^{}]*(\{[^{}]*\}[^{}]*)*\}", ""),
    (r"<\{[^\n]*?\}>", ""),
    (r"<<UNKNOWN SSA VALUE>>", "?"),
    (r"(?<![\w.])%[\w.#]+(?:, %[\w.#]+)*", "_"),
    (r"\s*\bloc\([^\n]*", ""),
    (r"Please (file|report) [^\n]*?issues/new\S*", ""),
    (r"It should not be possible to run out[^\n]*", ""),
    (r"(?m)^\s*=+\s*$|^See (details at )?https?://\S+( for more details\.?)?$", ""),
    (r"\.\.\. additional diagnostics were skipped\.", ""),
    (r"^(INTERNAL|RESOURCE_EXHAUSTED|INVALID_ARGUMENT|UNIMPLEMENTED): ", ""),
    (r"Mosaic failed to compile TPU kernel: |XLA:TPU compile permanent error\. ", ""),
    (r"Pallas encountered an internal verification error\.\s*(Error details: )?", ""),
    (r"The MLIR operation involved:\s*_ = ", "In the operation "),
)


def clean_message(raw: str, limit: int = 700) -> str:
    """The compiler's text without pleas to file bugs, base64 bodies, SSA names, locations and protobuf tails."""
    text = raw
    for pattern, replacement in NOISE:
        text = re.sub(pattern, replacement, text, flags=re.S)
    text = "\n".join(row.rstrip() for row in text.splitlines() if row.strip()).strip()
    return text if len(text) <= limit else text[: limit - 4].rstrip() + " ..."


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


def source_line(error: BaseException, source_file: str = "") -> int:
    """The line of ``source_file`` nearest to the fault: from the traceback, else from a file:line in the message."""
    if not source_file:
        return 0
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == source_file]
    if frames and frames[-1].lineno:
        return frames[-1].lineno
    name = re.escape(Path(source_file).name)
    match = re.search(rf'{name}"?:(\d+)', str(error))
    return int(match.group(1)) if match else 0
