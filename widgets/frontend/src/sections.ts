// One function a section: data in, nodes out. No state, no messages.
import { h, type Child } from "./dom";
import { python } from "./highlight";
import { markdown } from "./markdown";
import type {
  CheckRow, ChecksView, Document as Doc, Fact, Meter, PlanView, Saying, SourceView, StepRow,
} from "./wire";

export const MARKS: Record<string, string> = {
  pass: "✓", fail: "✗", declined: "–", infrastructure: "!", done: "✓", running: "●", ended: "–", partly: "◐",
};

export function mark(state: string): Child {
  return h("span", { class: `mkn-mark mkn-is-${state}`, "aria-hidden": "true" }, MARKS[state] ?? "");
}

export function facts(pairs: Fact[]): Child {
  return h("dl", { class: "mkn-facts" }, pairs.map((f) => [h("dt", {}, f.label), h("dd", {}, f.value)]));
}

export function table(name: string, head: Child[], rows: Child[][], classes: string[] = []): Child {
  const cells = (tag: string, row: Child[]): Child[] =>
    row.map((cell) => h(tag, tag === "th" ? { scope: "col" } : {}, cell));
  return h("div", { class: "mkn-scroll", "data-key": `scroll-${name}`, tabindex: 0, role: "region", "aria-label": name },
    h("table", {},
      h("thead", {}, h("tr", {}, cells("th", head))),
      h("tbody", {}, rows.map((row, n) => h("tr", { class: classes[n] }, cells("td", row))))));
}

const MOST = 100; // rows of a list that are drawn unasked: more would be drawn anew ten times a second

/** The first rows of a long list, and the way to the rest. */
export function mostly<T>(rows: T[], all: boolean, more: () => void, what: string, draw: (some: T[]) => Child): Child {
  if (all || rows.length <= MOST) return draw(rows);
  return [draw(rows.slice(0, MOST)), h("button", { type: "button", class: "mkn-button mkn-small mkn-more", "data-key": `more-${what}`, click: more },
    `Show all ${rows.length} ${what}`)];
}

export function steps(rows: StepRow[]): Child[] {
  if (!rows.length) return [h("p", { class: "mkn-quiet" }, "Starting …")];
  const spoken: Record<string, string> = { done: "done", running: "running", ended: "not finished" };
  return [
    rows.length > MOST && h("p", { class: "mkn-quiet" }, `${rows.length - MOST} earlier steps are in the report.`),
    h("ol", { class: "mkn-timeline" }, rows.slice(-MOST).map((step) =>
      h("li", { class: `mkn-step mkn-step-${step.state}`, "aria-current": step.state === "running" ? "step" : undefined },
        mark(step.state),
        h("div", {},
          h("span", { class: "mkn-step-title" }, step.title),
          h("span", { class: "mkn-sr" }, ` (${spoken[step.state] ?? ""})`),
          step.seconds > 0 && h("span", { class: "mkn-quiet mkn-step-time" }, duration(step.seconds)),
          step.summary && h("div", { class: "mkn-quiet" }, step.summary))))),
  ];
}

export function saying(rows: Saying[]): Child[] {
  return rows.map((row) =>
    h("div", { class: "mkn-saying" }, h("div", { class: "mkn-quiet" }, `${row.role} says`), h("p", {}, row.text)));
}

function duration(seconds: number): string {
  return seconds < 60 ? `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s` : `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

export function plan(view: PlanView): Child[] {
  return [h("h4", {}, view.strategy), h("div", { class: "mkn-prose" }, markdown(view.summary)), facts(view.facts)];
}

export function ladder(view: ChecksView): Child {
  return h("ul", { class: "mkn-ladder", "aria-label": "Gates" }, view.gates.map((g) =>
    h("li", { class: `mkn-gate mkn-gate-${g.outcome}` }, mark(g.outcome), ` ${g.gate} `,
      h("span", { class: "mkn-quiet" }, `${g.passed}/${g.total}${g.note && `, ${g.note}`}`), h("span", { class: "mkn-sr" }, ` ${g.outcome}`))));
}

export function checks(view: ChecksView, all = true, more: () => void = () => undefined): Child[] {
  return [
    h("p", { class: "mkn-claim" }, view.verdict),
    ladder(view),
    mostly(view.rows, all, more, "checks", (rows) =>
      table("Checks", ["Outcome", "Gate", "Case", "Seed", "What it says"], rows.map(checkRow), rows.map((r) => `mkn-row-${r.outcome}`))),
  ];
}

function checkRow(row: CheckRow): Child[] {
  return [
    h("span", { class: `mkn-nowrap mkn-is-${row.outcome}` }, MARKS[row.outcome] ?? "", " ", row.outcome),
    row.gate, row.case, row.seed,
    [
      row.summary, " ", row.evidence && h("span", { class: "mkn-badge" }, row.evidence),
      row.findings.map((f) => h("div", { class: "mkn-finding" }, f)),
      row.numbers.length > 0 && h("div", { class: "mkn-quiet" }, row.numbers.map((n) => `${n.label} ${n.value}`).join(", ")),
    ],
  ];
}

export function source(view: SourceView, copy: () => void): Child[] {
  return [
    h("div", { class: "mkn-bar" }, h("h4", {}, view.title),
      h("button", { type: "button", class: "mkn-button mkn-small", "data-key": "copy", click: copy }, "Copy source")),
    h("pre", { class: "mkn-code mkn-source", "data-key": "source", tabindex: 0 }, h("code", {}, python(view.text))),
  ];
}

export function log(doc: Doc): Child[] {
  return [
    doc.notes.length
      ? h("ul", { class: "mkn-log" }, doc.notes.map((n) =>
          h("li", { class: `mkn-note-${n.level}` }, h("span", { class: "mkn-level" }, n.level), " ", n.text)))
      : h("p", { class: "mkn-quiet" }, "No notes yet."),
    doc.trimmed.map((t) => h("p", { class: "mkn-quiet" }, t, ` %maxkernel report ${doc.header.run_id} has everything.`)),
    facts([{ label: "Run", value: doc.header.run_id }, { label: "Author", value: doc.header.author }, ...doc.header.versions]),
  ];
}

export function meters(rows: Meter[]): Child[] {
  return rows.map((m) =>
    h("div", { class: "mkn-meter" },
      h("span", { class: "mkn-quiet" }, m.label),
      h("span", { class: "mkn-meter-value" }, m.used, m.cap && h("span", { class: "mkn-quiet" }, ` of ${m.cap}`)),
      m.share !== null && h("span", { class: "mkn-track", "aria-hidden": "true" },
        h("span", { class: m.share > 0.85 ? "mkn-fill mkn-fill-hot" : "mkn-fill", style: `width:${(m.share * 100).toFixed(1)}%` }))));
}

export function count(n: number, word: string): string {
  return `${n} ${word}${n === 1 ? "" : "s"}`;
}
