"""What a kind of error is, and the tables of all of them. First match wins, in the order of ``KINDS``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class FailureKind(StrEnum):
    """Families of errors: coarse, for counting and for verdicts."""

    VMEM_EXCEEDED = "vmem-exceeded"
    SMEM_EXCEEDED = "smem-exceeded"
    HBM_EXCEEDED = "hbm-exceeded"
    UNSUPPORTED_OP = "unsupported-op"
    BLOCK_ALIGNMENT = "block-alignment"
    MOSAIC_LAYOUT = "mosaic-layout"
    DTYPE = "dtype"
    TRACING = "tracing"
    SPECS = "specs"
    NAMES = "names"
    RUN_TIME = "run-time"
    OTHER = "other"


@dataclass(frozen=True)
class Kind:
    """One kind of error. ``pattern`` is searched in the error's text behind its type's name (``TypeError: ...``).

    ``why`` and ``advice`` are sentences; ``{name}`` in them is the pattern's group of that name.
    """

    name: str
    family: FailureKind
    pattern: str
    why: str
    advice: str

    def match(self, text: str) -> re.Match[str] | None:
        return re.search(self.pattern, text)
