"""A Python audit hook for candidate workers: refuses files outside, sockets, processes and native code.

It gives the readable sentence; ``syscalls`` holds where Python is not asked. A hook cannot be removed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

_REFUSED_PREFIXES = (
    "socket.", "subprocess.", "os.fork", "os.exec", "os.spawn", "os.posix_spawn", "os.system", "os.kill", "os.putenv",
    "os.unsetenv", "pty.", "urllib.", "http.", "shutil.", "signal.pthread_kill", "ctypes.dlopen",
)  # fmt: skip
_WRITING = (
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown",
)  # fmt: skip
_LISTING = ("os.listdir", "os.scandir")
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Fence:
    """Active only while a candidate's own Python runs (``with fence:``); jax itself may do as it likes otherwise."""

    def __init__(self, writable: Path) -> None:
        self.writable = str(writable.resolve()) + os.sep
        self.readable = tuple({str(Path(p).resolve()) for p in (*sys.path, sys.prefix, sys.base_prefix) if p})
        self.active = False

    def install(self) -> None:
        sys.addaudithook(self._hook)

    def __enter__(self) -> None:
        self.active = True

    def __exit__(self, *_: object) -> None:
        self.active = False

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.active:
            return
        if event == "open":
            self._open(args[0], args[2] or 0)
        elif event in _LISTING:
            self._inside(args[0], self.readable)
        elif event in _WRITING:
            self._inside(args[0], ())
        elif event.startswith(_REFUSED_PREFIXES):
            raise PermissionError(f"a kernel may not use {event.split('.')[0]} ({event})")

    def _open(self, path: Any, flags: int) -> None:
        if isinstance(path, int):
            raise PermissionError("a kernel may not open a descriptor")
        self._inside(path, () if flags & _WRITE_FLAGS else self.readable)

    def _inside(self, path: Any, readable: tuple[str, ...]) -> None:
        full = os.path.realpath(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else str(path)
        if not full.startswith((self.writable, *readable)):
            raise PermissionError(f"a kernel may not touch {full}")
