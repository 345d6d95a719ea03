"""The Python interface: the same runs as the magics start, without magic."""

from __future__ import annotations

import dataclasses
import functools
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from maxkernel_nb import compat
from maxkernel_nb import events as ev
from maxkernel_nb.approvals import Binder, NamespaceBinder, NoBinder, applied_last, bind_again
from maxkernel_nb.authors.base import Author, TaskView
from maxkernel_nb.authors.choose import AUTHORS, choose_author
from maxkernel_nb.budget import Budget, parse_budget
from maxkernel_nb.engine.loop import get_engine
from maxkernel_nb.engine.runtime import RunSettings, Runtime
from maxkernel_nb.engine.state import RunState, fold
from maxkernel_nb.errors import ApprovalRequired, JournalError, TaskError, UsageError
from maxkernel_nb.journal import Journal, read_events, read_timed_events, writer
from maxkernel_nb.modes import drive_of
from maxkernel_nb.options import POLICIES, STRATEGIES
from maxkernel_nb.run import Run
from maxkernel_nb.store import Project
from maxkernel_nb.task import Case, KernelTask
from maxkernel_nb.tpu.chip.owner import Ownership, ownership
from maxkernel_nb.values import Value

Policy = Literal["ask", "accept-verified", "propose"]


class RunSummary(Value):
    """A line of ``%maxkernel list``. ``live``: driven by this process."""

    id: str
    mode: str
    status: str
    outcome: str
    chip: str
    speedup: float | None
    live: bool
    started: float = 0.0  # seconds since the epoch


def start(
    fn: Callable[..., Any], *, source: str | None = None, mode: str = "auto", inputs: Any = None,
    namespace: dict[str, Any] | None = None, shapes: str | None = None, static: Sequence[str] = (),
    name: str | None = None, chip: str | None = None, policy: Policy = "ask",
    budget: Budget | str | None = None, atol: float | None = None, rtol: float | None = None,
    gradient: bool | None = None, differentiated: str = "", cases: Sequence[str | Case] = (),
    bind: Binder | None = None, project: str | Path | None = None,
    author: Author | str | None = None, claude: Mapping[str, Any] | None = None, tuning_points: int | None = None,
    on_created: Callable[[Run], None] | None = None, strategy: str | None = None, executor: str | None = None,
    address: str | None = None, seed: int = 0,
) -> Run:
    """Builds the task on this thread and starts a run on the engine's; returns at once.

    ``address``: of the Ray cluster, with ``executor`` ``ray`` (default: RAY_ADDRESS, else ``auto``).
    ``author``: one of ``recipes``, ``claude``, ``both``, or an author; by default both when there is a key for Claude.
    ``gradient``: the kernel must have the function's gradient too. Where it is None, ``differentiated`` (the call that
    differentiates the function, as text) asks that a gradient of its own that a kernel has is right.
    ``claude``: settings such as ``{"model": ..., "rounds": 2}``, see ``ClaudeSettings``.
    ``on_created(run)`` is called before any work begins, so that a panel can be drawn first. Raises ``UsageError`` or
    ``TaskError`` with one sentence when the function or its inputs cannot be used, ``JournalError`` when nothing can
    be recorded.
    """
    drive = drive_of(mode)
    settings = _settings(policy, budget, tuning_points, strategy, executor, seed)
    place = Project(project).prepare()
    if settings.executor == "ray":  # before anything is recorded: there may be no cluster
        from maxkernel_nb.evaluate.ray_executor import ray_width

        get_engine().evaluator(place, "ray", address)
        settings = dataclasses.replace(settings, width=ray_width())
    from maxkernel_nb.tasks.build import build_task
    from maxkernel_nb.tpu.chips import chip as find_chip

    owned = _chip_owner()
    chip_name = find_chip(chip or default_chip()).name
    built = build_task(
        fn, source=source, name=name, inputs=inputs, namespace=namespace, shapes=shapes, static=tuple(static),
        chip=chip_name, atol=atol, rtol=rtol, cases=tuple(cases), store=place.objects,
        full_oracle=owned.owner != "none", gradient=bool(gradient),
        differentiated=differentiated if gradient is None else "",
    )
    author, note = _author(author, claude)
    task = built.task.model_copy(update={"salt": secrets.token_hex(8)})
    run = _create(place, task, mode, author, _recorded_options(settings, claude))
    for text in filter(None, (note, *built.notes)):
        run.emit(ev.Noted(text=text))
    binder = bind or (NamespaceBinder(namespace, fn) if namespace is not None else NoBinder(fn))
    _launch(run, TaskView(task=task, trace=built.trace), author, binder, settings, drive, on_created)
    return run


