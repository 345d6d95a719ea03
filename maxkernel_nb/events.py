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
from maxkernel_nb.tpu.chip.profile import MeasuredPair
from maxkernel_nb.tpu.profiles import ScheduleProfile
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
    """The meter. All cumulative. ``input_tokens`` counts cached ones too; ``unpriced_calls`` are not in ``dollars``."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    calls: int = 0
    unpriced_calls: int = 0
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
    costs: Spend | None = None


class BaselineProfiled(Event):
    kind: Literal["baseline-profiled"] = "baseline-profiled"
    profile: ScheduleProfile


class TaskAdmitted(Event):
    """``weak``: cheap wrong answers that would pass the task's tolerance; shown beside every result of the task."""

    kind: Literal["task-admitted"] = "task-admitted"
    weak: tuple[str, ...] = ()


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


class CandidateMeasured(Event):
    """Profiles of the candidate and of the reference beside it, from a chip's traces."""

    kind: Literal["candidate-measured"] = "candidate-measured"
    candidate: str
    profiles: MeasuredPair


class Timing(Value):
    """Measured on a chip, in turn with the reference: ms of both, and the speedup with its 95 % interval."""

    ms: float
    reference_ms: float
    speedup: float
    low: float
    high: float


class BestChanged(Event):
    """``speedup`` is the measured one where ``measured`` is set, else the modelled one."""

    kind: Literal["best-changed"] = "best-changed"
    candidate: str
    modelled_ms: float | None
    speedup: float | None
    measured: Timing | None = None


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


class DecisionRefused(Event):
    """A decision that could not be carried out (a merged text that fails its checks): the proposal is open again."""

    kind: Literal["decision-refused"] = "decision-refused"
    proposal: str
    reason: str


class Undone(Event):
    kind: Literal["undone"] = "undone"
    proposal: str


class OptionsChanged(Event):
    """A resumed run goes on under other caps or another policy. Same keys as ``RunCreated.options``."""

    kind: Literal["options-changed"] = "options-changed"
    options: dict[str, Any]


class StatusChanged(Event):
    kind: Literal["status-changed"] = "status-changed"
    status: Literal[Status.RUNNING, Status.PAUSED, Status.WAITING]
    reason: str = ""


class RunEnded(Event):
    kind: Literal["run-ended"] = "run-ended"
    outcome: RunOutcome
    reason: str


class ConversationOpened(Event):
    """A sub-agent begins a talk with a model. ``prompt`` is its part of the first message, kept so that a resumed run
    sends the same bytes."""

    kind: Literal["conversation-opened"] = "conversation-opened"
    key: str  # unique within the run
    role: str
    prompt: str


class ModelSaid(Event):
    """The tail of what the model has said so far, a few times a second while it speaks."""

    kind: Literal["model-said"] = "model-said"
    key: str
    text: str


class ModelUsage(Value):
    """Tokens of one call. ``input_tokens`` are the uncached ones; ``estimated``: the stream ended before the bill."""

    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    estimated: bool = False

    @property
    def all_input(self) -> int:
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens


class ModelReplied(Event):
    """One paid call. ``problem`` is empty for a reply that belongs to the talk; else why it was thrown away.

    ``dollars`` is None when the model's price is not known. ``content`` holds the reply's blocks as they came.
    """

    kind: Literal["model-replied"] = "model-replied"
    key: str
    role: str
    model: str
    content: tuple[dict[str, Any], ...] = ()
    stop_reason: str = ""
    usage: ModelUsage = ModelUsage()
    dollars: float | None = None
    seconds: float = 0.0
    problem: str = ""


class ConversationClosed(Event):
    """``failed``: its replies are not reused when the run is resumed; what they cost stays on the meter."""

    kind: Literal["conversation-closed"] = "conversation-closed"
    key: str
    failed: bool = False
    reason: str = ""


class LessonLearned(Event):
    """A short finding with its evidence, shown to every later call of the run."""

    kind: Literal["lesson-learned"] = "lesson-learned"
    text: str
    evidence: str = ""


class Choice(Value):
    """One answer a person may give. ``takes_text``: what may be written with it, empty when nothing."""

    name: str
    label: str
    takes_text: str = ""


