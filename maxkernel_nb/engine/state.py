"""A run's state: nothing but a fold over its events."""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch
from typing import Any

from pydantic import Field

from maxkernel_nb import events as ev
from maxkernel_nb.events import AnyEvent, RunOutcome, Spend, Status
from maxkernel_nb.patches import Patch
from maxkernel_nb.task import Candidate, KernelTask, Plan, Verdict
from maxkernel_nb.tpu.profiles import ScheduleProfile
from maxkernel_nb.values import Value


class Step(Value):
    key: str
    role: str
    title: str
    done: bool = False
    seconds: float = 0.0
    summary: str = ""


class CandidateState(Value):
    candidate: Candidate
    verdicts: tuple[Verdict, ...] = ()
    profile: ScheduleProfile | None = None


class ProposalState(Value):
    id: str
    candidate: str
    patch: Patch
    claim: str
    decision: ev.DecisionTaken | None = None
    applied_path: str = ""
    applied_source: str = ""
    bound: bool = False
    undone: bool = False


class ModelCall(Value):
    """What one paid call cost, for the meter."""

    key: str
    role: str
    model: str
    usage: ev.ModelUsage
    dollars: float | None
    seconds: float
    problem: str = ""


class Conversation(Value):
    """A sub-agent's talk with a model: its opening, the replies that count, and what is being said now."""

    key: str
    role: str
    prompt: str
    replies: tuple[ev.ModelReplied, ...] = ()
    saying: str = ""
    closed: bool = False


class QuestionState(Value):
    asked: ev.QuestionAsked
    answer: ev.AnswerGiven | None = None


class RunState(Value):
    run_id: str = ""
    mode: str = ""
    author: str = ""
    task: KernelTask | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)
    status: Status = Status.RUNNING
    outcome: RunOutcome | None = None
    reason: str = ""
    steps: tuple[Step, ...] = ()
    results: dict[str, dict[str, Any]] = Field(default_factory=dict)  # finished step -> its recorded answer
    baseline: ScheduleProfile | None = None
    plan: Plan | None = None
    candidates: dict[str, CandidateState] = Field(default_factory=dict)  # in order of appearance
    best: str | None = None
    best_ms: float | None = None
    speedup: float | None = None
    proposals: dict[str, ProposalState] = Field(default_factory=dict)
    spend: Spend = Spend()
    notes: tuple[ev.Noted, ...] = ()
    conversations: dict[str, Conversation] = Field(default_factory=dict)
    calls: tuple[ModelCall, ...] = ()
    lessons: tuple[ev.LessonLearned, ...] = ()
    questions: dict[str, QuestionState] = Field(default_factory=dict)
    explanations: tuple[ev.Explained, ...] = ()
    control: str = "person"
    seq: int = 0  # events folded

    @property
    def open_proposal(self) -> ProposalState | None:
        return next((p for p in reversed(self.proposals.values()) if p.decision is None), None)

    @property
    def open_question(self) -> ev.QuestionAsked | None:
        return next((q.asked for q in reversed(self.questions.values()) if q.answer is None), None)

    @property
    def settled(self) -> bool:
        """It ended, or waits for something still undecided: right after an answer it goes on."""
        undecided = self.open_question is not None or self.open_proposal is not None
        return self.ended or (self.status is Status.WAITING and undecided)

    @property
    def ended(self) -> bool:
        return self.outcome is not None


def fold(events: Iterable[AnyEvent], state: RunState | None = None) -> RunState:
    state = state or RunState()
    for event in events:
        changes = _apply(event, state)
        state = state.model_copy(update={**changes, "seq": state.seq + 1})
    return state


@singledispatch
def _apply(event: Any, state: RunState) -> dict[str, Any]:
    raise TypeError(f"no fold for event {event!r}")


@_apply.register
def _(event: ev.RunCreated, state: RunState) -> dict[str, Any]:
    return {
        "run_id": event.run_id, "mode": event.mode, "author": event.author, "task": event.task,
        "options": event.options, "versions": event.versions,
    }


