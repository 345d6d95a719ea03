"""From a decision to its effect. Button, magic, lab extension and policy all end here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from maxkernel_nb import events as ev
from maxkernel_nb.engine.binding import BoundKernel
from maxkernel_nb.engine.state import ProposalState, RunState
from maxkernel_nb.errors import UsageError
from maxkernel_nb.events import RunOutcome
from maxkernel_nb.store import write_atomically
from maxkernel_nb.task import Candidate, GateName, Outcome
from maxkernel_nb.values import content_hash

if TYPE_CHECKING:
    from maxkernel_nb.engine.runtime import Runtime


class Binder(Protocol):
    """Puts a callable under the function's name where the person works; gives the reference back.

    ``reference`` is None when the live function is gone (a resumed run): the file is still written.
    """

    reference: Any

    def bind(self, name: str, value: Any) -> str:
        """Empty, or why the name was left alone."""
        ...


class NoBinder:
    """For callers that only want the file and the return value."""

    def __init__(self, reference: Any = None) -> None:
        self.reference = reference
        self.bound: Any = None

    def bind(self, name: str, value: Any) -> str:
        self.bound = value
        return ""


class NamespaceBinder:
    """Binds in a notebook's namespace, but never over something that is not this run's function."""

    def __init__(self, namespace: dict[str, Any], reference: Any) -> None:
        self.namespace = namespace
        self.reference = reference

    def bind(self, name: str, value: Any) -> str:
        now = self.namespace.get(name, self.reference)
        if now is not self.reference and getattr(now, "reference", None) is not self.reference:
            return f"{name} is something else by now ({type(now).__name__}) and was left alone"
        self.namespace[name] = value
        return ""


async def settle(runtime: Runtime, proposal_id: str) -> tuple[RunOutcome, str]:
    """Carries out a decided proposal: judge a merged text if needed, write the file, bind the name."""
    proposal = runtime.run.state.proposals[proposal_id]
    decision = proposal.decision
    assert decision is not None
    if not decision.accepted or decision.hunks == ():
        return RunOutcome.REJECTED, "The proposal was rejected; the function is unchanged."
    candidate = runtime.run.state.candidates[proposal.candidate].candidate
    source = proposal.patch.apply(decision.hunks)
    if source != candidate.source:
        candidate, trouble = await _judge_merge(runtime, candidate, source)
        if trouble:
            reason = f"The chosen hunks were not applied, for together they fail: {trouble} The proposal is open again."
            runtime.run.emit(ev.DecisionRefused(proposal=proposal_id, reason=reason))
            return RunOutcome.PROPOSED, reason
    return _outcome(runtime, *apply(runtime, proposal, candidate))


async def bind_again(runtime: Runtime) -> tuple[RunOutcome, str]:
    """What an accepted run applied last, from its journal: after a kernel restart, or after an undo. Nothing is run."""
    state = runtime.run.state
    proposal = applied_last(state)
    assert proposal is not None
    candidate = next(c.candidate for c in state.candidates.values() if c.candidate.source == proposal.applied_source)
    return _outcome(runtime, *apply(runtime, proposal, candidate))


def applied_last(state: RunState) -> ProposalState | None:
    return next((p for p in reversed(state.proposals.values()) if p.applied_source), None)


def _outcome(runtime: Runtime, path: str, left_alone: str) -> tuple[RunOutcome, str]:
    if left_alone:
        return RunOutcome.ACCEPTED, f"Accepted: the kernel is saved in {path}; {left_alone}."
    return RunOutcome.ACCEPTED, f"Accepted: {runtime.task.entry} is bound to the kernel, saved in {path}."


async def _judge_merge(runtime: Runtime, parent: Candidate, source: str) -> tuple[Candidate, str]:
    merged = Candidate(source=source, entry=parent.entry, author="person", parent=parent.id, params=parent.params,
                       note="some hunks of a proposal")
    runtime.run.emit(ev.CandidateAdded(candidate=merged))
    judged = await runtime.evaluator.judge(
        runtime.task, merged,
        on_verdict=lambda verdict: runtime.run.emit(ev.VerdictReached(candidate=merged.id, verdict=verdict)),
    )
    if judged.assessment.correct:
        from maxkernel_nb.agents.tester import stressed_again

        unusual = await stressed_again(runtime, merged)
        return merged, next((v.summary for v in unusual if v.outcome is Outcome.FAIL), "")
    failed = judged.assessment.failed
    return merged, failed[0].summary if failed else "it passed fewer than three shape cases."


def apply(runtime: Runtime, proposal: ProposalState, candidate: Candidate) -> tuple[str, str]:
    """Writes the kernel's file, then binds it. Gives the path relative to the project, and why it was not bound."""
    run = runtime.run
    path = run.project.kernels / f"{runtime.task.name}.py"
    replace_kernel(path, candidate.source)
    relative = run.project.relative(path)
    left_alone = "the function of this run is not defined here, so nothing was bound"
    if runtime.binder.reference is not None:
        run.kernel = bound_kernel(runtime, candidate, path)
        left_alone = runtime.binder.bind(runtime.task.entry, run.kernel)
    run.emit(ev.Applied(proposal=proposal.id, path=relative, bound=not left_alone, source=candidate.source))
    return relative, left_alone


def replace_kernel(path: Path, source: str) -> None:
    """Writes the kernel's file. Another text there (an earlier run's, a person's edit) moves to a name of its own."""
    if path.exists() and (before := path.read_bytes()) != source.encode():
        write_atomically(path.with_name(f"{path.stem}-{content_hash(before)[:8]}.py"), before, unless_present=True)
    write_atomically(path, source.encode())


def bound_kernel(runtime: Runtime, candidate: Candidate, path: Path) -> BoundKernel:
    return BoundKernel(
        runtime.binder.reference, runtime.run, candidate.source, path, candidate.entry,
        verified=verified_shapes(runtime, candidate), static=dict(runtime.task.static), chip=runtime.task.chip,
        trees=runtime.task.trees,
    )


def verified_shapes(runtime: Runtime, candidate: Candidate) -> frozenset[tuple[tuple[tuple[int, ...], str], ...]]:
    """The argument shapes whose checks passed, and the timing case's, which was compiled at full size."""
    verdicts = runtime.run.state.candidates[candidate.id].verdicts
    refused = {v.case for v in verdicts if v.outcome in (Outcome.DECLINED, Outcome.FAIL) and not v.variant}
    passed = {v.case for v in verdicts if v.gate is GateName.CHECK and v.outcome is Outcome.PASS} - refused
    passed.add(runtime.task.timing_case.name)
    return frozenset(
        tuple((arg.shape, arg.dtype) for arg in case.args) for case in runtime.task.cases if case.name in passed
    )


def undo_last(runtime: Runtime) -> None:
    """Binds the reference again. Raises ``UsageError`` when nothing is applied. The kernel's file stays."""
    state = runtime.run.state
    applied = next((p for p in reversed(state.proposals.values()) if p.bound and not p.undone), None)
    if applied is None:
        raise UsageError(f"Run {state.run_id} has nothing applied to undo; it is {state.outcome or state.status}.")
    if left_alone := runtime.binder.bind(runtime.task.entry, runtime.binder.reference):
        raise UsageError(f"Nothing was undone: {left_alone}.")
    runtime.run.emit(ev.Undone(proposal=applied.id))