def optimize(fn: Callable[..., Any], *, inputs: Any = None, chip: str | None = None, mode: str = "auto",
             policy: Policy = "accept-verified", wait: bool = True, **options: Any) -> Any:
    """Makes ``fn`` fast: returns a ``BoundKernel`` when a verified kernel was accepted, else ``fn`` itself.

    ``inputs`` is a tuple or dict of arrays (or ``jax.ShapeDtypeStruct``), or a function that makes them. With
    ``wait=False`` returns the ``Run``. Other options as for ``start``. Raises ``ApprovalRequired`` when the policy
    leaves the decision to a person: take it with ``run.accept()``.
    """
    binder = NoBinder(fn)
    run = start(fn, inputs=inputs, chip=chip, mode=mode, policy=policy, bind=binder, **options)
    if not wait:
        return run
    run.wait()
    state = run.state
    if state.outcome is ev.RunOutcome.FAILED:
        raise TaskError(state.reason)
    if state.open_question is not None and not state.ended:
        names = ", ".join(choice.name for choice in state.open_question.choices)
        raise ApprovalRequired(
            f"Run {run.id} asks {state.open_question.title!r}; call maxkernel_nb.find_run({run.id!r}).answer(CHOICE), "
            f"CHOICE one of {names}, or pass policy='accept-verified', which takes every default."
        )
    if state.open_proposal is not None:
        raise ApprovalRequired(
            f"Run {run.id} leaves its proposal to you ({state.reason or f'policy {policy!r}'}); call "
            f"maxkernel_nb.find_run({run.id!r}).accept() and take .kernel, or reject it."
        )
    return binder.bound if binder.bound is not None else fn


