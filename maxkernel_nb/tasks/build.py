"""From a function in a notebook to a frozen ``KernelTask`` with its captured reference."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from maxkernel_nb.errors import TaskError, UsageError
from maxkernel_nb.store import ObjectStore
from maxkernel_nb.task import Case, CaseRole, KernelTask, Tolerance
from maxkernel_nb.tasks.cases import NEEDED, derive_cases
from maxkernel_nb.tasks.inputs import resolve_inputs
from maxkernel_nb.tasks.reference import capture, store_references
from maxkernel_nb.tasks.tracing import Tracer, function_name, unwrapped
from maxkernel_nb.tasks.trees import identifiers, results_of

_BAKED = 1 << 16  # bytes of closed-over arrays worth a note


@dataclass(frozen=True)
class BuiltTask:
    """``trace(case_name)`` gives the reference's closed jaxpr; ``notes`` are sentences for the person."""

    task: KernelTask
    trace: Callable[[str], Any] = field(repr=False)
    notes: tuple[str, ...] = ()
    origin: str = ""


def build_task(
    fn: Callable[..., Any],
    *,
    source: str | None = None,
    name: str | None = None,
    inputs: Any = None,
    namespace: Mapping[str, Any] | None = None,
    shapes: str | None = None,
    static: Sequence[str] | Mapping[str, Any] = (),
    chip: str = "v6e",
    atol: float | None = None,
    rtol: float | None = None,
    cases: Sequence[str | Case] = (),
    store: ObjectStore,
    full_oracle: bool = False,
    gradient: bool = False,
    differentiated: str = "",
) -> BuiltTask:
    """Finds inputs, derives cases, captures the reference. In order: inputs, one trace at full size, cases, exports.
    ``full_oracle``: there is a chip to measure on, so outputs at full size will need an oracle too.
    ``gradient``: a kernel must have the function's gradient too. ``differentiated``: the call in the notebook that
    differentiates the function; a gradient of its own that a kernel has must then be right.

    Nothing is run or compiled; arrays at full size are only looked at. The same function and inputs give the same task.
    ``cases`` are shapes as in ``--case``; or whole ``Case`` values, and then nothing is derived: one is the timing case
    and at least three are check cases.
    Raises ``UsageError`` (inputs, options) or ``TaskError`` (the function), each one sentence.
    """
    _check_tolerance(atol, rtol)
    entry = _entry(fn, name)
    text = source_of(fn, source)
    found = resolve_inputs(fn, inputs=inputs, namespace=namespace, shapes=shapes, static=static)
    params = tuple(a.name for a in found.args)
    if found.trees:
        params = identifiers(params, {*(p.name for p in found.trees if p.tree.kind != "array"), *found.static})
    tracer = Tracer(fn, params, found.static, found.trees)
    given = tuple(c for c in cases if isinstance(c, Case))
    texts = tuple(c for c in cases if isinstance(c, str))
    all_cases = _checked(given, tracer) if given else derive_cases(found.args, tracer, texts)
    try:
        captured = capture(fn, all_cases, found.static, tracer, full_oracle, gradient or bool(differentiated))
    except TaskError:
        if gradient or not differentiated:
            raise
        differentiated = ""  # not this function's arrays, then
        captured = capture(fn, all_cases, found.static, tracer, full_oracle)
    task = KernelTask(
        name=name or entry,
        source=text,
        entry=entry,
        params=params,
        static=found.static,
        cases=all_cases,
        references=store_references(captured, store),
        tolerance=Tolerance(atol=atol, rtol=rtol),
        chip=chip,
        gradient=gradient,
        differentiated=differentiated,
        trees=found.trees,
        returns=results_of(tracer(all_cases[0].args).outputs),
    )
    by_name = {c.name: c.args for c in all_cases}
    return BuiltTask(task, lambda case: tracer(by_name[case]).closed, _notes(tracer, task, found.notes), found.origin)


def _checked(cases: tuple[Case, ...], tracer: Tracer) -> tuple[Case, ...]:
    """Cases that somebody gave whole: the timing case first, each of them accepted by the function."""
    timing = [c for c in cases if c.role is CaseRole.TIMING]
    checks = sum(c.role is CaseRole.CHECK for c in cases)
    if len(timing) != 1 or checks < NEEDED:
        raise UsageError(
            f"There are {len(timing)} timing cases and {checks} check cases; give one and at least {NEEDED}."
        )
    for case in cases:
        tracer(case.args)
    return (*timing, *(c for c in cases if c.role is not CaseRole.TIMING))


def trace_case(fn: Callable[..., Any], task: KernelTask, case: str) -> Any:
    """The closed jaxpr of ``fn`` for one case of a task built earlier (a resumed run). Raises ``TaskError``."""
    args = next((c.args for c in task.cases if c.name == case), None)
    if args is None:
        raise TaskError(f"Task {task.name!r} has no case {case!r}; it has {', '.join(c.name for c in task.cases)}.")
    return Tracer(fn, task.params, task.static, task.trees)(args).closed


def source_of(fn: Callable[..., Any], source: str | None = None) -> str:
    """The function's source text, dedented: ``source`` where given (a cell), else as Python recorded it.

    Raises ``UsageError`` where there is none (typed into a plain prompt, built by ``exec``).
    """
    if source is not None:
        return source
    plain = unwrapped(fn)
    try:
        return textwrap.dedent(inspect.getsource(plain if hasattr(plain, "__code__") else type(plain)))
    except (OSError, TypeError) as error:
        raise UsageError(
            f"The source of {function_name(fn)} cannot be read; define it in a cell or a file, or pass source=."
        ) from error


def _entry(fn: Callable[..., Any], name: str | None) -> str:
    entry = function_name(fn)
    if entry.isidentifier():
        return entry
    if name and name.isidentifier():
        return name
    raise UsageError(f"{entry} has no usable name; give it one with def or --name.")


def _check_tolerance(atol: float | None, rtol: float | None) -> None:
    for option, value in (("--atol", atol), ("--rtol", rtol)):
        if value is not None and not 0 <= value < float("inf"):
            raise UsageError(f"{option} {value} is not a tolerance; pass a finite number of at least 0.")


def _notes(tracer: Tracer, task: KernelTask, found: tuple[str, ...]) -> tuple[str, ...]:
    notes = list(found)
    baked = sum(int(getattr(c, "nbytes", 0)) for c in tracer(task.timing_case.args).closed.consts)
    if baked >= _BAKED:
        notes.append(
            f"{tracer.name} closes over {baked:,} bytes of arrays, which are constants of the task; pass them as "
            "arguments to let a kernel read them."
        )
    if all(c.role != "ragged" for c in task.cases):
        notes.append(f"No ragged case could be derived for {tracer.name}; shapes that no tile divides are not checked.")
    notes += [f"Oracle: {r.note}." for r in task.references if r.note]
    return tuple(dict.fromkeys(notes))
