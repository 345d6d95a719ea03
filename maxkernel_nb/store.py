"""The project's ``.maxkernel`` folder and its content-addressed object store."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from maxkernel_nb.errors import JournalError
from maxkernel_nb.values import content_hash

FOLDER = ".maxkernel"


class ObjectStore:
    """Bytes by their SHA-256. Writes are atomic; the same bytes are written once; safe from many processes."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)

    def path(self, digest: str) -> Path:
        return self.root / digest[:2] / digest[2:]

    def put(self, data: bytes) -> str:
        digest = content_hash(data)
        write_atomically(self.path(digest), data, unless_present=True)
        return digest

    def get(self, digest: str) -> bytes:
        """Raises ``JournalError`` when the object is missing or its bytes no longer match its digest."""
        try:
            data = self.path(digest).read_bytes()
        except OSError as error:
            raise JournalError(
                f"Object {digest[:12]} is missing from {self.root} ({error.strerror}); run the cell again."
            ) from error
        if content_hash(data) != digest:
            raise JournalError(
                f"Object {digest[:12]} in {self.root} was changed or cut short; delete it and run the cell again."
            )
        return data


class Project:
    """``<root>/.maxkernel``: runs/, objects/, kernels/, reports/. Created on first use."""

    def __init__(self, root: Path | str | None = None) -> None:
        self.root = Path(root or Path.cwd()).resolve()
        self.folder = self.root / FOLDER
        self.objects = ObjectStore(self.folder / "objects")

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def kernels(self) -> Path:
        return self.folder / "kernels"

    @property
    def reports(self) -> Path:
        return self.folder / "reports"

    def prepare(self) -> Project:
        """Makes the folders. Raises ``JournalError`` naming the path when that is impossible."""
        try:
            for folder in (self.runs, self.objects.root, self.kernels, self.reports):
                folder.mkdir(parents=True, exist_ok=True)
            ignore = self.folder / ".gitignore"
            if not ignore.exists():
                ignore.write_text("runs/\nobjects/\nreports/\n")
        except OSError as error:
            raise JournalError(
                f"Cannot write the project folder {self.folder} ({error.strerror}); move what is in the way, "
                "or start the notebook in a folder you can write."
            ) from error
        return self

    def relative(self, path: Path) -> str:
        return os.path.relpath(path, self.root)


def write_atomically(path: Path, data: bytes, unless_present: bool = False) -> None:
    """Readers see the old bytes or the new ones, never a part."""
    if unless_present and path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
