"""The tools' own words without their noise."""

from __future__ import annotations

import re

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
