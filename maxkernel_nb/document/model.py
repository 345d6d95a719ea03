"""What a person sees of a run, as values: every renderer (text, HTML, widget) reads these and nothing else.

Texts are ready to show; numbers are kept only where a chart draws them (milliseconds, shares between 0 and 1).
"""

from __future__ import annotations

from typing import Literal

from maxkernel_nb.values import Value

Tone = Literal["good", "warn", "bad", "busy", "ask", "plain"]


class Fact(Value):
    label: str
    value: str


class Evidence(Value):
    """``kind`` is the one word of the badge, ``text`` the sentence behind it (where from, typical error)."""

    kind: Literal["modelled", "measured"]
    error: str = ""  # "±12 %", empty: not known
    text: str


class Header(Value):
    run_id: str
    title: str
    mode: str
    author: str
    status: str
    tone: Tone
    headline: str
    headline_detail: str = ""
    evidence: Evidence | None = None
    chip: str = ""
    elapsed: str = ""
    versions: tuple[Fact, ...] = ()


class Action(Value):
    """A button. ``intent`` is the message it sends, ``command`` the same thing as a magic."""

    intent: str
    label: str
    command: str
    primary: bool = False
    choice: str = ""  # of an open question
    takes_text: str = ""  # what may be written with it


class QuestionView(Value):
    """The run asks a person. ``editable`` is a text they may change; the choices are in ``NextAction.actions``."""

    id: str
    title: str
    text: str  # Markdown
    editable: str = ""


class NextAction(Value):
    """The one thing to do now, and every action that is possible now."""

    text: str
    effect: str = ""  # what the primary action does
    actions: tuple[Action, ...] = ()
    question: QuestionView | None = None


class StepRow(Value):
    title: str
    role: str
    state: Literal["done", "running", "ended"]
    summary: str = ""
    seconds: float = 0.0


class Saying(Value):
    """What a sub-agent's model is saying right now: the tail of it."""

    role: str
    text: str


class PlanView(Value):
    strategy: str
    summary: str  # Markdown
    facts: tuple[Fact, ...] = ()


class HunkView(Value):
    """``lines`` begin with their sign (blank, ``-`` or ``+``); ``old`` and ``new`` are the 1-based numbers of the first
    line on each side. No number a line: a diff of 3,000 lines fits into one message."""

    number: int
    header: str
    old: int
    new: int
    lines: tuple[str, ...]


class DiffView(Value):
    """``proposal`` is the id of the proposal or question whose code this is, ``open`` whether it can be decided."""

    proposal: str
    candidate: str
    claim: str
    open: bool
    decision: str = ""
    added: int = 0
    removed: int = 0
    hunks: tuple[HunkView, ...] = ()


class GateRow(Value):
    """One rung of the ladder: how many verdicts it gave and its worst outcome.

    ``outcome`` is ``partly`` where nothing failed and some verdicts were declined; ``note`` says how many were what.
    """

    gate: str
    outcome: str
    passed: int
    total: int
    note: str = ""


class CheckRow(Value):
    gate: str
    case: str
    seed: str
    outcome: str
    tone: Tone
    summary: str
    numbers: tuple[Fact, ...] = ()
    findings: tuple[str, ...] = ()
    evidence: str = ""


class ChecksView(Value):
    candidate: str
    verdict: str
    gates: tuple[GateRow, ...] = ()
    rows: tuple[CheckRow, ...] = ()


class Share(Value):
    label: str
    share: float


class OpRow(Value):
    name: str
    kind: str
    ms: float
    time: str
    bound: str


class Part(Value):
    """A stretch of a step's work, microseconds."""

    label: str
    us: float


class StepView(Value):
    """A typical step of the longest op's outermost loop: while it computes, the next step's blocks come in and the
    last one's results go out. ``parts`` are the work in order; microseconds; ``text`` says it in a sentence."""

    op: str
    trips: float
    compute_us: float
    read_us: float
    written_us: float
    parts: tuple[Part, ...] = ()
    text: str = ""


class BufferRow(Value):
    label: str
    kind: str
    size: int  # bytes, copies and padding included
    text: str


class VmemView(Value):
    """Who holds the VMEM of the op that needs most. ``limit`` and ``capacity`` in bytes."""

    op: str
    rows: tuple[BufferRow, ...]
    used: int
    limit: int
    capacity: int


