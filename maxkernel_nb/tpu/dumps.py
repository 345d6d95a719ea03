"""The folder that the compiler dumps its schedule to: emptied before and after each compile, bounded in between."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LIMIT_BYTES = 512 << 20  # flash attention at full size writes 17 MB; beyond this the oldest files go
PERIOD = 0.2  # seconds between two looks at the folder


@dataclass
class Dumps:
    """``dropped``: files that were deleted unread because the folder grew past its limit."""

    folder: Path | None
    dropped: int = 0

    def note(self, limit: int = LIMIT_BYTES) -> str:
        """A sentence for the profile, empty when nothing was dropped."""
        if not self.dropped:
            return ""
        return f"the schedule dump passed {limit >> 20} MB on disk: {self.dropped} files were deleted unread"


@contextlib.contextmanager
def collecting(folder: Path | None, limit: int = LIMIT_BYTES, period: float = PERIOD) -> Iterator[Dumps]:
    """Around one compile whose dumps go to ``folder`` (None: dumps are off). Nothing is left in it afterwards."""
    dumps = Dumps(folder)
    if folder is None or not folder.is_dir():
        yield dumps
        return
    empty(folder)
    done = threading.Event()
    watch = threading.Thread(target=_watch, args=(dumps, folder, limit, period, done), daemon=True)
    watch.start()
    try:
        yield dumps
    finally:
        done.set()
        watch.join()
        empty(folder)


def empty(folder: Path) -> None:
    """Removes everything in ``folder``: dumps are large and their names do not say which compile they are from."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _watch(dumps: Dumps, folder: Path, limit: int, period: float, done: threading.Event) -> None:
    while not done.wait(period):
        files = _files(folder)
        total = sum(size for _, _, size in files)
        for _, path, size in files:
            if total <= limit:
                break
            path.unlink(missing_ok=True)
            total -= size
            dumps.dropped += 1


def _files(folder: Path) -> list[tuple[str, Path, int]]:
    """Oldest first: names begin with the nanosecond of the dump."""
    found = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # gone since, or a folder of the compiler's
            found.append((path.name, path, path.stat().st_size))
    return sorted(found)
