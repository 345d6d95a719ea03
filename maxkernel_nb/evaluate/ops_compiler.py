"""What a compiler worker does: the TPU compiler and its schedule, on exported programs only."""

from __future__ import annotations

import time
from typing import Any

from maxkernel_nb.evaluate.capture import FILE
from maxkernel_nb.evaluate.executor import JobRefused, Reply


def load() -> dict[str, Any]:
    import jax
    import jax.export  # noqa: F401

    return {"ping": lambda args, buffers: Reply({}), "compile": compile_, "profile": profile}


def compile_(args: dict[str, Any], buffers: tuple[bytes, ...]) -> Reply:
    from maxkernel_nb.tpu.aot import CompileFailure, compile_exported

    started = time.monotonic()
    try:
        compile_exported(buffers[0], args["chip"], FILE)
    except CompileFailure as failure:
        raise _refusal(failure) from failure
    return Reply({"compile_s": time.monotonic() - started})


def profile(args: dict[str, Any], buffers: tuple[bytes, ...]) -> Reply:
    from maxkernel_nb.tpu.aot import CompileFailure
    from maxkernel_nb.tpu.model import profile_exported

    try:
        return Reply({"profile": profile_exported(buffers[0], args["chip"], args.get("file", FILE)).to_dict()})
    except CompileFailure as failure:
        raise _refusal(failure) from failure


def _refusal(failure: Any) -> JobRefused:
    told = failure.diagnosis
    found = {"line": failure.line or 0, "advice": told.explained, "diagnosis": told.to_dict()}
    return JobRefused(told.kind, failure.message, **found)
