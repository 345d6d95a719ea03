"""A run's state: nothing but a fold over its events."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterable
from functools import singledispatch
from typing import Any

from pydantic import Field

from maxkernel_nb import events as ev
from maxkernel_nb.events import AnyEvent, RunOutcome, Spend, Status
from maxkernel_nb.journal import no_collections
from maxkernel_nb.patches import Patch
from maxkernel_nb.task import Candidate, KernelTask, Plan, Verdict
from maxkernel_nb.tpu.chip.profile import MeasuredPair
from maxkernel_nb.tpu.profiles import ScheduleProfile
from maxkernel_nb.values import Value

_MANY = 1000  # events worth a pause of the garbage collector


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
    measured: MeasuredPair | None = None


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
    best_ms: float | None = None  # modelled, also where the best was measured
    speedup: float | None = None  # the measured one where ``measured`` is set
    measured: ev.Timing | None = None  # of the best
    proposals: dict[str, ProposalState] = Field(default_factory=dict)
    spend: Spend = Spend()
    notes: tuple[ev.Noted, ...] = ()
    conversations: dict[str, Conversation] = Field(default_factory=dict)
    calls: tuple[ModelCall, ...] = ()
    lessons: tuple[ev.LessonLearned, ...] = ()
    questions: dict[str, QuestionState] = Field(default_factory=dict)
    explanations: tuple[ev.Explained, ...] = ()
    control: str = "person"
    edges: tuple[ev.EdgeAdded, ...] = ()  # of a search, in the order drawn
    observed: tuple[ev.DrawObserved, ...] = ()
    marks: dict[str, ev.NodeMarked] = Field(default_factory=dict)  # by node, the latest last
    seq: int = 0  # events folded

    @property
    def open_proposal(self) -> ProposalState | None:
        return next((p for p in reversed(self.proposals.values()) if p.decision is None), None)

    @property
    def open_question(self) -> ev.QuestionAsked | None:
        return next((q.asked for q in reversed(self.questions.values()) if q.answer is None), None)

    @property
    def compared(self) -> tuple[ScheduleProfile, ...]:
        """The modelled programs behind the figures: XLA's, then the best kernel's, as far as there are any."""
        best = self.candidates.get(self.best) if self.best else None
        return tuple(p for p in (self.baseline, best.profile if best else None) if p is not None)

    @property
    def model_error_pct(self) -> float | None:
        """What stands beside a modelled comparison, everywhere: the larger of its programs' typical errors (%)."""
        return max((p.error_pct for p in self.compared if p.error_pct is not None), default=None)

    @property
    def settled(self) -> bool:
        """It ended, or waits for something still undecided: right after an answer it goes on."""
        undecided = self.open_question is not None or self.open_proposal is not None
        return self.ended or (self.status is Status.WAITING and undecided)

    @property
    def ended(self) -> bool:
        return self.outcome is not None


def fold(events: Iterable[AnyEvent], state: RunState | None = None) -> RunState:
    """Time and memory grow with the number of events, however many are folded at once."""
    draft = _Draft(state or RunState())
    many = isinstance(events, list) and len(events) > _MANY
    with no_collections() if many else contextlib.nullcontext():
        for event in events:
            draft.take(_apply(event, draft))  # type: ignore[arg-type]  # a draft reads like the state it becomes
        made = draft.state()
    if many and gc.isenabled():
        gc.collect()  # now, not in the middle of drawing the panel
    return made


