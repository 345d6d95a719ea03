"""The facts in a run's journal, and the state they fold into.

Events are the only thing that changes a run's state. Each is frozen and serialisable; ``kind`` names it on disk, so
classes can be renamed but kinds cannot.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from maxkernel_nb.patches import Patch
from maxkernel_nb.task import Candidate, KernelTask, Plan, Verdict
from maxkernel_nb.tpu.profile import ScheduleProfile
from maxkernel_nb.values import Value


class Status(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    WAITING = "waiting"  # for a decision
    FINISHED = "finished"  # outcome and reason are set
    STOPPED = "stopped"
    FAILED = "failed"


class RunOutcome(StrEnum):
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    PROPOSED = "proposed"  # policy 'propose': the proposal stays open after the run
    KEPT_REFERENCE = "kept reference"  # nothing verified beats XLA: a correct outcome
    DECLINED = "declined"  # no recipe knows this computation
    STOPPED = "stopped"
    FAILED = "failed"


class Spend(Value):
    """The meter. All cumulative."""

    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float = 0.0
    chip_seconds: float = 0.0
    wall_seconds: float = 0.0
    judged: int = 0


class Event(Value):
    kind: str


class RunCreated(Event):
    kind: Literal["run-created"] = "run-created"
    run_id: str
    mode: str
    author: str
    task: KernelTask
    options: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)


class StepStarted(Event):
    kind: Literal["step-started"] = "step-started"
    step: str  # unique key within the run
    role: str  # planner, implementer, judge, tuner, profiler ...
    title: str


class StepFinished(Event):
    """``result`` is the step's whole answer; a resumed run reads it here instead of doing the step again."""

    kind: Literal["step-finished"] = "step-finished"
    step: str
    seconds: float
    result: dict[str, Any]
    summary: str = ""


class BaselineProfiled(Event):
    kind: Literal["baseline-profiled"] = "baseline-profiled"
    profile: ScheduleProfile


class PlanMade(Event):
    kind: Literal["plan-made"] = "plan-made"
    plan: Plan


class CandidateAdded(Event):
    kind: Literal["candidate-added"] = "candidate-added"
    candidate: Candidate


class VerdictReached(Event):
    kind: Literal["verdict-reached"] = "verdict-reached"
    candidate: str
    verdict: Verdict


class CandidateProfiled(Event):
    kind: Literal["candidate-profiled"] = "candidate-profiled"
    candidate: str
    profile: ScheduleProfile


class BestChanged(Event):
    kind: Literal["best-changed"] = "best-changed"
    candidate: str
    modelled_ms: float | None
    speedup: float | None


class Spent(Event):
    kind: Literal["spent"] = "spent"
    amount: Spend
    what: str = ""


class Noted(Event):
    """A sentence for the person: declined gates, fall-backs, retries, loosened tolerances."""

    kind: Literal["noted"] = "noted"
    level: Literal["info", "warning", "error"] = "info"
    text: str


class ProposalMade(Event):
    kind: Literal["proposal-made"] = "proposal-made"
    proposal: str
    candidate: str
    patch: Patch
    claim: str  # what accepting gives, with its evidence


class DecisionTaken(Event):
    """``via``: button, magic, lab, policy. ``hunks``: accepted hunk numbers, None = all. ``uuid``: the client's."""

    kind: Literal["decision-taken"] = "decision-taken"
    proposal: str
    accepted: bool
    via: str
    hunks: tuple[int, ...] | None = None
    comment: str = ""
    uuid: str = ""


class Applied(Event):
    kind: Literal["applied"] = "applied"
    proposal: str
    path: str  # relative to the project folder
    bound: bool
    source: str


class Undone(Event):
    kind: Literal["undone"] = "undone"
    proposal: str


class StatusChanged(Event):
    kind: Literal["status-changed"] = "status-changed"
    status: Literal[Status.RUNNING, Status.PAUSED, Status.WAITING]
    reason: str = ""


class RunEnded(Event):
    kind: Literal["run-ended"] = "run-ended"
    outcome: RunOutcome
    reason: str


AnyEvent = Annotated[
    RunCreated | StepStarted | StepFinished | BaselineProfiled | PlanMade | CandidateAdded | VerdictReached
    | CandidateProfiled | BestChanged | Spent | Noted | ProposalMade | DecisionTaken | Applied | Undone
    | StatusChanged | RunEnded,
    Field(discriminator="kind"),
]
_ADAPTER: TypeAdapter[AnyEvent] = TypeAdapter(AnyEvent)


def event_from_dict(data: dict[str, Any]) -> AnyEvent:
    """Raises pydantic's ``ValidationError`` naming an unknown kind and the known ones."""
    return _ADAPTER.validate_python(data)
