// Generated from maxkernel_nb/contract.py by python -m maxkernel_nb.widgets.typescript; do not edit.

export const TARGET = "maxkernel";
export const VERSION = 1;

export interface Hunk {
  number: number;
  start: number;
  stop: number;
  old: string[];
  new: string[];
}

export interface Hello {
  version: 1;
  id: string;
  command: "maxkernel:hello";
}

export interface Runs {
  version: 1;
  id: string;
  command: "maxkernel:runs";
}

export interface Look {
  version: 1;
  id: string;
  command: "maxkernel:look";
  run: string;
}

export interface Decide {
  version: 1;
  id: string;
  command: "maxkernel:decide";
  run: string;
  proposal: string;
  accepted: boolean;
  hunks?: number[] | null;
  comment?: string;
}

export interface Answer {
  version: 1;
  id: string;
  command: "maxkernel:answer";
  run: string;
  question: string;
  choice: string;
  text?: string;
  hunks?: number[] | null;
}

export interface Ask {
  version: 1;
  id: string;
  command: "maxkernel:ask";
  run: string;
  text: string;
}

export interface Control {
  version: 1;
  id: string;
  command: "maxkernel:control";
  run: string;
  action: "stop" | "pause" | "unpause" | "takeback" | "resume" | "undo";
}

export interface Configure {
  version: 1;
  id: string;
  command?: "maxkernel:configure";
  settings: Record<string, string>;
}

export interface Report {
  version: 1;
  id: string;
  command: "maxkernel:report";
  run: string;
}

export interface RunInfo {
  id: string;
  mode: string;
  author: string;
  entry: string;
  chip: string;
  status: string;
  outcome: string;
  reason: string;
  doing: string;
  waits: "" | "proposal" | "question";
  best: string;
  speedup: number | null;
  evidence: "" | "modelled" | "measured";
  dollars: number;
  tokens: number;
  judged: number;
  control: "person" | "auto";
  live: boolean;
  ended: boolean;
  cell: string;
}

export interface FormField {
  name: string;
  flag: string;
  metavar: string;
  help: string;
  type: "text" | "number";
  default: string;
  choices: string[];
  repeat: boolean;
  setting: boolean;
  modes: string[];
}

export interface FormMode {
  name: string;
  summary: string;
  available: boolean;
}

export interface Welcome {
  kind: "welcome";
  version: 1;
  package: string;
  modes: FormMode[];
  options: FormField[];
}

export interface RunList {
  kind: "runs";
  runs: RunInfo[];
}

export interface ReportPage {
  kind: "report";
  run: string;
  html: string;
}

export interface Ack {
  version: 1;
  notice: "maxkernel:ack";
  id: string;
  ok: boolean;
  message: string;
  data: Welcome | RunList | ReportPage | null;
}

export interface RunChanged {
  version: 1;
  notice: "maxkernel:run";
  run: RunInfo;
}

export interface Propose {
  version: 1;
  notice: "maxkernel:propose";
  run: string;
  cell: string;
  proposal: string;
  entry: string;
  claim: string;
  baseline: string;
  baseline_hash: string;
  proposed: string;
  hunks: Hunk[];
}

export interface Choice {
  name: string;
  label: string;
  takes_text: string;
}

export interface Question {
  version: 1;
  notice: "maxkernel:question";
  run: string;
  cell: string;
  question: string;
  title: string;
  text: string;
  choices: Choice[];
  default: string;
  editable: string;
  baseline: string;
  baseline_hash: string;
  proposed: string;
  hunks: Hunk[];
}

export interface Decided {
  version: 1;
  notice: "maxkernel:decided";
  run: string;
  cell: string;
  proposal: string;
  accepted: boolean;
  via: string;
  undone: boolean;
  source: string;
  tests: string;
  reason: string;
}

export type Command = Hello | Runs | Look | Decide | Answer | Ask | Control | Configure | Report;

export type Notice = Ack | RunChanged | Propose | Question | Decided;
