"""What is known already about exported programs: compile results and profiles, on disk beside the objects."""

from __future__ import annotations

import json
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from maxkernel_nb.store import ObjectStore, write_atomically
from maxkernel_nb.values import content_hash

SCHEMA = 1  # raise it when the meaning of a record or the model behind it changes


class Records:
    """JSON by (what, program digest, chip, versions of jax and libtpu). A damaged record counts as absent."""

    def __init__(self, store: ObjectStore) -> None:
        self.root = store.root / "records"

    def get(self, what: str, program: str, chip: str) -> dict[str, Any] | None:
        try:
            data = json.loads(self._path(what, program, chip).read_bytes())
        except (OSError, ValueError):
            return None
        return data if isinstance(data, dict) else None

    def put(self, what: str, program: str, chip: str, data: dict[str, Any]) -> None:
        write_atomically(self._path(what, program, chip), json.dumps(data).encode())

    def _path(self, what: str, program: str, chip: str):
        key = content_hash([SCHEMA, what, program, chip, *versions()])
        return self.root / key[:2] / key[2:]


@cache
def versions() -> tuple[str, ...]:
    return tuple(_version(name) for name in ("maxkernel-nb", "jax", "jaxlib", "libtpu"))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