@_apply.register
def _(event: ev.StepStarted, state: RunState) -> dict[str, Any]:
    kept = tuple(s for s in state.steps if s.key != event.step)
    return {"steps": (*kept, Step(key=event.step, role=event.role, title=event.title))}


@_apply.register
def _(event: ev.StepFinished, state: RunState) -> dict[str, Any]:
    done = {"done": True, "seconds": event.seconds, "summary": event.summary}
    steps = tuple(s.model_copy(update=done) if s.key == event.step else s for s in state.steps)
    return {"steps": steps, "results": {**state.results, event.step: event.result}}


@_apply.register
def _(event: ev.BaselineProfiled, state: RunState) -> dict[str, Any]:
    return {"baseline": event.profile}


@_apply.register
def _(event: ev.TaskAdmitted, state: RunState) -> dict[str, Any]:
    return {} if state.task is None else {"task": state.task.model_copy(update={"weak": event.weak})}


@_apply.register
def _(event: ev.PlanMade, state: RunState) -> dict[str, Any]:
    return {"plan": event.plan}


@_apply.register
def _(event: ev.CandidateAdded, state: RunState) -> dict[str, Any]:
    if event.candidate.id in state.candidates:
        return {}
    return {"candidates": {**state.candidates, event.candidate.id: CandidateState(candidate=event.candidate)}}


@_apply.register
def _(event: ev.VerdictReached, state: RunState) -> dict[str, Any]:
    known = state.candidates[event.candidate]
    same = {_place(v): v for v in known.verdicts}
    same[_place(event.verdict)] = event.verdict
    return _update_candidate(state, event.candidate, verdicts=tuple(same.values()))


@_apply.register
def _(event: ev.CandidateProfiled, state: RunState) -> dict[str, Any]:
    return _update_candidate(state, event.candidate, profile=event.profile)


def _place(verdict: Verdict) -> tuple[Any, ...]:
    """A verdict given again (a step repeated after a crash) replaces the one in its place."""
    return verdict.gate, verdict.case, verdict.seed, verdict.variant


def _update_candidate(state: RunState, candidate: str, **changes: Any) -> dict[str, Any]:
    known = state.candidates[candidate].model_copy(update=changes)
    return {"candidates": {**state.candidates, candidate: known}}


@_apply.register
def _(event: ev.BestChanged, state: RunState) -> dict[str, Any]:
    return {"best": event.candidate, "best_ms": event.modelled_ms, "speedup": event.speedup}


@_apply.register
def _(event: ev.Spent, state: RunState) -> dict[str, Any]:
    old, new = state.spend, event.amount
    fields = Spend.model_fields
    return {"spend": Spend(**{name: getattr(old, name) + getattr(new, name) for name in fields})}


@_apply.register
def _(event: ev.Noted, state: RunState) -> dict[str, Any]:
    return {} if event in state.notes else {"notes": (*state.notes, event)}


@_apply.register
def _(event: ev.ProposalMade, state: RunState) -> dict[str, Any]:
    if event.proposal in state.proposals:
        return {}
    made = ProposalState(id=event.proposal, candidate=event.candidate, patch=event.patch, claim=event.claim)
    return {"proposals": {**state.proposals, event.proposal: made}}


@_apply.register
def _(event: ev.DecisionTaken, state: RunState) -> dict[str, Any]:
    goes_on = {"status": Status.RUNNING, "outcome": None, "reason": ""} if state.ended else {}
    return {**_update_proposal(state, event.proposal, decision=event), **goes_on}


@_apply.register
def _(event: ev.OptionsChanged, state: RunState) -> dict[str, Any]:
    return {"options": {**state.options, **event.options}}


@_apply.register
def _(event: ev.DecisionRefused, state: RunState) -> dict[str, Any]:
    said = ev.Noted(level="warning", text=event.reason)
    return {**_update_proposal(state, event.proposal, decision=None), "notes": (*state.notes, said)}