class _Draft:
    """A state in the making. A collection is copied once, when it is first changed, and changed in place from then on.

    Handlers read it like a ``RunState``. They return the fields that change, or change ``own(field)`` in place.
    """

    def __init__(self, before: RunState) -> None:
        self._before, self._changed, self._seq = before, {}, before.seq  # type: ignore[var-annotated]
        self._owned: set[str] = set()
        self._places: dict[str, int] | None = None  # step -> its place

    def __getattr__(self, name: str) -> Any:
        derived = getattr(RunState, name, None)
        if isinstance(derived, property):
            return derived.fget(self)  # type: ignore[misc]
        return self._changed[name] if name in self._changed else getattr(self._before, name)

    def own(self, name: str) -> Any:
        """The field as a dict or list that may be changed in place."""
        if name not in self._owned:
            known = getattr(self, name)
            self._changed[name] = dict(known) if isinstance(known, dict) else list(known)
            self._owned.add(name)
        return self._changed[name]

    def place(self, step: str) -> int | None:
        if self._places is None:
            self._places = {s.key: n for n, s in enumerate(self.steps)}
        return self._places.get(step)

    def put_step(self, step: Step) -> None:
        """A step begun again after a crash moves to the end."""
        at, steps = self.place(step.key), self.own("steps")
        if at is not None:
            del steps[at]
            self._places = None
            self.place(step.key)
        assert self._places is not None
        self._places[step.key] = len(steps)
        steps.append(step)

    def take(self, changes: dict[str, Any]) -> None:
        self._changed.update(changes)
        self._owned.difference_update(changes)
        self._seq += 1

    def state(self) -> RunState:
        made = {k: tuple(v) if isinstance(v, list) else v for k, v in self._changed.items()}
        return self._before.model_copy(update={**made, "seq": self._seq})


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
def _(event: ev.StepStarted, state: _Draft) -> dict[str, Any]:
    state.put_step(Step(key=event.step, role=event.role, title=event.title))
    return {}


@_apply.register
def _(event: ev.StepFinished, state: _Draft) -> dict[str, Any]:
    if (at := state.place(event.step)) is not None:
        steps = state.own("steps")
        done = {"done": True, "seconds": event.seconds, "summary": event.summary}
        steps[at] = steps[at].model_copy(update=done)
    state.own("results")[event.step] = event.result
    return {} if event.costs is None else {"spend": _sum(state.spend, event.costs)}


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
def _(event: ev.CandidateAdded, state: _Draft) -> dict[str, Any]:
    key = event.candidate.id
    if key not in state.candidates:
        state.own("candidates")[key] = CandidateState(candidate=event.candidate)
    return {}


@_apply.register
def _(event: ev.VerdictReached, state: _Draft) -> dict[str, Any]:
    known = state.candidates[event.candidate]
    same = {_place(v): v for v in known.verdicts}
    same[_place(event.verdict)] = event.verdict
    return _update_candidate(state, event.candidate, verdicts=tuple(same.values()))


@_apply.register
def _(event: ev.CandidateProfiled, state: _Draft) -> dict[str, Any]:
    return _update_candidate(state, event.candidate, profile=event.profile)


@_apply.register
def _(event: ev.CandidateMeasured, state: _Draft) -> dict[str, Any]:
    return _update_candidate(state, event.candidate, measured=event.profiles)


def _place(verdict: Verdict) -> tuple[Any, ...]:
    """A verdict given again (a step repeated after a crash) replaces the one in its place."""
    return verdict.gate, verdict.case, verdict.seed, verdict.variant


def _update_candidate(state: _Draft, candidate: str, **changes: Any) -> dict[str, Any]:
    candidates = state.own("candidates")
    candidates[candidate] = candidates[candidate].model_copy(update=changes)
    return {}


@_apply.register
def _(event: ev.BestChanged, state: RunState) -> dict[str, Any]:
    found = {"best_ms": event.modelled_ms, "speedup": event.speedup, "measured": event.measured}
    return {"best": event.candidate, **found}


@_apply.register
def _(event: ev.Spent, state: RunState) -> dict[str, Any]:
    return {"spend": _sum(state.spend, event.amount)}


def _sum(old: Spend, new: Spend) -> Spend:
    return Spend.model_construct(**{name: getattr(old, name) + getattr(new, name) for name in Spend.model_fields})


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
    by_hand = {"mode": "hitl"} if "taken_over" in event.options else {}
    return {"options": {**state.options, **event.options}, **by_hand}


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
def _(event: ev.EdgeAdded, state: _Draft) -> dict[str, Any]:
    state.own("edges").append(event)
    return {}


@_apply.register
def _(event: ev.DrawObserved, state: _Draft) -> dict[str, Any]:
    state.own("observed").append(event)
    return {}


@_apply.register
def _(event: ev.NodeMarked, state: _Draft) -> dict[str, Any]:
    marks = state.own("marks")
    marks.pop(event.node, None)
    if event.mark:
        marks[event.node] = event
    return {}


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
