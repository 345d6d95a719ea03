"""Reads the compiler's report of who uses VMEM. libtpu 0.0.42 writes it beside the schedule; 0.0.23 does not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal

from maxkernel_nb.tpu.profiles import BufferUse, OpProfile

MOST = 24  # buffers kept of one op, the largest
_WINDOW = re.compile(r"(input|output) window allocation for operator (?:input|output) (\d+)\. The window shape is "
                     r"(\w+\[[\d,]*\])")  # fmt: skip
_COPIES = re.compile(r"(\d+) buffering levels")
Kind = Literal["input", "output", "scratch", "spill", "temporary", "other"]
_OTHERS: tuple[tuple[str, Kind], ...] = (
    ("scratch", "scratch"), ("spill", "spill"), ("temp", "temporary"), ("stack", "temporary"),
)  # fmt: skip


def read_report(folder: Path) -> dict[str, tuple[BufferUse, ...]]:
    """Buffers by the HLO op's name, largest first; empty where there is no report that can be read."""
    found: dict[str, tuple[BufferUse, ...]] = {}
    for path in sorted(folder.glob("*vmem_report.html")):
        for op, told in _data(path.read_text(errors="replace")).get("hlo_breakdowns", {}).items():
            found[op] = _buffers(told)
    return found


def with_buffers(ops: list[OpProfile], folder: Path | None, same: dict[str, str]) -> list[OpProfile]:
    """The ops with what the report in ``folder`` says of them; ``same``: ops reported under another's name."""
    uses = read_report(folder) if folder is not None and folder.is_dir() else {}
    found = [uses.get(o.name) or uses.get(same.get(o.name, ""), ()) for o in ops]
    return [o.model_copy(update={"buffers": use}) if use else o for o, use in zip(ops, found, strict=True)]


def _data(page: str) -> dict[str, Any]:
    _, mark, rest = page.partition("const DATA =")
    try:
        data = json.JSONDecoder().raw_decode(rest.lstrip())[0] if mark else {}
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def _buffers(told: dict[str, Any]) -> tuple[BufferUse, ...]:
    blocks = told.get("blocks", ())
    uses = [_use(a, str(b.get("block_type", ""))) for b in blocks for a in b.get("allocations", ())]
    return tuple(sorted(uses, key=lambda u: (-u.size, u.name))[:MOST])


def _use(allocation: dict[str, Any], block: str) -> BufferUse:
    tag, size = str(allocation.get("tag", "")), int(allocation.get("size", 0))
    padding, shape = int(allocation.get("padding", 0)), str(allocation.get("shape", ""))
    window = _WINDOW.search(tag)
    if window:
        copies = _COPIES.search(tag)
        way: Kind = "input" if window[1] == "input" else "output"
        return BufferUse(name=f"{way} {window[2]}", kind=way, size=size, shape=window[3], padding=padding,
                         copies=int(copies[1]) if copies else 1)  # fmt: skip
    kind: Kind = next((kind for word, kind in _OTHERS if word in f"{tag} {block}".lower()), "other")
    return BufferUse(name=tag or kind, kind=kind, size=size, shape=shape, padding=padding)