class QuestionAsked(Event):
    """The run waits for a person. ``default`` is what a policy answers and what ``accept`` means.

    ``on_reject`` is what ``reject`` means; ``text`` is Markdown; ``editable`` is a text the person may change;
    ``patch`` is the code in question.
    """

    kind: Literal["question-asked"] = "question-asked"
    question: str  # unique within the run
    title: str
    text: str = ""
    choices: tuple[Choice, ...]
    default: str
    on_reject: str = ""
    editable: str = ""
    patch: Patch | None = None


class AnswerGiven(Event):
    """``via``, ``hunks`` and ``uuid`` as in ``DecisionTaken``."""

    kind: Literal["answer-given"] = "answer-given"
    question: str
    choice: str
    text: str = ""
    via: str
    hunks: tuple[int, ...] | None = None
    uuid: str = ""


class Explained(Event):
    """A person's question about the work, answered beside it."""

    kind: Literal["explained"] = "explained"
    question: str
    answer: str


class ControlChanged(Event):
    """Who takes the next step of a human-in-the-loop run."""

    kind: Literal["control-changed"] = "control-changed"
    to: Literal["person", "auto"]


class EdgeKind(StrEnum):
    """How a candidate of a search came to be."""

    RECIPE = "recipe"  # written from a plan, without a parent
    REFINE = "refine"  # rewritten by the author
    RETUNE = "retune"  # other constants
    MERGE = "merge"  # of two parents
    REPAIR = "repair"
    HUMAN = "human"
    CHECK = "check"  # nothing new: the full check of a kernel that is compiled and modelled already


class EdgeAdded(Event):
    """Draw number ``draw`` of a search (from 0) gave this candidate; the same candidate may be found several times.

    ``candidate`` is empty when the draw gave none (declined, the author failed): ``note`` says why.
    """

    kind: Literal["edge-added"] = "edge-added"
    draw: int
    how: EdgeKind
    candidate: str = ""
    parents: tuple[str, ...] = ()
    idea: str = ""
    family: str = ""  # candidates of one family differ in their constants only
    lineage: str = ""  # which run, island or arm drew it
    note: str = ""


class DrawObserved(Event):
    """What the search made of a draw, in the order drawn: the strategy has seen exactly the draws before it.

    ``result``: verified, timed (compiled, not checked), failed, dominated (its own bound cannot beat the best), known
    (found before) or none. ``cost``: judgements charged for it.
    """

    kind: Literal["draw-observed"] = "draw-observed"
    draw: int
    candidate: str = ""
    result: Literal["verified", "timed", "failed", "dominated", "known", "none"]
    modelled_ms: float | None = None
    cost: int = 0


class NodeMarked(Event):
    """A person's word on a node: ``pinned`` (keep it a parent), ``pruned`` (no more children); empty takes it back."""

    kind: Literal["node-marked"] = "node-marked"
    node: str
    mark: Literal["pinned", "pruned", ""]
    at_draw: int = 0  # draws made when it was said
    via: str = ""


AnyEvent = Annotated[
    RunCreated | StepStarted | StepFinished | BaselineProfiled | PlanMade | TaskAdmitted | DecisionRefused
    | CandidateAdded | VerdictReached | CandidateProfiled | CandidateMeasured | BestChanged | Spent | Noted
    | ProposalMade | DecisionTaken | Applied | Undone | OptionsChanged | StatusChanged | RunEnded | ConversationOpened
    | ModelSaid | ModelReplied | ConversationClosed | LessonLearned | QuestionAsked | AnswerGiven | Explained
    | ControlChanged | EdgeAdded | DrawObserved | NodeMarked,
    Field(discriminator="kind"),
]
_ADAPTER: TypeAdapter[AnyEvent] = TypeAdapter(AnyEvent)


def event_from_json(text: str) -> AnyEvent:
    """As ``event_from_dict``, without the detour over Python's own JSON."""
    return _ADAPTER.validate_json(text)


def event_from_dict(data: dict[str, Any]) -> AnyEvent:
    """Raises pydantic's ``ValidationError`` naming an unknown kind and the known ones."""
    return _ADAPTER.validate_python(data)
