"""``%maxkernel profile NAME``: what a name means, and its profile. A function, a run, or one candidate of a run."""

from __future__ import annotations

import contextlib
import difflib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from maxkernel_nb.engine.binding import BoundKernel
from maxkernel_nb.engine.state import CandidateState, RunState
from maxkernel_nb.errors import Declined, UsageError
from maxkernel_nb.evaluate.base import Evaluator
from maxkernel_nb.task import GateName, KernelTask, Parameter
from maxkernel_nb.tpu.failures import CompileFailure
from maxkernel_nb.tpu.profiles import ScheduleProfile

GATES = (GateName.SCREEN, GateName.TRACE, GateName.COMPILE, GateName.MODEL)  # nothing is run: no check
SHORTEST = 4  # characters of a candidate's id

Labelled = tuple[str, ScheduleProfile]


@dataclass(frozen=True)
class Profiler:
    """Finds and makes profiles. ``namespace``: the notebook's names; ``states``: of the project's runs by id, latest
    last; ``evaluator``: judges and compiles in its workers; ``wait`` runs one of its coroutines to the end.

    ``chip`` None: a run's own chip, ``default_chip`` for a function.
    """

    namespace: Mapping[str, Any]
    states: Mapping[str, Callable[[], RunState]]
    evaluator: Evaluator
    wait: Callable[[Any], Any]
    default_chip: str
    chip: str | None = None
    shapes: str | None = None
    inputs: Any = None
    static: Sequence[str] = ()

    def find(self, name: str) -> tuple[Labelled, ...]:
        """The profiles under ``name``: two for a run (its XLA reference first), one for anything else.

        Raises ``UsageError`` in one sentence: no such name, no inputs, a program that the compiler refuses.
        """
        if name in self.states:
            return self._run(name, self.states[name]())
        found = self.namespace.get(name)
        if isinstance(found, BoundKernel):
            state = found.run.state
            return self._run(state.run_id, state)
        if callable(found):
            return (self._function(name, found),)
        for run, state in reversed(list(self.states.items())) if len(name) >= SHORTEST else ():
            candidate = _candidate(state(), name)
            if candidate is not None:
                return (self._candidate(state(), candidate, f"{candidate.candidate.id} of {run}"),)
        raise UsageError(self._unknown(name))

    def _run(self, run: str, state: RunState) -> tuple[Labelled, ...]:
        task = _task(run, state)
        reference = None if self._elsewhere(task) else state.baseline
        if self._elsewhere(task):
            with contextlib.suppress(Declined):  # the kernel's own profile is worth showing without it
                reference = self.wait(self.evaluator.baseline(self._moved(task)))
        sides = [("XLA reference", reference)] if reference is not None else []
        best = state.candidates.get(state.best) if state.best else None
        if best is not None:
            sides.append(self._candidate(state, best, f"best kernel of {run}"))
        if not sides:
            raise UsageError(f"Run {run} has no profile yet; wait for it with %maxkernel wait {run}.")
        return tuple(sides)

    def _candidate(self, state: RunState, candidate: CandidateState, label: str) -> Labelled:
        task = _task(state.run_id, state)
        known = candidate.profile
        if known is None or self._elsewhere(task):
            judged = self.wait(self.evaluator.judge(self._moved(task), candidate.candidate, GATES))
            known = judged.profile
            if known is None:
                why = next((v.summary for v in reversed(judged.assessment.verdicts)), "nothing was judged.")
                raise UsageError(f"{label} has no profile on {self.chip or task.chip}: {why}")
        return label, known

    def _function(self, name: str, fn: Callable[..., Any]) -> Labelled:
        from maxkernel_nb.evaluate.profiling import profile
        from maxkernel_nb.tasks.tracing import structs

        args, static, call = self._call(name, fn)
        executor = getattr(self.evaluator, "executor", None)
        chip = self.chip or self.default_chip
        named = functools.wraps(fn)(lambda *arrays: call(args, static, arrays))
        try:
            return name, profile(named, *structs(args), chip=chip, executor=executor)
        except CompileFailure as failure:
            raise UsageError(refused(name, chip, failure)) from failure

    def _call(self, name: str, fn: Callable[..., Any]) -> tuple[Any, dict[str, Any], Callable[..., Any]]:
        """Array arguments, static ones, and how to call: inputs as for a run, else those of the latest run of it."""
        from maxkernel_nb.tasks.inputs import resolve_inputs
        from maxkernel_nb.tasks.tracing import Tracer

        trees: tuple[Parameter, ...] = ()

        def call(args: Any, static: dict[str, Any], arrays: tuple[Any, ...]) -> Any:
            return Tracer(fn, [a.name for a in args], static, trees).call(*arrays)

        try:
            found = resolve_inputs(
                fn, inputs=self.inputs, namespace=self.namespace, shapes=self.shapes, static=self.static
            )
        except UsageError:
            earlier = self._earlier(name)
            if earlier is None or self.shapes or self.inputs is not None:
                raise
            trees = earlier.trees
            return earlier.timing_case.args, dict(earlier.static), call
        trees = found.trees
        return found.args, found.static, call

    def _earlier(self, name: str) -> KernelTask | None:
        tasks = (state().task for state in reversed(list(self.states.values())))
        return next((t for t in tasks if t is not None and t.entry == name), None)

    def _elsewhere(self, task: KernelTask) -> bool:
        return self.chip is not None and self.chip != task.chip

    def _moved(self, task: KernelTask) -> KernelTask:
        return task.model_copy(update={"chip": self.chip or task.chip})

    def _unknown(self, name: str) -> str:
        known = [n for n, v in self.namespace.items() if callable(v) and not n.startswith("_")] + list(self.states)
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else "give a function's name, a run's id, or a candidate's id."
        return f"There is no function, run or candidate {name!r}; {hint}"


def refused(name: str, chip: str, failure: CompileFailure) -> str:
    """One sentence: what failed, where, why, and what to try."""
    found = failure.diagnosis
    said = " ".join(failure.message.split())
    where = f" at {found.where}" if found.line else ""
    told = found.explained or (said if len(said) < 300 else said[:300] + " ...")
    return f"{name} cannot be profiled for {chip} ({found.kind}{where}): {told}"


def _task(run: str, state: RunState) -> KernelTask:
    if state.task is None:
        raise UsageError(f"Run {run} ended before its task was recorded; run its cell again.")
    return state.task


def _candidate(state: RunState, name: str) -> CandidateState | None:
    return next((c for key, c in state.candidates.items() if key.startswith(name)), None)
