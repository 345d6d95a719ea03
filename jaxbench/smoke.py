"""A reference at smoke size on the CPU: is its result sound, how far is it from float64, how long does it take."""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np

from jaxbench.admission import Subject
from jaxbench.registry import BenchTask
from jaxbench.results import Status

SEED = 0


def smoke_run(bench: BenchTask) -> dict[str, Any]:
    """Fields of a ``Result``: wall clock of this CPU, the error against float64 as a note, or what is wrong."""
    subject = Subject(bench)
    arrays = subject.draw(SEED)
    jax.block_until_ready(subject.run(*arrays))
    started = time.perf_counter()
    result = np.asarray(jax.block_until_ready(subject.run(*arrays)))
    wall = 1e3 * (time.perf_counter() - started)
    wanted = bench.output("smoke")
    if result.shape != wanted.shape or result.dtype != wanted.dtype:
        told = f"it gives {result.dtype}{list(result.shape)} instead of {wanted.dtype}{list(wanted.shape)}"
        return {"status": Status.REFUSED, "reason": told}
    values, exact = result.astype(np.float64), subject.exact(arrays)
    if not np.isfinite(values).all():
        return {"status": Status.REFUSED, "reason": f"{1 - np.isfinite(values).mean():.2%} of its result is not finite"}
    scale = float(np.sqrt(np.mean(exact**2))) or 1.0
    error = float(np.sqrt(np.mean((values - exact) ** 2))) / scale
    return {"cpu_wall_ms": wall, "notes": (f"rms error against float64: {error:.2g} of the result's rms",)}
