"""Results with their provenance: one JSON line each, appended as soon as it is known, read back to report or resume."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from maxkernel_nb.errors import JournalError
from maxkernel_nb.task import Verdict
from maxkernel_nb.values import Value, content_hash

SCHEMA = 1


class Kind(StrEnum):
    REFERENCE = "reference"  # the task's own program under XLA
    KERNEL = "kernel"  # a kernel file that was judged
    OPTIMIZED = "optimized"  # the best kernel of a run
    RIVAL = "rival"  # jax's own kernel with tuned blocks: timed, not judged


class Status(StrEnum):
    OK = "ok"
    REFUSED = "refused"  # the kernel (or reference) is at fault
    NO_KERNEL = "no kernel"  # a run ended without one that is verified
    INFRASTRUCTURE = "infrastructure"  # our fault: says nothing about the kernel


class Result(Value):
    """One task, once. Times in ms. ``evidence`` says of all times but ``modelled_ms`` (of the reference, kept beside a
    measured time) whether they are modelled or measured; ``asked``: which was wanted.

    ``reference_ms``: the task's program under XLA; ``algebra_ms``: its algebraic short form in plain JAX under XLA,
    where the task has one; ``kernel_ms``: the kernel. ``cpu_wall_ms`` is wall clock of the reference on this machine's
    CPU at smoke size and no statement about a TPU. ``verdicts`` are the judge's, in order.
    """

    schema_version: int = SCHEMA
    task: str
    suite: str
    kind: Kind
    status: Status
    reason: str = ""
    tier: str = ""
    size: str = "full"
    inputs: str = "ours"
    chip: str = "v6e"
    evidence: Literal["modelled", "measured", ""] = ""
    asked: Literal["modelled", "measured"] = "modelled"
    task_hash: str = ""
    kernel_hash: str = ""
    author: str = ""
    mode: str = ""
    run: str = ""
    reference_ms: float | None = None
    modelled_ms: float | None = None
    algebra_ms: float | None = None
    kernel_ms: float | None = None
    roofline_ms: float | None = None
    published_ms: float | None = None
    published_note: str = ""
    cpu_wall_ms: float | None = None
    error_pct: float | None = None
    bound_by: str = ""
    flops: float | None = None  # operations of the formula in the task file
    min_bytes: float | None = None  # HBM bytes no kernel avoids
    hbm_bytes: float | None = None  # HBM bytes of the program that was modelled
    seeds: tuple[int, ...] = ()
    salt: str = ""  # with the seeds, what the check inputs were drawn from
    loosened: bool = False
    weak: tuple[str, ...] = ()
    algebra: str = ""
    verdicts: tuple[Verdict, ...] = ()
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = Field(default_factory=dict)
    finished: str = ""  # UTC, ISO 8601
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return self.status is Status.OK

    @property
    def speedup(self) -> float | None:
        """Reference over kernel, on the same chip model; None without a verified and timed kernel."""
        if not self.ok or not self.reference_ms or not self.kernel_ms:
            return None
        return self.reference_ms / self.kernel_ms

    @property
    def algebraic_gain(self) -> float | None:
        """The part of a gain that plain JAX has after the algebra: reference over short form."""
        alike = self.evidence != "measured" or self.kind is Kind.REFERENCE  # beside kernels the short form is modelled
        known = self.reference_ms and self.algebra_ms and alike
        return self.reference_ms / self.algebra_ms if known else None  # type: ignore[operator]

    @property
    def kernel_gain(self) -> float | None:
        """The rest of the speedup: short form over kernel; the whole speedup where there is no short form."""
        if self.speedup is None or self.kernel_ms is None:
            return None
        return self.algebra_ms / self.kernel_ms if self.algebra_ms and self.algebraic_gain else self.speedup

    def key(self) -> str:
        """Equal for the same question: a later line with the same key replaces this one."""
        versions = {k: v for k, v in self.versions.items() if k != "maxkernel-nb"}
        who = [self.kernel_hash] if self.kind is Kind.KERNEL else [self.author, self.mode]
        asked = [self.suite, self.task, self.kind, self.size, self.inputs, self.chip, self.task_hash, who, versions]
        return content_hash([*asked, *(["measured"] if self.asked == "measured" else [])])[:16]


class ResultFile:
    """A JSON-lines file that only grows. Many processes may append: a line is written in one piece."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, result: Result) -> None:
        """Raises ``JournalError`` naming the file when it cannot be written."""
        line = json.dumps(result.to_dict(), separators=(",", ":")) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(handle, self._missing_newline() + line.encode())
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            told = f"Cannot write results to {self.path} ({error.strerror}); pass another file with --results."
            raise JournalError(told) from error

    def _missing_newline(self) -> bytes:
        """A line that was cut short by a crash must not swallow the next one."""
        with open(self.path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            return b"" if not size or file.read(1) == b"\n" else b"\n"

    def read(self) -> tuple[Result, ...]:
        """The last result for each key, in order of their first appearance. A line cut short by a crash is left out.

        Raises ``JournalError`` for a line that another version wrote.
        """
        if not self.path.exists():
            return ()
        found: dict[str, Result] = {}
        for number, line in enumerate(self.path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            result = self._parse(line, number)
            if result is not None:
                found[result.key()] = result
        return tuple(found.values())

    def _parse(self, line: str, number: int) -> Result | None:
        try:
            data = json.loads(line)
        except ValueError:
            return None
        try:
            return Result.from_dict(data)
        except ValidationError as error:
            reason = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:2])
            raise JournalError(
                f"Line {number} of {self.path} is no result of this version ({reason}); remove it or use another file."
            ) from error


def done(results: Iterable[Result]) -> set[str]:
    """Keys that need no second run. Our own faults do."""
    return {r.key() for r in results if r.status is not Status.INFRASTRUCTURE}


def summary(result: Result) -> dict[str, Any]:
    """What a table or a script wants at a glance: derived figures beside the stored ones."""
    facts = result.to_dict()
    facts.pop("verdicts")
    derived = {n: getattr(result, n) for n in ("speedup", "algebraic_gain", "kernel_gain")}
    return {**facts, **derived}
