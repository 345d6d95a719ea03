"""A run's state as the messages of ``maxkernel_nb.contract``. Pure, like the document."""

from __future__ import annotations

from typing import Any, Literal

from maxkernel_nb import contract
from maxkernel_nb.document.next_action import function_name, next_action
from maxkernel_nb.document.testcell import cell_of_tests
from maxkernel_nb.engine.state import ProposalState, RunState
from maxkernel_nb.events import QuestionAsked, RunOutcome
from maxkernel_nb.patches import Patch
from maxkernel_nb.values import content_hash


def run_info(state: RunState, live: bool, cell: str = "") -> contract.RunInfo:
    spend = state.spend
    return contract.RunInfo(
        id=state.run_id, mode=state.mode, author=state.author, entry=state.task.entry if state.task else "",
        chip=state.task.chip if state.task else "", status=str(state.status), outcome=str(state.outcome or ""),
        reason=state.reason, doing=next_action(state).text, waits=_waits(state), best=state.best or "",
        speedup=state.speedup, evidence="modelled" if state.speedup is not None else "", dollars=spend.dollars,
        tokens=spend.input_tokens + spend.output_tokens, judged=spend.judged,
        control="auto" if state.control == "auto" else "person", live=live, ended=state.ended, cell=cell,
    )


def _waits(state: RunState) -> Literal["", "proposal", "question"]:
    if state.open_question is not None and not state.ended:
        return "question"
    open_now = state.open_proposal is not None and (not state.ended or state.outcome is RunOutcome.PROPOSED)
    return "proposal" if open_now else ""


def open_matter(state: RunState, cell: str = "") -> contract.Propose | contract.Question | None:
    """What waits for a person, if anything does."""
    waits = _waits(state)
    if waits == "question" and state.open_question is not None:
        return _question(state, state.open_question, cell)
    if waits == "proposal" and state.open_proposal is not None:
        return _propose(state, state.open_proposal, cell)
    return None


def _propose(state: RunState, proposal: ProposalState, cell: str) -> contract.Propose:
    return contract.Propose(run=state.run_id, cell=cell, proposal=proposal.id, entry=function_name(state),
                            claim=proposal.claim, **_patch(proposal.patch))


def _question(state: RunState, asked: QuestionAsked, cell: str) -> contract.Question:
    choices = tuple(contract.Choice(**c.to_dict()) for c in asked.choices)
    return contract.Question(
        run=state.run_id, cell=cell, question=asked.question, title=asked.title, text=asked.text, choices=choices,
        default=asked.default, editable=asked.editable, **(_patch(asked.patch) if asked.patch is not None else {}),
    )


def _patch(patch: Patch) -> dict[str, Any]:
    return {"baseline": patch.baseline, "baseline_hash": content_hash(patch.baseline), "proposed": patch.proposed,
            "hunks": patch.hunks}


def decisions(state: RunState, cell: str = "") -> tuple[contract.Decided, ...]:
    """Proposals whose decision has been carried out, oldest first."""
    return tuple(
        contract.Decided(
            run=state.run_id, cell=cell, proposal=p.id, accepted=p.decision.accepted, via=p.decision.via,
            undone=p.undone, source=(bound := _bound(state, p)), reason=state.reason,
            tests=cell_of_tests(state.task, state.run_id) if bound and state.task is not None else "",
        )
        for p in state.proposals.values() if p.decision is not None and (p.applied_path or state.ended)
    )


def _bound(state: RunState, proposal: ProposalState) -> str:
    """The accepted text as it was written to the kernel's file."""
    if proposal.decision is None or not proposal.decision.accepted or proposal.undone or not proposal.applied_path:
        return ""
    return proposal.patch.apply(proposal.decision.hunks)