@_apply.register
def _(event: ev.Applied, state: RunState) -> dict[str, Any]:
    return _update_proposal(state, event.proposal, applied_path=event.path, applied_source=event.source,
                            bound=event.bound, undone=False)


@_apply.register
def _(event: ev.Undone, state: RunState) -> dict[str, Any]:
    return _update_proposal(state, event.proposal, undone=True, bound=False)


def _update_proposal(state: RunState, proposal: str, **changes: Any) -> dict[str, Any]:
    known = state.proposals[proposal].model_copy(update=changes)
    return {"proposals": {**state.proposals, proposal: known}}


@_apply.register
def _(event: ev.StatusChanged, state: RunState) -> dict[str, Any]:
    return {"status": Status(event.status), "outcome": None, "reason": ""}  # said of a run that goes on


@_apply.register
def _(event: ev.RunEnded, state: RunState) -> dict[str, Any]:
    ended = {RunOutcome.STOPPED: Status.STOPPED, RunOutcome.FAILED: Status.FAILED}
    status = ended.get(event.outcome, Status.FINISHED)
    return {"status": status, "outcome": event.outcome, "reason": event.reason}


@_apply.register
def _(event: ev.ConversationOpened, state: RunState) -> dict[str, Any]:
    made = Conversation(key=event.key, role=event.role, prompt=event.prompt)
    return {"conversations": {**state.conversations, event.key: made}}


@_apply.register
def _(event: ev.ModelSaid, state: RunState) -> dict[str, Any]:
    return _update_conversation(state, event.key, saying=event.text)


@_apply.register
def _(event: ev.ModelReplied, state: RunState) -> dict[str, Any]:
    call = ModelCall(key=event.key, role=event.role, model=event.model, usage=event.usage, dollars=event.dollars,
                     seconds=event.seconds, problem=event.problem)
    old, used = state.spend, event.usage
    spend = old.model_copy(update={
        "calls": old.calls + 1, "unpriced_calls": old.unpriced_calls + (event.dollars is None),
        "input_tokens": old.input_tokens + used.all_input, "output_tokens": old.output_tokens + used.output_tokens,
        "cached_input_tokens": old.cached_input_tokens + used.cache_read_tokens,
        "dollars": old.dollars + (event.dollars or 0.0),
    })
    kept = () if event.problem else (event,)
    replies = state.conversations[event.key].replies + kept
    changes = _update_conversation(state, event.key, saying="", replies=replies)
    return {**changes, "calls": (*state.calls, call), "spend": spend}


@_apply.register
def _(event: ev.ConversationClosed, state: RunState) -> dict[str, Any]:
    if event.failed:
        return {"conversations": {k: c for k, c in state.conversations.items() if k != event.key}}
    return _update_conversation(state, event.key, closed=True)


def _update_conversation(state: RunState, key: str, **changes: Any) -> dict[str, Any]:
    known = state.conversations[key].model_copy(update=changes)
    return {"conversations": {**state.conversations, key: known}}


@_apply.register
def _(event: ev.LessonLearned, state: RunState) -> dict[str, Any]:
    return {} if event in state.lessons else {"lessons": (*state.lessons, event)}


@_apply.register
def _(event: ev.QuestionAsked, state: RunState) -> dict[str, Any]:
    if event.question in state.questions:
        return {}
    return {"questions": {**state.questions, event.question: QuestionState(asked=event)}}


@_apply.register
def _(event: ev.AnswerGiven, state: RunState) -> dict[str, Any]:
    known = state.questions[event.question].model_copy(update={"answer": event})
    return {"questions": {**state.questions, event.question: known}}


@_apply.register
def _(event: ev.Explained, state: RunState) -> dict[str, Any]:
    return {"explanations": (*state.explanations, event)}


@_apply.register
def _(event: ev.ControlChanged, state: RunState) -> dict[str, Any]:
    return {"control": event.to}