class SideView(Value):
    """One program's profile. ``share`` of a unit is of its issue slots, weighted by the modelled time of each op."""

    label: str
    evidence: Literal["modelled", "measured"] = "modelled"
    ms: float
    time: str
    bound: str
    bound_ms: float  # the roofline's own lower bound
    error_pct: float | None = None
    intensity: float = 0.0  # flop per HBM byte
    tflops: float = 0.0
    units: tuple[Share, ...] = ()
    ops: tuple[OpRow, ...] = ()
    facts: tuple[Fact, ...] = ()
    step: StepView | None = None
    vmem: VmemView | None = None
    lines: tuple[str, ...] = ()  # the bottleneck with its evidence, at most ten


class RoofView(Value):
    chip: str
    peak_tflops: float
    hbm_gbps: float


class ProfileView(Value):
    """``sides``: the XLA reference first, then the best kernel; where a chip measured them, the same two as measured.
    ``difference``: in sentences, where the measured kernel and its model part."""

    caption: str
    sides: tuple[SideView, ...]
    roof: RoofView | None = None
    difference: tuple[str, ...] = ()


class CandidateRow(Value):
    id: str
    author: str
    result: str
    tone: Tone
    time: str
    ms: float | None
    speedup: str
    params: str
    note: str = ""
    best: bool = False


class Meter(Value):
    """``share`` of the cap, None without a cap."""

    label: str
    used: str
    cap: str = ""
    share: float | None = None


class Flag(Value):
    """Something that must be seen next to the result: a weak task, a loosened tolerance, a missing compiler."""

    kind: str
    text: str


class Note(Value):
    level: Literal["info", "warning", "error"]
    text: str


class SourceView(Value):
    candidate: str
    title: str
    text: str


class GraphNode(Value):
    """A kernel of a search. ``sign`` says what ``tone`` colours; ``mark``: pinned or pruned by a person."""

    id: str
    draw: int
    how: str
    result: str
    tone: Tone
    sign: str
    ms: float | None
    time: str
    speedup: float | None
    against: str  # the speedup, to read
    parents: tuple[str, ...] = ()
    lineage: str = ""
    idea: str = ""
    params: str = ""
    mark: str = ""


class CurvePoint(Value):
    """After so many judgements the best took so long."""

    judged: int
    ms: float
    speedup: float | None


class GraphView(Value):
    """``nodes``: those worth drawing of ``total``; ``lineage``: the best one's ancestors, from the root to it."""

    caption: str
    nodes: tuple[GraphNode, ...]
    best: str
    lineage: tuple[str, ...]
    curve: tuple[CurvePoint, ...]
    total: int
    judged: int


class NodeView(Value):
    """One node in full, sent when it is asked for. ``complete``: its source is; only then can it be edited."""

    kind: Literal["node"] = "node"
    id: str
    title: str
    facts: tuple[Fact, ...] = ()
    diffs: tuple[DiffView, ...] = ()
    checks: ChecksView | None = None
    profile: SideView | None = None
    source: str = ""
    complete: bool = True
    mark: str = ""
    commands: tuple[Fact, ...] = ()


class ComparedRow(Value):
    label: str
    left: str
    right: str


class ComparisonView(Value):
    """Two candidates beside each other, sent when it is asked for. ``diff`` leads from the left one to the right."""

    kind: Literal["comparison"] = "comparison"
    left: str
    right: str
    facts: tuple[ComparedRow, ...]
    verdicts: tuple[ComparedRow, ...]
    profile: tuple[SideView, ...]
    diff: DiffView


class Document(Value):
    """Everything a person sees of one run. ``trimmed`` names what a size limit left out."""

    header: Header
    next: NextAction
    ended: bool = False
    outcome: str = ""  # the final sentence
    flags: tuple[Flag, ...] = ()
    steps: tuple[StepRow, ...] = ()
    saying: tuple[Saying, ...] = ()
    plan: PlanView | None = None
    diff: DiffView | None = None
    checks: ChecksView | None = None
    profile: ProfileView | None = None
    candidates: tuple[CandidateRow, ...] = ()
    meters: tuple[Meter, ...] = ()
    notes: tuple[Note, ...] = ()
    source: SourceView | None = None
    graph: GraphView | None = None
    trimmed: tuple[str, ...] = ()
