// The candidates' table, which sorts, and two of them beside each other.
import { diff, type Layout } from "./diff";
import { h, type Child } from "./dom";
import { count, mostly, table } from "./sections";
import type { CandidateRow, ComparedRow, ComparisonView } from "./wire";

export type SortKey = "order" | "result" | "time" | "author";

export interface TableActions {
  sort: SortKey;
  down: boolean;
  chosen: string[];
  shown: ComparisonView | null;
  layout: Layout;
  all: boolean;
  order(key: SortKey): void;
  choose(id: string): void;
  arrange(layout: Layout): void;
  more(): void;
}

const LATE = Number.POSITIVE_INFINITY;

export function candidates(rows: CandidateRow[], act: TableActions): Child[] {
  return [
    h("p", { class: "mkn-quiet" }, hint(rows, act)),
    comparison(act),
    mostly(sorted(rows, act), act.all, act.more, "candidates", (some) => table("Candidates", heads(act), some.map((row) => cells(row, act)),
      some.map((r) => (r.best ? "mkn-row-best" : "")))),
  ];
}

function hint(rows: CandidateRow[], act: TableActions): string {
  if (rows.length < 2) return "One candidate so far.";
  if (act.chosen.length === 0) return "Tick two candidates to see them side by side.";
  return act.chosen.length === 1 ? `Tick one more to compare it with ${act.chosen[0] ?? ""}.` : `Comparing ${act.chosen.join(" with ")}.`;
}

function sorted(rows: CandidateRow[], act: TableActions): CandidateRow[] {
  const place = new Map(rows.map((row, n) => [row.id, n]));
  const by: Record<SortKey, (a: CandidateRow, b: CandidateRow) => number> = {
    order: (a, b) => (place.get(a.id) ?? 0) - (place.get(b.id) ?? 0),
    result: (a, b) => a.result.localeCompare(b.result),
    time: (a, b) => (a.ms ?? LATE) - (b.ms ?? LATE) || 0,
    author: (a, b) => a.author.localeCompare(b.author),
  };
  const found = [...rows].sort((a, b) => by[act.sort](a, b) || by.order(a, b));
  return act.down ? found.reverse() : found;
}

function heads(act: TableActions): Child[] {
  const head = (key: SortKey, label: string): Child => {
    const on = act.sort === key;
    return h("button", {
      type: "button", class: "mkn-sort", "data-key": `sort-${key}`, "aria-pressed": on ? "true" : "false",
      title: on ? "Turn the order round" : `Sort by ${label.toLowerCase()}`, click: () => act.order(key),
    }, label, on ? (act.down ? " ▾" : " ▴") : "");
  };
  return ["Compare", head("order", "Candidate"), head("result", "Result"), head("time", "Time"), "Against XLA", "Constants", head("author", "Author"), "Note"];
}

function cells(row: CandidateRow, act: TableActions): Child[] {
  return [
    h("input", { type: "checkbox", "aria-label": `Compare ${row.id}`, "data-key": `compare-${row.id}`, checked: act.chosen.includes(row.id), change: () => act.choose(row.id) }),
    [h("code", {}, row.id), row.best && h("span", { class: "mkn-best" }, "best")],
    h("span", { class: `mkn-tone-${row.tone}` }, row.result),
    h("span", { class: "mkn-nowrap" }, row.time), row.speedup, row.params, row.author, row.note,
  ];
}

function comparison(act: TableActions): Child {
  const view = act.shown;
  if (!view) return null;
  const rows = (given: ComparedRow[]): Child[][] => given.map((r) => [h("strong", {}, r.label), r.left, r.right]);
  const apart = view.verdicts.filter((r) => r.left !== r.right);
  const names = [h("code", {}, view.left), h("code", {}, view.right)];
  const title = `${view.left} beside ${view.right}`;
  return h("section", { class: "mkn-node-detail", "aria-label": title },
    h("h4", {}, title),
    table("Candidates compared", ["", ...names], rows(view.facts)),
    view.profile.length > 0 && table("Profiles compared", ["Profile", ...names], profiles(view)),
    h("details", { "data-key": "compare-verdicts", open: apart.length > 0 },
      h("summary", {}, `Verdicts: ${count(apart.length, "difference")} in ${view.verdicts.length}`),
      table("Verdicts compared", ["Gate, case, seed", ...names], rows(view.verdicts), view.verdicts.map((r) => (r.left === r.right ? "" : "mkn-row-apart")))),
    h("h4", {}, "Sources"),
    view.diff.hunks.length ? diff({ ...view.diff, claim: "" }, { layout: act.layout, arrange: act.arrange, head: (hunk) => h("span", {}, `Hunk ${hunk.number + 1}`) })
      : h("p", { class: "mkn-quiet" }, "Their sources are equal."));
}

/** Facts that both have, side by side. */
function profiles(view: ComparisonView): Child[][] {
  const of = (id: string): Map<string, string> => new Map((view.profile.find((p) => p.label === id)?.facts ?? []).map((f) => [f.label, f.value]));
  const [left, right] = [of(view.left), of(view.right)];
  return [...new Set([...left.keys(), ...right.keys()])].map((label) => [h("strong", {}, label), left.get(label) ?? "", right.get(label) ?? ""]);
}
