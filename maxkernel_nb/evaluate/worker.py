"""A worker's main loop: ``python -m maxkernel_nb.evaluate.worker KIND READ_FD WRITE_FD MEMORY PARENT``."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from maxkernel_nb.evaluate import sandbox, syscalls, wire
from maxkernel_nb.evaluate.executor import JobRefused, Reply

Operation = Callable[[dict[str, Any], tuple[bytes, ...]], Reply]
TABLES = {
    "candidate": "maxkernel_nb.evaluate.ops_candidate",
    "judge": "maxkernel_nb.evaluate.ops_judge",
    "compiler": "maxkernel_nb.evaluate.ops_compiler",
    "chip": "maxkernel_nb.evaluate.ops_chip",
}


def main(arguments: list[str]) -> None:
    kind, read, write, memory, parent = arguments[0], *map(int, arguments[1:])
    sandbox.die_with_parent(parent)
    operations = importlib.import_module(TABLES[kind]).load()
    _spare_collector()
    sandbox.limit(kind, memory)
    if kind == "candidate":
        syscalls.forbid()
    wire.send(write, wire.Message({"status": "ok"}))
    while True:
        try:
            request = wire.receive(read)
        except wire.WireError:
            os._exit(0)
        wire.send(write, answer(operations, request))


def _spare_collector() -> None:
    """What is loaded now stays, and need not be searched for garbage again: a twentieth of a judgement's time was."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def answer(operations: dict[str, Operation], request: wire.Message) -> wire.Message:
    try:
        reply = operations[request.header["op"]](request.header["args"], request.buffers)
        return wire.Message({"status": "ok", "data": reply.data}, reply.buffers)
    except JobRefused as refusal:
        data = {"kind": refusal.kind, "message": refusal.message, "line": refusal.line, "advice": refusal.advice}
        return wire.Message({"status": "refused", "refusal": {**refusal.extra, **data}})
    except Exception as error:  # noqa: BLE001 - the worker's top: our own fault is reported, never lost
        where = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__}: {error} ({os.path.basename(where.filename)}:{where.lineno})"
        return wire.Message({"status": "fault", "message": message})


if __name__ == "__main__":
    main(sys.argv[1:])
