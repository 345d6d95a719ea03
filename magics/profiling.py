"""``%maxkernel profile [NAME]``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from maxkernel_nb.errors import UsageError
from maxkernel_nb.magics.parsing import CommandLine
from maxkernel_nb.magics.views import Bundle
from maxkernel_nb.options import nearest


def profiled(line: CommandLine, latest: Callable[[], str], namespace: Mapping[str, Any], project: str, api: Any,
             chip: str | None, known: list[str]) -> Bundle:
    """The profile that ``line`` asks for; ``known``: ids of the project's runs, ``chip``: the setting's."""
    from maxkernel_nb.api import default_chip
    from maxkernel_nb.document.profile import compared
    from maxkernel_nb.engine.loop import get_engine
    from maxkernel_nb.engine.profiling import Profiler
    from maxkernel_nb.store import Project
    from maxkernel_nb.widgets.profiles import profile_bundle

    engine, options = get_engine(), line.options
    profiler = Profiler(
        namespace=namespace,
        states={run: _state_of(api, run, project) for run in known},
        evaluator=engine.evaluator(Project(project)),
        wait=lambda work: _waited(engine.submit(work)),
        default_chip=chip or default_chip(),
        chip=options.get("chip"),
        shapes=options.get("shapes"),
        inputs=inputs_named(options.get("inputs"), namespace),
        static=options.get("static", ()),
    )
    name = line.extra or latest()
    sides = profiler.find(name)
    if other := options.get("compare"):
        sides = (sides[-1], profiler.find(other)[-1])
    view = compared(sides, sides[-1][1].chip)
    assert view is not None  # there is at least one side
    return Bundle(profile_bundle(view, name))


def _waited(work: Future[Any]) -> Any:
    try:
        return work.result()
    except KeyboardInterrupt:
        work.cancel()
        raise


def _state_of(api: Any, run: str, project: str) -> Callable[[], Any]:
    def state() -> Any:
        found = api.find_run(run, project=project)
        return getattr(found, "state", found)

    return state


def inputs_named(name: str | None, namespace: Mapping[str, Any]) -> Any:
    if name is None or name in namespace:
        return namespace.get(name) if name else None
    near = [n for n in namespace if not n.startswith("_")]
    hint = f"did you mean {nearest(name, near)!r}?" if near else "define it in a cell first."
    raise UsageError(f"--inputs {name}: there is no such name in the notebook; {hint}")
