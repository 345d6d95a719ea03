// A diff, unified or side by side, with colours and the words that changed; long ones are drawn piece by piece.
import { diffWordsWithSpace } from "diff";
import { append, h, type Child } from "./dom";
import { lines, paint } from "./highlight";
import type { DiffView, HunkView } from "./wire";

/** A line with its 1-based number on each side, 0 where it is not on that side. */
interface DiffLine {
  sign: string;
  text: string;
  old: number;
  new: number;
}

export type Layout = "unified" | "split";

/** What the person may do with each hunk; empty for a diff that is only read. */
export interface HunkActions {
  layout: Layout;
  arrange(layout: Layout): void;
  head(hunk: HunkView): Child;
  bar?: Child;
}

/** A row side by side: a line that stayed is on both sides, a replaced one beside what replaced it. */
type Row = [DiffLine | null, DiffLine | null];

const PIECE = 60; // rows drawn at a time: a few milliseconds
const LONGEST = 400; // characters: words of longer lines are not compared

export function diff(view: DiffView, act: HunkActions): Child[] {
  return [
    view.claim && h("p", { class: "mkn-claim" }, view.claim),
    view.decision && h("p", {}, h("strong", {}, view.decision)),
    h("div", { class: "mkn-bar" },
      h("p", { class: "mkn-quiet" }, h("span", { class: "mkn-plus" }, `+${view.added}`), " ",
        h("span", { class: "mkn-minus" }, `−${view.removed}`), ` lines in ${view.hunks.length} hunk${view.hunks.length === 1 ? "" : "s"}`),
      h("div", { class: "mkn-choice", role: "group", "aria-label": "Layout of the diff" },
        (["unified", "split"] as const).map((layout) => h("button", {
          type: "button", class: "mkn-toggle", "data-key": `layout-${layout}`, "aria-pressed": layout === act.layout ? "true" : "false",
          click: () => act.arrange(layout),
        }, layout === "split" ? "Side by side" : "Unified")))),
    act.bar,
    hunks(view, act),
  ];
}

function hunks(view: DiffView, act: HunkActions): Child {
  const holder = h("div", { class: "mkn-hunks" });
  const jobs: (() => void)[] = [];
  for (const hunk of view.hunks) {
    const body = h("div", { class: `mkn-code mkn-diff-${act.layout}` });
    const made = h("div", { class: "mkn-hunk", role: "group", "aria-label": `Hunk ${hunk.number + 1}`, "data-hunk": hunk.number },
      h("div", { class: "mkn-hunk-head" }, act.head(hunk), h("code", {}, hunk.header)), body);
    const numbered = numbers(hunk);
    const rows = paired(numbered);
    const partners = new Map(rows.flatMap(([old, now]) => (old && now && old !== now ? [[old, now], [now, old]] as const : [])));
    const length = act.layout === "split" ? rows.length : numbered.length;
    for (let from = 0; from < Math.max(1, length); from += PIECE) {
      jobs.push(() => {
        if (from === 0) holder.appendChild(made);
        const drawn = act.layout === "split" ? split(rows.slice(from, from + PIECE), partners) : unified(numbered.slice(from, from + PIECE), partners);
        // A piece out of sight is not laid out: only a box of its own can be contained, a table cannot.
        append(body, [h("div", { class: "mkn-piece", style: `contain-intrinsic-height:auto ${drawn.length * 18}px` },
          h("table", { class: "mkn-diff" }, h("tbody", {}, drawn)))]);
      });
    }
  }
  inPieces(holder, jobs);
  return holder;
}

/** The first pieces now, the rest in short turns, so that the page answers between them. */
function inPieces(holder: HTMLElement, jobs: (() => void)[]): void {
  let at = 0;
  const turn = (budget: number): void => {
    const until = performance.now() + budget;
    while (at < jobs.length && performance.now() < until) jobs[at++]?.();
    if (at < jobs.length) {
      holder.setAttribute("aria-busy", "true");
      setTimeout(() => { if (holder.isConnected) turn(10); }, 0);
    } else holder.removeAttribute("aria-busy");
  };
  turn(16);
}