def maxkernel(*, inputs: Any, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator form of ``optimize``: ``@maxkernel(inputs=(x, w), chip="v6e")``."""

    def decorate(fn: Callable[..., Any]) -> Any:
        return optimize(fn, inputs=inputs, **options)

    return decorate


def resume(run_id: str, fn: Callable[..., Any] | None = None, *, namespace: dict[str, Any] | None = None,
           project: str | Path | None = None, policy: Policy | None = None, budget: Budget | str | None = None,
           author: Author | str | None = None, claude: Mapping[str, Any] | None = None,
           on_created: Callable[[Run], None] | None = None, again: bool = False, address: str | None = None,
           by_hand: bool = False) -> Run:
    """Continues a run from its journal without repeating finished steps. ``address``: as for ``start``.

    ``fn`` (or the function of that name in ``namespace``) is needed to bind the result, and to plan when the run ended
    before its plan was made. An accepted run binds its kernel again, from its journal. Raises ``UsageError`` for a run
    that is alive here or has nothing left to do.
    """
    place = Project(project)
    alive = get_engine().find(place, run_id)
    if alive is not None and not alive.closed:
        raise UsageError(f"Run {run_id} is already {alive.state.status} here; see `%maxkernel show {run_id}`.")
    if alive is not None:
        alive.close()
    folder = _folder(place, run_id)
    state = fold(read_events(folder))
    if not again:  # a search goes on after its end when a person asks for more
        _refuse_finished(state)
    task = _task_of(state)
    fn, doubt = _recognised(fn or (namespace or {}).get(task.entry), task)
    if fn is None and state.plan is None:
        raise UsageError(
            doubt or f"Run {run_id} was stopped before its plan was made, and {task.entry} is not defined here; define "
            "the function as it was (without the %%maxkernel line), then resume."
        )
    if state.options.get("executor") == "ray":
        get_engine().evaluator(place, "ray", address)
    settings, claude = _restored(state, policy, budget), {**state.options.get("claude", {}), **(claude or {})}
    chosen, _ = _author(author or (state.author if state.author in AUTHORS else None), claude)
    journal = Journal(folder)
    run = Run(place, journal, read_events(folder))  # read again: nobody else writes from here on
    binder: Binder = NamespaceBinder(namespace, fn) if namespace is not None else NoBinder(fn)
    run.emit(ev.StatusChanged(status=ev.Status.RUNNING, reason="resumed"))
    options = _recorded_options(settings, claude)
    if any(run.state.options.get(name) != value for name, value in options.items()):
        run.emit(ev.OptionsChanged(options=options))
    if by_hand:  # see take_over
        run.emit(ev.OptionsChanged(options={"taken_over": run.state.best or ""}))
    if doubt:
        run.emit(ev.Noted(level="warning", text=doubt))
    drive = bind_again if state.outcome is ev.RunOutcome.ACCEPTED else drive_of(run.state.mode)
    _launch(run, TaskView(task=task, trace=_retrace(task, fn)), chosen, binder, settings, drive, on_created)
    return run


def take_over(run_id: str, *, namespace: dict[str, Any] | None = None, project: str | Path | None = None,
              **options: Any) -> Run:
    """Goes on step by step, asking a person, with what a run of another mode found: same run, journal and spend.

    A live run is stopped first. Other options as for ``resume``. Raises ``UsageError`` for a run that asks already, or
    whose kernel is accepted.
    """
    place = Project(project)
    alive = get_engine().find(place, run_id)
    state = alive.state if alive is not None else fold(read_events(_folder(place, run_id)))
    if state.mode == "hitl":
        raise UsageError(f"Run {run_id} goes step by step already; %maxkernel resume {run_id} continues it.")
    if state.outcome is ev.RunOutcome.ACCEPTED:
        raise UsageError(f"The kernel of run {run_id} is accepted; %maxkernel undo {run_id} first, then take it over.")
    if alive is not None and not alive.closed:
        alive.stop("taken over, to go on step by step").wait_end(30)
        alive.close()
    options = {"policy": "ask", **{name: value for name, value in options.items() if value is not None}}
    return resume(run_id, namespace=namespace, project=project, again=True, by_hand=True, **options)


def continue_search(run_id: str, node: str, *, source: str | None = None, project: str | Path | None = None,
                    **options: Any) -> Run:
    """Goes on with a search from one of its nodes, live or ended: the node is pinned, and every second draw builds on
    it. With ``source``, a person's own kernel becomes a child of the node, is judged first and pinned instead.

    Other options as for ``resume``. Raises ``UsageError`` for a run that is no search, an unknown node (``best``
    is known) or a text that is no kernel.
    """
    place, folder = Project(project), _folder(Project(project), run_id)
    alive = get_engine().find(place, run_id)
    state = alive.state if alive is not None else fold(read_events(folder))
    if state.mode != "search":
        raise UsageError(f"Run {run_id} is no search but {state.mode}; %maxkernel resume continues it.")
    node = (state.best or node) if node == "best" else node
    if alive is not None and not alive.closed:
        if state.status is not ev.Status.WAITING:
            _mark(alive, node, source)
            return alive
        alive.stop("continued from one of its kernels").wait_end(30)
    if alive is not None:
        alive.close()
    run = Run(place, Journal(folder), read_events(folder))
    try:
        _mark(run, node, source)
    finally:
        run.close()
    budget = options.pop("budget", None) or _as_much_again(run.state)
    return resume(run_id, project=project, budget=budget, again=True, **options)


def _as_much_again(state: RunState) -> Budget:
    """The recorded caps, counted from what is spent by now."""
    caps, spent = Budget.from_dict(state.options["budget"]).to_dict(), state.spend.to_dict()
    spent["tokens"] = state.spend.input_tokens + state.spend.output_tokens
    return Budget.from_dict({name: cap if cap is None else cap + spent[name] for name, cap in caps.items()})


def _mark(run: Run, node: str, source: str | None) -> None:
    if source is None:
        run.mark(node, "pinned", via="continue")
    else:
        run.add_kernel(source, node, via="continue")


def _recognised(fn: Any, task: KernelTask) -> tuple[Any, str]:
    """The function itself when it still is the task's reference, else None and the reason that is shown."""
    from maxkernel_nb.engine.binding import BoundKernel
    from maxkernel_nb.tasks.reference import capture
    from maxkernel_nb.tasks.tracing import Tracer
    from maxkernel_nb.values import content_hash

    fn = fn.reference if isinstance(fn, BoundKernel) else fn
    if fn is None:
        return None, ""
    timing = task.timing_case
    try:
        tracer = Tracer(fn, task.params, dict(task.static), task.trees)
        now = content_hash(capture(fn, [timing], dict(task.static), tracer)[0].device)
    except TaskError as error:
        return None, f"{task.entry} cannot be traced any more ({error}), so nothing will be bound to its name."
    if now == task.reference(timing.name).device:
        return fn, ""
    return None, (
        f"{task.entry} is not the function this run was started with, so nothing will be bound to its name; run its "
        "cell again to start anew, or define it as it was and resume."
    )


def runs(project: str | Path | None = None) -> list[RunSummary]:
    """The runs of a project, oldest first. A journal that cannot be read is listed with its error as status."""
    place = Project(project)
    folders = sorted(p for p in place.runs.glob("*") if p.is_dir()) if place.runs.is_dir() else []
    return sorted((_summarise(place, f) for f in folders), key=lambda s: (s.started, s.id))


def find_run(run_id: str, project: str | Path | None = None) -> Run | RunState:
    """The live run of this process, or the recorded state of one that is not."""
    place = Project(project)
    alive = get_engine().find(place, run_id)
    return alive if alive is not None else fold(read_events(_folder(place, run_id)))


def _chip_owner() -> Ownership:
    """Decided before jax is first used here; where a worker is to hold the TPU, jax stays on the CPU."""
    owned = ownership()
    if owned.owner == "worker" and not owned.rehearsal:
        compat.prepare_host_backend(though_attached=True)
    return owned


def default_chip() -> str:
    """The TPU of this machine, else v6e. Never initialises a backend."""
    from maxkernel_nb.tpu.present import detect_present_chip

    return detect_present_chip() or "v6e"


# -- private ---------------------------------------------------------------------------------------------------------


def _author(given: Author | str | None, claude: Mapping[str, Any] | None = None) -> tuple[Author, str]:
    """An author, or the one of that name (``recipes``, ``claude``, ``both``), with a sentence for the person."""
    if given is not None and not isinstance(given, str):
        return given, ""
    return choose_author(given, claude)


def _settings(policy: str, budget: Budget | str | None, tuning_points: int | None, strategy: str | None = None,
              executor: str | None = None, seed: int = 0, width: int | None = None) -> RunSettings:
    if policy not in POLICIES:
        raise UsageError(f"There is no policy {policy!r}; use one of: {', '.join(POLICIES)}.")
    caps = parse_budget(budget) if isinstance(budget, str) else budget or Budget()
    given = {"tuning_points": tuning_points, "strategy": strategy, "executor": executor, "width": width}
    if strategy is not None and strategy not in STRATEGIES:
        raise UsageError(f"There is no strategy {strategy!r}; use one of: {', '.join(STRATEGIES)}.")
    extra: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if tuning_points is not None:  # who asks for many points wants more than the first few to be told
        extra["patience"] = max(RunSettings.patience, tuning_points // 3)
    return RunSettings(policy=policy, budget=caps, seed=seed, **extra)


def _restored(state: RunState, policy: Policy | None, budget: Budget | str | None) -> RunSettings:
    recorded = state.options
    caps = budget if budget is not None else Budget.from_dict(recorded["budget"])
    of_search = {name: recorded[name] for name in ("strategy", "executor", "seed", "width") if name in recorded}
    return _settings(policy or recorded["policy"], caps, recorded["tuning_points"], **of_search)


def _create(place: Project, task: KernelTask, mode: str, author: Author, options: dict[str, Any]) -> Run:
    folder = _new_folder(place, task.name)
    run = Run(place, Journal(folder))
    run.emit(ev.RunCreated(run_id=folder.name, mode=mode, author=author.name, task=task,
                           options=options, versions=versions()))
    return run


def _recorded_options(settings: RunSettings, claude: Mapping[str, Any] | None) -> dict[str, Any]:
    """An address is not recorded: it may hold a password."""
    recorded: dict[str, Any] = {
        "policy": settings.policy, "budget": settings.budget.to_dict(), "tuning_points": settings.tuning_points,
        "strategy": settings.strategy, "executor": settings.executor, "seed": settings.seed, "width": settings.width,
    }
    kept = {name: value for name, value in (claude or {}).items() if name != "base_url"}
    return {**recorded, "claude": kept} if kept else recorded


def versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for package in ("maxkernel-nb", "jax", "jaxlib", "libtpu"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _new_folder(place: Project, name: str) -> Path:
    number = 1
    while True:
        try:
            folder = place.runs / f"{name}-{number}"
            folder.mkdir()
            return folder
        except FileExistsError:
            number += 1
        except OSError as error:
            raise JournalError(
                f"Cannot make the run's folder {folder} ({error.strerror}); free space or change its permissions."
            ) from error


def _launch(run: Run, view: TaskView, author: Author, binder: Binder, settings: RunSettings, drive: Any,
            on_created: Callable[[Run], None] | None) -> None:
    engine = get_engine()
    runtime = Runtime(run, loop=engine.loop, author=author,
                      evaluator=engine.evaluator(run.project, settings.executor), view=view,
                      binder=binder, settings=settings)
    engine.add(run)
    try:
        if on_created is not None:
            on_created(run)
        runtime.evaluator.warm()
    except BaseException as error:  # nothing drives it yet: without this it would look alive for ever
        runtime.end(ev.RunOutcome.FAILED, f"The run could not start: {type(error).__name__}: {error}")
        raise
    engine.submit(runtime.drive(drive))


def _folder(place: Project, run_id: str) -> Path:
    import difflib

    if not re.fullmatch(r"[\w.-]+", run_id) or not (place.runs / run_id).is_dir():
        known = [p.name for p in place.runs.glob("*")] if place.runs.is_dir() else []
        near = difflib.get_close_matches(run_id, known, 1) or known[-1:]
        hint = f"did you mean {near[0]!r}?" if near else "this project has no runs yet."
        raise UsageError(f"There is no run {run_id!r} in {place.folder}; {hint}")
    return place.runs / run_id


def _refuse_finished(state: RunState) -> None:
    unfinished = (ev.RunOutcome.STOPPED, ev.RunOutcome.FAILED, ev.RunOutcome.PROPOSED)
    accepted = state.outcome is ev.RunOutcome.ACCEPTED and applied_last(state) is not None
    if state.ended and state.outcome not in unfinished and not accepted:
        raise UsageError(f"Run {state.run_id} is finished ({state.outcome}); run its cell again to start a new one.")


def _task_of(state: RunState) -> KernelTask:
    if state.task is None:
        raise JournalError("The journal ends before the task was recorded; run the cell again.")
    return state.task


def _retrace(task: KernelTask, fn: Callable[..., Any] | None) -> Callable[[str], Any]:
    def trace(case: str) -> Any:
        if fn is None:
            raise TaskError(
                f"The function {task.entry!r} is not defined in this kernel; run the cell that defines it, then resume."
            )
        from maxkernel_nb.tasks.build import trace_case

        return trace_case(fn, task, case)

    return functools.cache(trace)


def _summarise(place: Project, folder: Path) -> RunSummary:
    alive = get_engine().find(place, folder.name)
    try:
        timed = read_timed_events(folder)
    except JournalError as error:
        return RunSummary(id=folder.name, mode="", status=str(error), outcome="", chip="", speedup=None, live=False,
                          started=folder.stat().st_ctime)
    state = alive.state if alive is not None else fold(event for _, event in timed)
    live = alive is not None and not alive.closed
    return RunSummary(
        id=folder.name, mode=state.mode, status=_status(folder, state, live), outcome=state.outcome or "",
        chip=state.task.chip if state.task else "", speedup=state.speedup, live=live,
        started=timed[0][0] if timed else 0.0,
    )


def _status(folder: Path, state: RunState, live: bool) -> str:
    if live or state.ended:
        return state.status.value
    owner = writer(folder)
    return f"{state.status.value} in process {owner}" if owner else "interrupted"
