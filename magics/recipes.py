"""``%maxkernel recipes [NAME]``, ``%maxkernel tune NAME`` and ``%maxkernel explain [NAME]``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from maxkernel_nb.errors import UsageError
from maxkernel_nb.magics.parsing import CommandLine
from maxkernel_nb.magics.profiling import inputs_named
from maxkernel_nb.magics.views import Table, Text
from maxkernel_nb.options import nearest

POINTS = 24  # constants tried where a person asks for tuning


def all_recipes() -> Table:
    from maxkernel_nb.authors.survey import known

    rows = tuple((name, title, "; ".join(limits)) for name, title, limits in known())
    return Table(("Recipe", "Writes", "Known limits"), rows)


def surveyed(line: CommandLine, namespace: Mapping[str, Any], project: str, chip: str) -> Table:
    """Every recipe's answer for a function of the notebook. Nothing is compiled or run."""
    from maxkernel_nb.authors.survey import survey
    from maxkernel_nb.store import Project
    from maxkernel_nb.tasks.build import build_task

    name = line.extra or ""
    chip = line.options.get("chip") or chip
    built = build_task(
        _function(name, namespace), namespace=namespace, shapes=line.options.get("shapes"),
        inputs=inputs_named(line.options.get("inputs"), namespace), static=line.options.get("static", ()), chip=chip,
        store=Project(project).prepare().objects,
    )
    answers = survey({case.name: built.trace(case.name) for case in built.task.cases}, built.task)
    rows = tuple(
        (a.recipe, "serves" if a.serves else "declines", a.reason, f"{a.bound_ms:.3g} ms" if a.bound_ms else "")
        for a in answers
    )
    algebra = next((a.algebra for a in answers if a.serves and a.algebra), ())
    caption = f"Algebra first: {'; '.join(algebra)}." if algebra else ""
    return Table(("Recipe", "Answer", "What or why", f"At least, on {chip}"), rows, caption=caption)


def tuned(line: CommandLine, namespace: dict[str, Any], project: str, api: Any, settings: Mapping[str, Any],
          created: Callable[[Any], None]) -> Any:
    """A run of the embedded recipes alone that spends its time on the constants of their kernel."""
    points = line.options.get("points", POINTS)
    if points < 1:
        raise UsageError(f"--points {points} tries nothing; give a number above 0.")
    given = {name: line.options.get(name) or settings[name].value for name in ("chip", "policy", "budget")}
    return api.start(
        _function(line.extra or "", namespace), namespace=namespace, shapes=line.options.get("shapes"),
        inputs=inputs_named(line.options.get("inputs"), namespace), static=line.options.get("static", ()),
        name=line.extra, author="recipes", tuning_points=points, project=project, on_created=created,
        **{name: value for name, value in given.items() if value is not None},
    )


def _function(name: str, namespace: Mapping[str, Any]) -> Any:
    found = namespace.get(name)
    if callable(found):
        return found
    near = [n for n, value in namespace.items() if callable(value) and not n.startswith("_")]
    hint = f"did you mean {nearest(name, near)!r}?" if near else "define it in a cell first."
    raise UsageError(f"There is no function {name!r} in the notebook; {hint}")


def explained(name: str, states: Sequence[Any]) -> Text:
    """The best kernel of the latest run with that id or for that function. ``states``: oldest first."""
    found = [s for s in states if s.task is not None and name in (s.run_id, s.task.entry, s.task.name)]
    if not found:
        runs = ", ".join(s.run_id for s in states) or "none yet"
        raise UsageError(f"There is no run of {name!r} in this project; runs: {runs}.")
    state = found[-1]
    if state.best is None:
        raise UsageError(f"Run {state.run_id} has no kernel that passed every check; the reference is kept.")
    return Text("\n".join(_lines(state)))


def _lines(state: Any) -> list[str]:
    best = state.candidates[state.best]
    candidate, profile, plan = best.candidate, best.profile, state.plan
    constants = ", ".join(f"{k} {v}" for k, v in candidate.params.items())
    title = f"{candidate.entry}, kernel {candidate.id} of run {state.run_id}"
    lines = [f"{title} ({constants})" if constants else title]
    if plan is not None:
        facts = (("What", plan.summary), ("Attacks", plan.attacks), ("Grid", plan.grid), ("In VMEM", plan.memory),
                 ("Overlap", plan.pipelining))  # fmt: skip
        lines += [f"{title}: {text}" for title, text in facts if text]
    if profile is not None:
        from maxkernel_nb.tpu.chips import chip
        from maxkernel_nb.tpu.explain import explain

        aimed = chip(profile.chip)
        if profile.hbm_bytes:
            ridge = aimed.device_tflops * 1e3 / aimed.device_hbm_gbs
            lines.append(
                f"Arithmetic intensity: {profile.flops / profile.hbm_bytes:.0f} FLOP a byte of HBM; {profile.chip} "
                f"computes as fast as it reads at {ridge:.0f}."
            )
        lines += explain(profile).split("\n")
    return lines
