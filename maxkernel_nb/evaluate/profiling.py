"""Profiles of functions that nobody judges: traced here, compiled in a compiler worker, read from its schedule."""

from __future__ import annotations

import atexit
import contextlib
import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

from maxkernel_nb.errors import InfrastructureError, UsageError
from maxkernel_nb.evaluate.executor import Executor, Job, JobRefused, WorkerKind
from maxkernel_nb.tpu.availability import compiler_available
from maxkernel_nb.tpu.chips import chip as chip_named
from maxkernel_nb.tpu.diagnosis import diagnose
from maxkernel_nb.tpu.failures import CompileFailure, compile_failure
from maxkernel_nb.tpu.profiles import BufferUse, ScheduleProfile
from maxkernel_nb.tpu.vmem import VmemEstimate, estimate_vmem, vmem_refusal

SECONDS = 600.0


def profile(
    fn: Callable[..., Any], *specs: Any, chip: str = "v6e", seconds: float = SECONDS, executor: Executor | None = None
) -> ScheduleProfile:
    """What the TPU compiler makes of ``fn`` on one ``chip``, and the time modelled from its schedule. Needs no TPU.

    In order: ``fn`` is traced for ``specs`` (arrays, ``jax.ShapeDtypeStruct`` or scalars; their values do not matter),
    kernels that cannot fit VMEM are refused, the program is exported and compiled in a worker process (at most
    ``seconds``), and its schedule is read. ``executor``: where to compile; by default a worker that is kept warm.

    Raises:
        UsageError: no such chip, or no TPU compiler on this machine (the message says what to install).
        CompileFailure: ``fn`` cannot be traced, lowered or compiled; its ``diagnosis`` says where, why, what to try.
        InfrastructureError: the worker died or took too long.
    """
    facts = chip_named(chip)
    available, reason = compiler_available()
    if not available:
        raise UsageError(reason)
    file = source_file(fn)
    exported, estimate = _export(fn, specs, facts.name, file)
    job = Job(WorkerKind.COMPILER, "profile", {"chip": facts.name, "file": file}, (exported,), seconds)
    workers = executor or _workers()
    future = workers.submit(job)
    try:
        return _with_buffers(ScheduleProfile.from_dict(future.result().data["profile"]), estimate)
    except JobRefused as refusal:
        raise _failure(refusal) from None
    except KeyboardInterrupt:
        workers.cancel(future)
        raise


def source_file(fn: Callable[..., Any]) -> str:
    """The file name that Python gave the function's source (a notebook cell has one too); empty where none."""
    with contextlib.suppress(TypeError):
        return inspect.getfile(inspect.unwrap(fn))
    return ""


def _export(fn: Callable[..., Any], specs: tuple[Any, ...], chip: str, file: str) -> tuple[bytes, VmemEstimate]:
    import jax
    import jax.export
    import jax.extend.core as jex

    from maxkernel_nb.compat import prepare_host_backend
    from maxkernel_nb.evaluate.capture import as_on

    prepare_host_backend()
    facts, closed = chip_named(chip), None
    try:
        with as_on(chip):
            closed = jax.make_jaxpr(fn)(*specs)
            estimate = estimate_vmem(closed)
            _refuse_what_cannot_fit(estimate, closed, chip, file)
            leaves = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in closed.in_avals]
            function = jex.jaxpr_as_fun(closed)
            named = functools.wraps(fn, assigned=("__name__",), updated=())(lambda *arrays: function(*arrays))
            return bytes(jax.export.export(jax.jit(named), platforms=["tpu"])(*leaves).serialize()), estimate
    except Exception as error:
        raise compile_failure(error, file, facts.vmem_bytes, closed) from error


def _with_buffers(profile: ScheduleProfile, estimate: VmemEstimate) -> ScheduleProfile:
    """Where the compiler reports no buffers (libtpu 0.0.23), those that the call asks for."""
    kernels = [op for op in profile.ops if op.kind == "pallas"]
    if len(kernels) != 1 or kernels[0].buffers or not estimate.by_buffer:
        return profile
    uses = tuple(_use(*pair) for pair in sorted(estimate.by_buffer.items(), key=lambda kv: -kv[1]))
    ops = (op.model_copy(update={"buffers": uses}) if op is kernels[0] else op for op in profile.ops)
    return profile.model_copy(update={"ops": tuple(ops)})


def _use(label: str, size: int) -> BufferUse:
    found = re.match(r"(.+) (\S+\[[\d,]*\])(?: x(\d+))?(?: #\d+)?$", label)
    name, shape, copies = found.groups() if found else (label, "", None)
    return BufferUse(name=name, shape=shape, size=size, copies=int(copies or 1), kind="other")


def _refuse_what_cannot_fit(estimate: VmemEstimate, closed: Any, chip: str, file: str) -> None:
    failure = vmem_refusal(estimate, chip_named(chip))
    if failure is None:
        return
    told = diagnose(failure, file, closed)
    failure.line, failure.diagnosis = told.line, told
    raise failure


def _failure(refusal: JobRefused) -> Exception:
    """A worker's refusal as the error that it was; its own trouble (time, memory, a crash) as ours."""
    told = refusal.extra.get("diagnosis")
    if told is None:
        return InfrastructureError(f"The program could not be compiled: {refusal.message}")
    from maxkernel_nb.tpu.diagnosis import Diagnosis

    found = Diagnosis.from_dict(told)
    return CompileFailure(found.family, refusal.message, found.advice, found.line, diagnosis=found)


@functools.cache
def _workers() -> Executor:
    from maxkernel_nb.evaluate.pool import LocalPool

    pool = LocalPool({WorkerKind.COMPILER: 1})
    atexit.register(pool.close)
    return pool
