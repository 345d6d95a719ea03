"""Is this a whole profiler file? Asked before jax parses it: jax 0.7.2 ends the process over a file that was cut short.

Walks the protobuf framing of an ``XSpace`` (planes, lines, events, their metadata and stats) without decoding values.
"""

from __future__ import annotations

from collections.abc import Iterator

# Message -> field number -> what it holds: another message's name, "text", or absent (a number or opaque bytes).
_FORM: dict[str, dict[int, str]] = {
    "space": {1: "plane", 2: "text", 3: "text", 4: "text"},
    "plane": {2: "text", 3: "line", 4: "event names", 5: "stat names", 6: "stat"},
    "event names": {2: "event name"},
    "stat names": {2: "stat name"},
    "event name": {2: "text", 3: "opaque", 4: "text", 5: "stat"},
    "stat name": {2: "text", 3: "text"},
    "line": {2: "text", 4: "event", 11: "text"},
    "event": {4: "stat"},
    "stat": {5: "text"},
}
_FIXED = {1: 8, 5: 4}
_VARINT, _BYTES = 0, 2


class NoTrace(ValueError):
    """The bytes are no profiler file, with the reason."""


def check(data: bytes) -> None:
    """Raises ``NoTrace`` where the framing of ``data`` breaks off or a text is not UTF-8."""
    _check(memoryview(data), "space")


def _check(data: memoryview, kind: str) -> None:
    for number, payload in _fields(data, kind):
        inner = _FORM[kind].get(number)
        if inner is None or payload is None or inner == "opaque":
            continue
        if inner == "text":
            _text(payload, kind)
        else:
            _check(payload, inner)


def _fields(data: memoryview, kind: str) -> Iterator[tuple[int, memoryview | None]]:
    """Each field's number and, where it is length-delimited, its bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at, kind)
        number, form = key >> 3, key & 7
        if number == 0:
            raise NoTrace(f"a {kind} has a field without a number")
        if form == _VARINT:
            _, at = _varint(data, at, kind)
            yield number, None
        elif form in _FIXED:
            at = _advance(data, at, _FIXED[form], kind)
            yield number, None
        elif form == _BYTES:
            size, at = _varint(data, at, kind)
            end = _advance(data, at, size, kind)
            yield number, data[at:end]
            at = end
        else:
            raise NoTrace(f"a {kind} has a field of the unknown form {form}")


def _varint(data: memoryview, at: int, kind: str) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise NoTrace(f"it breaks off within a {kind}")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise NoTrace(f"a {kind} holds a number that is too long")


def _advance(data: memoryview, at: int, size: int, kind: str) -> int:
    if size > len(data) - at:
        raise NoTrace(f"it breaks off within a {kind}")
    return at + size


def _text(payload: memoryview, kind: str) -> None:
    try:
        bytes(payload).decode()
    except UnicodeDecodeError as error:
        raise NoTrace(f"a {kind} holds a text that is not UTF-8") from error
