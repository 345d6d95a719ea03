// Generated from widgets/wire.py and maxkernel_nb/document/model.py; do not edit.

export const DOC = "doc";
export const ACK = "ack";
export const NODE = "node";
export const COMPARISON = "comparison";

export type Intent = "accept" | "reject" | "stop" | "pause" | "unpause" | "undo" | "answer" | "takeback" | "ask" | "look" | "pin" | "prune" | "unmark" | "edit" | "compare";

export interface Fact {
  label: string;
  value: string;
}

export interface Evidence {
  kind: "modelled" | "measured";
  error: string;
  text: string;
}

export interface Header {
  run_id: string;
  title: string;
  mode: string;
  author: string;
  status: string;
  tone: "good" | "warn" | "bad" | "busy" | "ask" | "plain";
  headline: string;
  headline_detail: string;
  evidence: Evidence | null;
  chip: string;
  elapsed: string;
  versions: Fact[];
}

export interface Action {
  intent: string;
  label: string;
  command: string;
  primary: boolean;
  choice: string;
  takes_text: string;
}

export interface QuestionView {
  id: string;
  title: string;
  text: string;
  editable: string;
}

export interface NextAction {
  text: string;
  effect: string;
  actions: Action[];
  question: QuestionView | null;
}

export interface StepRow {
  title: string;
  role: string;
  state: "done" | "running" | "ended";
  summary: string;
  seconds: number;
}

export interface Saying {
  role: string;
  text: string;
}

export interface PlanView {
  strategy: string;
  summary: string;
  facts: Fact[];
}

export interface HunkView {
  number: number;
  header: string;
  old: number;
  new: number;
  lines: string[];
}

export interface DiffView {
  proposal: string;
  candidate: string;
  claim: string;
  open: boolean;
  decision: string;
  added: number;
  removed: number;
  hunks: HunkView[];
}

export interface GateRow {
  gate: string;
  outcome: string;
  passed: number;
  total: number;
  note: string;
}

export interface CheckRow {
  gate: string;
  case: string;
  seed: string;
  outcome: string;
  tone: "good" | "warn" | "bad" | "busy" | "ask" | "plain";
  summary: string;
  numbers: Fact[];
  findings: string[];
  evidence: string;
}

export interface ChecksView {
  candidate: string;
  verdict: string;
  gates: GateRow[];
  rows: CheckRow[];
}

export interface Share {
  label: string;
  share: number;
}

export interface OpRow {
  name: string;
  kind: string;
  ms: number;
  time: string;
  bound: string;
}

export interface Part {
  label: string;
  us: number;
}

export interface StepView {
  op: string;
  trips: number;
  compute_us: number;
  read_us: number;
  written_us: number;
  parts: Part[];
  text: string;
}

export interface BufferRow {
  label: string;
  kind: string;
  size: number;
  text: string;
}

export interface VmemView {
  op: string;
  rows: BufferRow[];
  used: number;
  limit: number;
  capacity: number;
}

export interface SideView {
  label: string;
  evidence: "modelled" | "measured";
  ms: number;
  time: string;
  bound: string;
  bound_ms: number;
  error_pct: number | null;
  intensity: number;
  tflops: number;
  units: Share[];
  ops: OpRow[];
  facts: Fact[];
  step: StepView | null;
  vmem: VmemView | null;
  lines: string[];
}

export interface RoofView {
  chip: string;
  peak_tflops: number;
  hbm_gbps: number;
}

export interface ProfileView {
  caption: string;
  sides: SideView[];
  roof: RoofView | null;
  difference: string[];
}

export interface CandidateRow {
  id: string;
  author: string;
  result: string;
  tone: "good" | "warn" | "bad" | "busy" | "ask" | "plain";
  time: string;
  ms: number | null;
  speedup: string;
  params: string;
  note: string;
  best: boolean;
}

export interface Meter {
  label: string;
  used: string;
  cap: string;
  share: number | null;
}

export interface Flag {
  kind: string;
  text: string;
}

export interface Note {
  level: "info" | "warning" | "error";
  text: string;
}

export interface SourceView {
  candidate: string;
  title: string;
  text: string;
}

export interface GraphNode {
  id: string;
  draw: number;
  how: string;
  result: string;
  tone: "good" | "warn" | "bad" | "busy" | "ask" | "plain";
  sign: string;
  ms: number | null;
  time: string;
  speedup: number | null;
  against: string;
  parents: string[];
  lineage: string;
  idea: string;
  params: string;
  mark: string;
}

export interface CurvePoint {
  judged: number;
  ms: number;
  speedup: number | null;
}

export interface GraphView {
  caption: string;
  nodes: GraphNode[];
  best: string;
  lineage: string[];
  curve: CurvePoint[];
  total: number;
  judged: number;
}

export interface NodeView {
  kind: "node";
  id: string;
  title: string;
  facts: Fact[];
  diffs: DiffView[];
  checks: ChecksView | null;
  profile: SideView | null;
  source: string;
  complete: boolean;
  mark: string;
  commands: Fact[];
}

export interface ComparedRow {
  label: string;
  left: string;
  right: string;
}

export interface ComparisonView {
  kind: "comparison";
  left: string;
  right: string;
  facts: ComparedRow[];
  verdicts: ComparedRow[];
  profile: SideView[];
  diff: DiffView;
}

export interface Document {
  header: Header;
  next: NextAction;
  ended: boolean;
  outcome: string;
  flags: Flag[];
  steps: StepRow[];
  saying: Saying[];
  plan: PlanView | null;
  diff: DiffView | null;
  checks: ChecksView | null;
  profile: ProfileView | null;
  candidates: CandidateRow[];
  meters: Meter[];
  notes: Note[];
  source: SourceView | null;
  graph: GraphView | null;
  trimmed: string[];
}

export interface Message {
  id: string;
  intent: Intent;
  proposal: string;
  choice: string;
  hunks: number[] | null;
  node: string;
  other: string;
  comment: string;
}

export interface Ack {
  kind: "ack";
  id: string;
  ok: boolean;
  message: string;
}
