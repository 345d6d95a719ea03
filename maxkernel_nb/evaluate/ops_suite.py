"""In a candidate worker: a foreign benchmark task, its Python run there and nowhere else, handed over as data.

The task's module is in the field's layout: ``CONFIG``, ``create_inputs``, a ``workload`` that takes what it returns,
and optionally ``get_flops``. The worker is thrown away afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from maxkernel_nb.errors import MaxKernelError
from maxkernel_nb.evaluate import capture
from maxkernel_nb.evaluate.executor import JobRefused, Reply
from maxkernel_nb.store import ObjectStore
from maxkernel_nb.task import KernelTask
from maxkernel_nb.values import content_hash

ENTRY, INPUTS, FLOPS = "workload", "create_inputs", "get_flops"


class Kept(ObjectStore):
    """Objects of one task, in memory: this process may write no files."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put(self, data: bytes) -> str:
        self.objects[digest := content_hash(data)] = data
        return digest

    def get(self, digest: str) -> bytes:
        return self.objects[digest]


def build(args: dict[str, Any], fenced: Callable[[], AbstractContextManager[Any]]) -> Reply:
    """The module ``source`` as a ``KernelTask`` called ``name`` for ``chip``. Buffers: its objects, by ``digests``."""
    kept = Kept()
    with fenced():
        task, notes = _built(args, kept)
        flops = _flops(capture_globals(args["source"]))
    told = {"task": task.to_dict(), "notes": list(notes), "flops": flops, "digests": list(kept.objects)}
    return Reply({**told, "retire": True}, tuple(kept.objects.values()))


_modules: dict[str, dict[str, Any]] = {}


def capture_globals(source: str) -> dict[str, Any]:
    """The module's names; it is run once."""
    if source not in _modules:
        _modules[source] = capture.load(source, ENTRY).function.__globals__
    return _modules[source]


def _built(args: dict[str, Any], store: ObjectStore) -> tuple[KernelTask, tuple[str, ...]]:
    from maxkernel_nb.tasks.build import build_task

    module = capture_globals(args["source"])
    if not callable(module.get(INPUTS)):
        raise JobRefused("suite", f"{args['name']} has no function {INPUTS}; give it one that returns the inputs.")
    name = re.sub(r"\W", "_", args["name"])
    try:
        built = build_task(
            module[ENTRY], source=args["source"], name=name, inputs=module[INPUTS], chip=args["chip"], store=store
        )
    except MaxKernelError as error:
        raise JobRefused("suite", f"{args['name']}: {error}") from error
    return built.task, built.notes


def _flops(module: dict[str, Any]) -> float | None:
    """What the suite itself counts; None where it says nothing that is a number."""
    try:
        value = module[FLOPS]() if callable(module.get(FLOPS)) else None
        return float(value) if value is not None else None
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError):
        return None
