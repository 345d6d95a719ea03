"""Mode ``auto``: plan, implement, debug, tune, keep the best, propose."""

from __future__ import annotations

import asyncio

from maxkernel_nb import events as ev
from maxkernel_nb.agents.admission import admit
from maxkernel_nb.agents.implementer import implement
from maxkernel_nb.agents.improver import improve
from maxkernel_nb.agents.planner import no_baseline, plan, profile_reference
from maxkernel_nb.agents.seat import seat
from maxkernel_nb.agents.tuner import tune
from maxkernel_nb.agents.variants import another_way, fastest_way
from maxkernel_nb.approvals import settle
from maxkernel_nb.authors.model_errors import AttemptFailed
from maxkernel_nb.engine.runtime import Runtime
from maxkernel_nb.errors import BudgetExceeded, Declined
from maxkernel_nb.events import RunOutcome
from maxkernel_nb.patches import make_patch
from maxkernel_nb.task import Candidate, GateName, Outcome, Plan


async def auto(runtime: Runtime) -> tuple[RunOutcome, str]:
    """The autonomous metric-driven loop."""
    seat(runtime)
    await prepare(runtime)
    try:
        await _find_best(runtime)
    except BudgetExceeded as error:
        if runtime.run.state.best is None:
            raise
        runtime.note(f"{error} The best kernel so far is proposed.", "warning")
    if (reason := why_keep_reference(runtime)) is not None:
        return RunOutcome.KEPT_REFERENCE, reason
    return await propose(runtime)


async def prepare(runtime: Runtime) -> None:
    """Profiles the reference and tries the task's tolerance, side by side; both have ended when this returns."""
    results = await asyncio.gather(profile_reference(runtime), admit(runtime), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def _find_best(runtime: Runtime) -> None:
    try:
        made = await plan(runtime)
        if (way := await _first_way(runtime, made)) is not None:
            await tune(runtime, *way)
    except AttemptFailed as error:
        runtime.note(f"Round 1 gave nothing: {error}", "warning")
    except Declined as error:
        if runtime.run.state.plan is None or getattr(runtime.author, "next_attack", None) is None:
            raise
        runtime.note(f"Round 1 ended early: {error}", "warning")
    if reason := await improve(runtime):
        runtime.note(reason)


async def _first_way(runtime: Runtime, made: Plan) -> tuple[Plan, Candidate] | None:
    """The plan and the kernel that constants are sought for; None where no kernel passed every check.

    Raises ``Declined`` where the author cannot mend its kernel and has no other.
    """
    try:
        first, judgement = await implement(runtime, made)
        if judgement.assessment.correct:
            return await fastest_way(runtime, made, first)
    except Declined:
        if (other := await another_way(runtime)) is None:
            raise
        return other
    return await another_way(runtime)


def why_keep_reference(runtime: Runtime) -> str | None:
    """The reason for proposing nothing, or None."""
    state = runtime.run.state
    if state.best is None:
        failed = [v for c in state.candidates.values() for v in c.verdicts if v.outcome is Outcome.FAIL]
        last = f" ({failed[-1].summary})" if failed else ""
        return f"No candidate passed every check{last}; the reference is kept."
    if state.speedup is not None and state.speedup < runtime.settings.min_speedup:
        how = "measured" if state.measured is not None else "modelled"
        return (
            f"The best verified kernel is {how} at {state.speedup:.2f}x the speed of XLA's reference, below "
            f"the {runtime.settings.min_speedup:.2f}x worth changing code for; the reference is kept."
        )
    return None


async def propose(runtime: Runtime) -> tuple[RunOutcome, str]:
    """Proposes the best kernel as a patch of the reference's source and lets the policy or the person decide."""
    state = runtime.run.state
    assert state.best is not None
    candidate = state.candidates[state.best].candidate
    proposal = f"proposal-{candidate.id}"
    if proposal not in state.proposals:
        patch = make_patch(runtime.task.source, candidate.source)
        claim = claim_of(runtime)
        runtime.run.emit(ev.ProposalMade(proposal=proposal, candidate=candidate.id, patch=patch, claim=claim))
    return await _decide(runtime, proposal)


async def _decide(runtime: Runtime, proposal: str) -> tuple[RunOutcome, str]:
    policy = runtime.settings.policy
    undecided = runtime.run.state.proposals[proposal].decision is None
    doubt = why_not_by_policy(runtime)
    if undecided and policy == "accept-verified" and not doubt:
        runtime.run.emit(ev.DecisionTaken(proposal=proposal, accepted=True, via="policy"))
    elif undecided and policy != "ask":
        claim = runtime.run.state.proposals[proposal].claim
        why = f" It was not accepted by policy: {doubt}." if doubt and policy == "accept-verified" else ""
        return RunOutcome.PROPOSED, f"{claim}{why} The proposal is open: accept or reject it."
    while True:
        await runtime.decision(proposal)
        outcome, reason = await settle(runtime, proposal)
        if outcome is not RunOutcome.PROPOSED:  # else the decision could not be carried out: it is asked for again
            return outcome, reason


def why_not_by_policy(runtime: Runtime) -> str:
    """What keeps a policy from accepting without a person; empty when verification and evidence are complete."""
    state = runtime.run.state
    assert state.best is not None and state.task is not None
    if state.speedup is None:
        return f"its speed is unknown: {no_baseline(state)}"
    if state.task.weak:
        return f"the task's tolerance lets wrong answers pass ({', '.join(state.task.weak)})"
    verdicts = state.candidates[state.best].verdicts
    if any(v.outcome is Outcome.INFRASTRUCTURE for v in verdicts):
        return "not every check could be made"
    return ""


def claim_of(runtime: Runtime) -> str:
    """What accepting gives, with its evidence, in one sentence."""
    state = runtime.run.state
    assert state.best is not None
    verdicts = state.candidates[state.best].verdicts
    checks = [v for v in verdicts if v.gate is GateName.CHECK and v.outcome is Outcome.PASS]
    cases = len({v.case for v in checks if not v.variant})
    seeds = len({v.seed for v in checks} & set(runtime.task.seeds))
    verified = f"verified on {cases} shape cases and {seeds} seeds"
    if state.speedup is None or state.baseline is None:
        return f"A kernel {verified}; its speed is unknown: {no_baseline(state)}."
    loosened = "; your tolerance loosens the check" if runtime.task.tolerance.loosened else ""
    if state.task is not None and state.task.weak:
        loosened += f"; a weak task: {', '.join(state.task.weak)} would pass too"
    if (m := state.measured) is not None:
        return (
            f"{m.speedup:.2f}x over XLA on {runtime.task.chip}, measured (95 % interval {m.low:.2f} to {m.high:.2f}): "
            f"{m.reference_ms:.4g} ms to {m.ms:.4g} ms; {verified}{loosened}."
        )
    off = state.model_error_pct
    error = f" (model error about {off:.0f} %)" if off is not None else ""
    if off is not None and state.speedup < 1 + off / 100:
        error = f" (a gain inside the model's error of about {off:.0f} %)"
    return (
        f"{state.speedup:.2f}x over XLA on {runtime.task.chip}, modelled{error}: "
        f"{state.baseline.modelled_ms:.4g} ms to {state.best_ms:.4g} ms; {verified}{loosened}."
    )