function numbers(hunk: HunkView): DiffLine[] {
  let old = hunk.old, now = hunk.new;
  return hunk.lines.map((line) => {
    const sign = line.charAt(0);
    return { sign, text: line.slice(1), old: sign === "+" ? 0 : old++, new: sign === "-" ? 0 : now++ };
  });
}

function paired(all: DiffLine[]): Row[] {
  const rows: Row[] = [];
  let gone: DiffLine[] = [], come: DiffLine[] = [];
  const flush = (): void => {
    for (let n = 0; n < Math.max(gone.length, come.length); n += 1) rows.push([gone[n] ?? null, come[n] ?? null]);
    [gone, come] = [[], []];
  };
  for (const line of all) {
    if (line.sign === "-") gone.push(line);
    else if (line.sign === "+") come.push(line);
    else {
      flush();
      rows.push([line, line]);
    }
  }
  flush();
  return rows;
}

type Partners = Map<DiffLine, DiffLine>;

function coloured(side: DiffLine[], partners: Partners): Map<DiffLine, Child> {
  const tokens = lines(side.map((line) => line.text.replace(/[\r\n]/g, " ")).join("\n"));
  return new Map(side.map((line, n) => [line, h("td", { class: `mkn-text ${kind(line)}` }, paint(tokens[n] ?? [], changed(line, partners.get(line))))]));
}

/** Where ``line`` differs from the line it replaces or is replaced by; nothing when they share too little. */
function changed(line: DiffLine, partner: DiffLine | undefined): [number, number][] {
  if (!partner || line.text.length > LONGEST || partner.text.length > LONGEST) return [];
  const [old, now] = line.sign === "-" ? [line, partner] : [partner, line];
  const parts = diffWordsWithSpace(old.text, now.text);
  const same = parts.filter((p) => !p.added && !p.removed).reduce((sum, p) => sum + p.value.trim().length, 0);
  if (same * 3 < Math.max(old.text.trim().length, now.text.trim().length)) return [];
  const mine = line.sign === "-" ? "removed" : "added";
  const found: [number, number][] = [];
  let at = 0;
  for (const part of parts) {
    if ((part.added || part.removed) && !part[mine]) continue;
    if (part[mine]) found.push([at, at + part.value.length]);
    at += part.value.length;
  }
  return found;
}

const EDGE = { old: "mkn-first", new: "mkn-second" };

function kind(line: DiffLine): string {
  return line.sign === "+" ? "mkn-is-add" : line.sign === "-" ? "mkn-is-del" : "mkn-is-same";
}

function sign(line: DiffLine): Child {
  return h("td", { class: `mkn-sign ${kind(line)}` }, line.sign === "-" ? "−" : line.sign);
}

function split(rows: Row[], partners: Partners): Child[] {
  const there = (line: DiffLine | null): line is DiffLine => line !== null;
  const olds = coloured(rows.map(([old]) => old).filter(there), partners);
  const news = coloured(rows.map(([, now]) => now).filter(there), partners);
  const side = (line: DiffLine | null, texts: Map<DiffLine, Child>, which: "old" | "new"): Child[] => line
    ? [h("td", { class: `mkn-no ${kind(line)} ${EDGE[which]}` }, line[which] || ""), sign(line), texts.get(line)]
    : [h("td", { class: `mkn-void ${EDGE[which]}`, colspan: 3 })];
  return rows.map(([old, now]) => h("tr", {}, side(old, olds, "old"), side(now, news, "new")));
}

function unified(part: DiffLine[], partners: Partners): Child[] {
  const olds = coloured(part.filter((line) => line.sign === "-"), partners);
  const news = coloured(part.filter((line) => line.sign !== "-"), partners);
  return part.map((line) => h("tr", {}, h("td", { class: `mkn-no ${kind(line)}` }, line.old || ""),
    h("td", { class: `mkn-no ${kind(line)}` }, line.new || ""), sign(line), olds.get(line) ?? news.get(line)));
}
