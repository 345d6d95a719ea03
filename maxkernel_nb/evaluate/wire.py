"""Messages between the notebook and its workers: a JSON header and raw binary buffers, length-prefixed.

Nothing is ever unpickled. A frame is ``header length, number of buffers, each buffer's length`` (unsigned 64-bit, big
endian) followed by the header (UTF-8 JSON object) and the buffers. Sizes are checked before anything is allocated.
"""

from __future__ import annotations

import json
import os
import select
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

MAX_HEADER = 32 << 20
MAX_BUFFER = 2 << 30
MAX_BUFFERS = 4096
_WORD = struct.Struct(">Q")


class WireError(OSError):
    """The other side closed the channel, or what it sent is no message."""


class NoMessage(WireError):
    """What the other side sent is no message."""


class WireTimeout(TimeoutError):
    """No complete message before the deadline."""


@dataclass(frozen=True)
class Message:
    header: dict[str, Any]
    buffers: tuple[bytes, ...] = field(default=(), repr=False)


def send(fd: int, message: Message, deadline: float | None = None) -> None:
    """Writes a whole message. Raises ``WireError`` when the reader is gone, ``WireTimeout`` when it does not read."""
    header = json.dumps(message.header).encode()
    sizes = [len(header), len(message.buffers), *(len(b) for b in message.buffers)]
    try:
        for part in (b"".join(map(_WORD.pack, sizes)), header, *message.buffers):
            _write_all(fd, memoryview(part), deadline)
    except BrokenPipeError as error:
        raise WireError("the reader closed the channel") from error


def receive(fd: int, deadline: float | None = None) -> Message:
    """Reads one message. ``deadline`` is a ``time.monotonic`` value; None waits for ever."""
    header_size, count = _words(fd, 2, deadline)
    if header_size > MAX_HEADER or count > MAX_BUFFERS:
        raise NoMessage(f"not a message: header of {header_size} bytes, {count} buffers")
    sizes = _words(fd, count, deadline)
    if sum(sizes) > MAX_BUFFER:
        raise NoMessage(f"message of {sum(sizes)} bytes is larger than {MAX_BUFFER}")
    header = _header(_read_all(fd, header_size, deadline))
    return Message(header, tuple(_read_all(fd, size, deadline) for size in sizes))


def _header(raw: bytes) -> dict[str, Any]:
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise NoMessage("not a message: the header is not JSON") from error
    if not isinstance(header, dict):
        raise NoMessage("not a message: the header is not an object")
    return header


def _words(fd: int, count: int, deadline: float | None) -> tuple[int, ...]:
    raw = _read_all(fd, count * _WORD.size, deadline)
    return tuple(word for (word,) in _WORD.iter_unpack(raw))


def _write_all(fd: int, view: memoryview, deadline: float | None) -> None:
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:  # only the notebook's end is non-blocking
            _wait(fd, select.POLLOUT, deadline)


def _read_all(fd: int, size: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < size:
        _wait(fd, select.POLLIN, deadline)
        part = os.read(fd, min(size - len(data), 1 << 20))
        if not part:
            raise WireError("the writer closed the channel")
        data += part
    return bytes(data)


def _wait(fd: int, event: int, deadline: float | None) -> None:
    if deadline is None and event == select.POLLIN:
        return  # a blocking read waits by itself
    left = 1e9 if deadline is None else deadline - time.monotonic()
    poll = select.poll()
    poll.register(fd, event)
    if left <= 0 or not poll.poll(min(left, 1e6) * 1000):
        raise WireTimeout("no answer before the deadline")


def dtype_named(name: str) -> np.dtype:
    """numpy's dtype of that name, or ml_dtypes' (``bfloat16``, ``float8_e4m3fn`` ...)."""
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, name))


def describe(array: np.ndarray) -> dict[str, Any]:
    return {"dtype": array.dtype.name, "shape": list(array.shape)}


def to_buffer(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def from_buffer(about: dict[str, Any], data: bytes) -> np.ndarray:
    """Raises ``WireError`` when the bytes do not fit the shape and dtype they claim."""
    try:
        return np.frombuffer(data, dtype_named(about["dtype"])).reshape(about["shape"])
    except (TypeError, ValueError, KeyError) as error:
        raise WireError(f"{len(data)} bytes do not make an array of {about}") from error


def arrays(descriptions: Sequence[dict[str, Any]], buffers: Sequence[bytes]) -> list[np.ndarray]:
    if len(descriptions) != len(buffers):
        raise WireError(f"{len(descriptions)} arrays described, {len(buffers)} sent")
    return [from_buffer(about, data) for about, data in zip(descriptions, buffers, strict=True)]
