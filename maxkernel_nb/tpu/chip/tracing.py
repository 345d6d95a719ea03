"""A profiler session around a few runs, and its bytes. One at a time in a process: jax has only one profiler."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from maxkernel_nb.tpu.chip.trace import Disturbed, TraceRefused

_ONE = threading.Lock()


class Recording:
    """``raw`` holds the serialised trace once the ``with`` block of ``recording`` has ended."""

    def __init__(self) -> None:
        self.raw = b""


@contextmanager
def recording(sync: bool = False) -> Iterator[Recording]:
    """``sync``: also the waits for synchronisation, which disturbs what is measured: for profiles, not for times.

    Raises ``Disturbed`` when the notebook's own profiler is running, ``TraceRefused`` when no trace was written.
    """
    import jax

    made = Recording()
    with _ONE:
        folder = tempfile.mkdtemp(prefix="maxkernel-trace-")
        try:
            _start(jax, folder, sync)
            try:
                yield made
            finally:
                jax.profiler.stop_trace()
            made.raw = _only_file(Path(folder))
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _start(jax: Any, folder: str, sync: bool) -> None:
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = 2  # the CPU backend's ops are events of this level
    if sync and jax.default_backend() == "tpu":
        options.advanced_configuration = {"tpu_trace_mode": "TRACE_COMPUTE_AND_SYNC"}
    try:
        jax.profiler.start_trace(folder, profiler_options=options)
    except RuntimeError as error:
        raise Disturbed(f"The profiler cannot be started: {str(error).splitlines()[0]}.") from error


def _only_file(folder: Path) -> bytes:
    found = list(folder.rglob("*.xplane.pb"))
    if len(found) != 1:
        raise TraceRefused(f"The profiler wrote {len(found)} trace files where one was expected.")
    return found[0].read_bytes()
