"""Keeps one message to the browser small: what does not fit is cut, and the document says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from maxkernel_nb.document.model import ComparisonView, Document, NodeView

MESSAGE_BYTES = 256 * 1000
_ENVELOPE = 6 * 1000  # the message's own frame and header
LINE = 1000  # characters of one line of code that reach the browser


@dataclass(frozen=True)
class Caps:
    """How much of each part is kept: newest notes, candidates and steps, first checks, lines and characters."""

    rows: int
    lines: int
    text: int


_LEVELS = (
    Caps(500, 3000, 20_000),
    Caps(350, 2000, 10_000),
    Caps(200, 1200, 4000),
    Caps(80, 400, 1000),
    Caps(25, 100, 200),
    Caps(5, 10, 80),
)


def fit(doc: Document, limit: int = MESSAGE_BYTES) -> dict[str, Any]:
    """``doc`` as JSON data of at most ``limit`` bytes; ``doc.trimmed`` names what was shortened."""
    data = doc.to_dict()
    for caps in _LEVELS:
        cut = _Cutter(caps)
        data = cut.document(doc.to_dict())
        if size(data) <= limit - _ENVELOPE:
            break
    return data


def fit_node(node: NodeView, limit: int = MESSAGE_BYTES) -> dict[str, Any]:
    """The same for one node of a search."""
    data = node.to_dict()
    for caps in _LEVELS:
        data = _Cutter(caps).node(node.to_dict())
        if size(data) <= limit - _ENVELOPE:
            break
    return data


def fit_comparison(view: ComparisonView, limit: int = MESSAGE_BYTES) -> dict[str, Any]:
    """The same for two candidates beside each other."""
    data = view.to_dict()
    for caps in _LEVELS:
        data = _Cutter(caps).comparison(view.to_dict())
        if size(data) <= limit - _ENVELOPE:
            break
    return data


def size(data: Any) -> int:
    return len(json.dumps(data, ensure_ascii=False).encode())


class _Cutter:
    def __init__(self, caps: Caps) -> None:
        self.caps = caps
        self.cut: list[str] = []

    def document(self, data: dict[str, Any]) -> dict[str, Any]:
        self._newest(data, "steps")
        self._newest(data, "candidates", lambda row: row["best"])
        self._newest(data, "notes")
        if data["checks"]:
            self._newest(data["checks"], "rows", lambda row: row["outcome"] == "fail")
        if data["graph"]:
            self._graph(data["graph"])
        if data["source"]:
            data["source"]["text"] = self._lines(data["source"]["text"], "source")
        if data["diff"]:
            self._hunks(data["diff"])
        data = self._texts(data)
        if self.cut:
            data["trimmed"].append(f"Shown in part: {', '.join(dict.fromkeys(self.cut))}.")
        return data

    def _graph(self, graph: dict[str, Any]) -> None:
        self._newest(graph, "nodes", lambda node: node["id"] in graph["lineage"] or bool(node["mark"]))
        graph["lineage"] = graph["lineage"][-self.caps.rows :]
        graph["curve"] = graph["curve"][-self.caps.rows :]

    def node(self, data: dict[str, Any]) -> dict[str, Any]:
        if data["checks"]:
            self._newest(data["checks"], "rows", lambda row: row["outcome"] == "fail")
        whole = data["source"]
        data["source"] = self._lines(whole, "source")
        data["complete"] = data["source"] == whole
        for diff in data["diffs"]:
            self._hunks(diff)
        return self._texts(data)

    def comparison(self, data: dict[str, Any]) -> dict[str, Any]:
        self._newest(data, "verdicts", lambda row: row["left"] != row["right"])
        self._hunks(data["diff"])
        return self._texts(data)

    def _newest(self, part: dict[str, Any], key: str, keep: Callable[[Any], bool] = lambda row: False) -> None:
        rows, cap = part[key], self.caps.rows
        if len(rows) <= cap:
            return
        self.cut.append(f"{key} ({cap} of {len(rows)})")
        first = len(rows) - cap
        kept = [row for row in rows[:first] if keep(row)][:cap]
        part[key] = kept + rows[first + len(kept) :]

    def _lines(self, text: str, what: str) -> str:
        lines = text.splitlines(keepends=True)
        if len(lines) <= self.caps.lines:
            return text
        self.cut.append(f"{what} ({self.caps.lines} of {len(lines)} lines)")
        return "".join(lines[: self.caps.lines])

    def _hunks(self, diff: dict[str, Any]) -> None:
        left, total = self.caps.lines, sum(len(h["lines"]) for h in diff["hunks"])
        if total > left:
            self.cut.append(f"diff ({left} of {total} lines)")
        for hunk in diff["hunks"]:
            hunk["lines"] = hunk["lines"][:left]
            left -= len(hunk["lines"])
        if len(diff["hunks"]) > self.caps.lines:
            diff["hunks"] = diff["hunks"][: self.caps.lines]

    def _texts(self, part: Any, key: str = "") -> Any:
        if isinstance(part, dict):
            return {k: self._texts(v, k) for k, v in part.items()}
        if isinstance(part, list):
            return [self._texts(v, key) for v in part]
        if isinstance(part, str):
            return self._text(part, key)
        return part

    def _text(self, text: str, key: str) -> str:
        if key == "text" and "\n" in text:  # source and notes: every line kept, long ones cut
            lines = text.split("\n")
            if any(len(line) > LINE for line in lines):
                self.cut.append("long lines")
            return "\n".join(line if len(line) <= LINE else line[:LINE] + "…" for line in lines)
        if len(text) <= self.caps.text:
            return text
        self.cut.append("long texts")
        return text[: self.caps.text] + "…"
