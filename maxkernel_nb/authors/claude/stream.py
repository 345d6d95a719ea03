"""Puts a streamed reply together, block by block, so that a cut stream still gives what was finished."""

from __future__ import annotations

import json
from typing import Any

from maxkernel_nb.events import ModelUsage
from maxkernel_nb.values import Value

_WORTH_KEEPING = 40  # characters of text
_CHARS_PER_TOKEN = 3.0  # low on purpose: an estimate that bills too much rather than too little


class Reply(Value):
    """``content``: the blocks as they are to be sent back. ``stop_reason`` is the service's, or ``cut``."""

    content: tuple[dict[str, Any], ...] = ()
    stop_reason: str = ""
    usage: ModelUsage = ModelUsage()
    seconds: float = 0.0
    detail: str = ""

    @property
    def text(self) -> str:
        return "".join(b["text"] for b in self.content if b["type"] == "text")

    @property
    def tool_uses(self) -> tuple[dict[str, Any], ...]:
        return tuple(b for b in self.content if b["type"] == "tool_use")


class Accumulator:
    """Takes the events of one stream in order. ``started`` once the service has begun to bill."""

    def __init__(self) -> None:
        self.started = False
        self.complete = False
        self._blocks: dict[int, dict[str, Any]] = {}
        self._json: dict[int, str] = {}
        self._finished: set[int] = set()
        self._stop_reason = ""
        self._detail = ""
        self._usage: dict[str, int] = {}
        self._billed_output = False

    def take(self, event: Any) -> str:
        """Gives the words to show, if the event brought any. Raises ``ValueError`` for an event of another form."""
        handler = getattr(self, f"_{event.type}", None)
        try:
            return (handler(event) if handler is not None else None) or ""
        except (AttributeError, TypeError, KeyError) as error:
            raise ValueError(f"a malformed {event.type} event ({error})") from None

    def _message_start(self, event: Any) -> None:
        self.started = True
        self._take_usage(event.message.usage)

    def _content_block_start(self, event: Any) -> None:
        self._blocks[event.index] = event.content_block.model_dump(mode="json", exclude_none=True)

    def _content_block_delta(self, event: Any) -> str:
        block, delta = self._blocks.get(event.index, {}), event.delta
        if delta.type == "input_json_delta":
            self._json[event.index] = self._json.get(event.index, "") + delta.partial_json
            return ""
        field = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}.get(delta.type)
        if field is None:
            return ""
        piece = getattr(delta, field)
        block[field] = block.get(field, "") + piece
        return piece if field != "signature" else ""

    def _content_block_stop(self, event: Any) -> None:
        self._finished.add(event.index)
        text = self._json.get(event.index)
        if text is not None and event.index in self._blocks:
            self._blocks[event.index]["input"] = _parsed(text)

    def _message_delta(self, event: Any) -> None:
        self._stop_reason = event.delta.stop_reason or ""
        details = getattr(event.delta, "stop_details", None)
        self._detail = getattr(details, "category", None) or ""
        self._take_usage(event.usage)
        self._billed_output = True

    def _message_stop(self, event: Any) -> None:
        self.complete = bool(self._stop_reason)

    def _take_usage(self, usage: Any) -> None:
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"):
            value = getattr(usage, name, None)
            if value is not None:
                self._usage[name] = value

    def reply(self, seconds: float) -> Reply:
        """The whole reply, or of a cut one the finished blocks and the text so far, its output tokens estimated."""
        kept = [b for n, b in sorted(self._blocks.items())
                if n in self._finished or (b["type"] == "text" and b.get("text", "").strip())]
        return Reply(content=tuple(_sendable(b) for b in kept), usage=self._bill(), seconds=seconds,
                     stop_reason=self._stop_reason if self.complete else "cut", detail=self._detail)

    @property
    def worth_keeping(self) -> bool:
        """A cut reply whose finished tool call, or text, can be gone on from."""
        blocks = self._blocks.items()
        if any(b["type"] == "tool_use" and n in self._finished for n, b in blocks):
            return True
        begun = any(b["type"] == "tool_use" for _, b in blocks)
        said = "".join(b.get("text", "") for _, b in blocks if b["type"] == "text")
        return not begun and len(said.strip()) >= _WORTH_KEEPING

    def _bill(self) -> ModelUsage:
        heard = sum(len(b.get("text", "")) + len(b.get("thinking", "")) for b in self._blocks.values())
        heard += sum(map(len, self._json.values()))
        output = self._usage.get("output_tokens", 0)
        if not self._billed_output:
            output = max(output, int(heard / _CHARS_PER_TOKEN) + 1)
        return ModelUsage(
            input_tokens=self._usage.get("input_tokens", 0), output_tokens=output,
            cache_read_tokens=self._usage.get("cache_read_input_tokens", 0),
            cache_write_tokens=self._usage.get("cache_creation_input_tokens", 0), estimated=not self._billed_output,
        )


def _parsed(text: str) -> Any:
    try:
        return json.loads(text) if text.strip() else {}
    except ValueError:
        return {}


def _sendable(block: dict[str, Any]) -> dict[str, Any]:
    """A block as the service takes it back: text without trailing white space, an input that is an object."""
    if block["type"] == "text":
        return {"type": "text", "text": block["text"].rstrip() or "..."}
    if block["type"] == "tool_use":
        given = block.get("input")
        return {"type": "tool_use", "id": block["id"], "name": block["name"],
                "input": given if isinstance(given, dict) else {}}
    return block
