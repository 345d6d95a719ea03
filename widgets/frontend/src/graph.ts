// The search tab: the graph of kernels, the curve of the best, a table, and one node in full when it is asked for.
import { diff, type Layout } from "./diff";
import { h, svg, type Child } from "./dom";
import { checks, facts, table } from "./sections";
import type { CurvePoint, GraphNode, GraphView, Intent, NodeView } from "./wire";

export interface GraphActions {
  look(node: string): void;
  mark(intent: Intent, node: string): void;
  own: HTMLTextAreaElement; // the person's version of the node that is shown
  judge(node: string): void;
  shown: NodeView | null;
  picked: string;
  layout: Layout;
  arrange(layout: Layout): void;
}

const [WIDE, HIGH, LEFT, BOTTOM, TOP] = [720, 300, 62, 46, 14];
const ROWS = 40;

export function graph(view: GraphView, act: GraphActions): Child[] {
  if (!view.nodes.length) return [h("p", { class: "mkn-quiet" }, view.caption)];
  return [
    h("p", { class: "mkn-quiet" }, view.caption),
    picture(view, act),
    h("p", { class: "mkn-legend mkn-quiet" },
      "✓ verified  ○ timed, not checked  ✗ refused  – given up  … in flight. Larger is faster; the heavy line leads to the best."),
    view.curve.length > 0 && [h("h4", {}, "Best so far against judgements"), curve(view)],
    detail(act),
    h("h4", {}, "Fastest kernels"),
    fastest(view, act),
  ];
}

function scale(values: number[], from: number, to: number): (v: number) => number {
  const low = Math.log(Math.min(...values)), high = Math.log(Math.max(...values));
  return (v) => high - low < 1e-9 ? (from + to) / 2 : from + ((Math.log(v) - low) / (high - low)) * (to - from);
}

function picture(view: GraphView, act: GraphActions): Child {
  const timed = view.nodes.filter((n) => n.ms !== null).map((n) => n.ms ?? 1);
  const floor = HIGH - BOTTOM;
  const y = timed.length ? scale(timed, floor - 26, TOP + 8) : (): number => TOP;
  const up = (ms: number): number => floor - 26 + TOP + 8 - y(ms); // fast kernels lie high
  const last = Math.max(1, ...view.nodes.map((n) => n.draw));
  const x = (n: GraphNode): number => LEFT + 14 + (n.draw / last) * (WIDE - LEFT - 32);
  const at = (n: GraphNode): number => (n.ms === null ? floor - 6 : up(n.ms));
  const known = new Map(view.nodes.map((n) => [n.id, n]));
  const best = new Set(view.lineage);
  const fastest = Math.min(...timed, Number.POSITIVE_INFINITY);
  const radius = (n: GraphNode): number => (n.ms === null ? 5 : 4 + 7 * Math.min(1, (fastest / n.ms) ** 2));
  const edges = view.nodes.flatMap((n) => n.parents.filter((p) => known.has(p)).map((p, k) => ({ n, p: known.get(p) as GraphNode, k })));
  const said = `${view.nodes.length} kernels; the best is ${view.best || "not found yet"}${view.lineage.length ? `, generation ${view.lineage.length}` : ""}.`;
  const low = timed.length ? Math.max(...timed) : 0;
  return h("figure", { class: "mkn-graph" },
    svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "group", "aria-label": `Graph of kernels. ${said}` },
      svg("path", { class: "mkn-axis", d: `M${LEFT} ${TOP}V${floor}H${WIDE - 10}` }),
      edges.map(({ n, p, k }) => svg("line", {
        class: best.has(n.id) && best.has(p.id) && k === 0 ? "mkn-edge mkn-edge-best" : "mkn-edge",
        x1: x(p), y1: at(p), x2: x(n), y2: at(n), "stroke-dasharray": k > 0 ? "3 3" : undefined,
      })),
      view.nodes.map((n) => node(n, x(n), at(n), radius(n), n.id === view.best, n.id === act.picked, act)),
      timed.length > 0 && [fastest, low].filter((v, i, all) => all.indexOf(v) === i).map((v) =>
        svg("text", { class: "mkn-tick", x: LEFT - 5, y: up(v) + 4, "text-anchor": "end" }, time(v))),
      view.nodes.some((n) => n.ms === null) && svg("text", { class: "mkn-tick", x: LEFT - 5, y: floor - 2, "text-anchor": "end" }, "no time"),
      [0, last].map((v) => svg("text", { class: "mkn-tick", x: LEFT + 14 + (v / last) * (WIDE - LEFT - 32), y: floor + 15, "text-anchor": "middle" }, v)),
      svg("text", { x: (WIDE + LEFT) / 2, y: HIGH - 6, "text-anchor": "middle" }, "draw"),
      svg("text", { transform: `translate(12 ${(floor + TOP) / 2}) rotate(-90)`, "text-anchor": "middle" }, "modelled time, faster is higher")),
    h("figcaption", { class: "mkn-sr" }, said));
}

function node(n: GraphNode, x: number, y: number, r: number, best: boolean, picked: boolean, act: GraphActions): Child {
  const label = [n.id, n.result, n.time, n.against && `${n.against} over XLA`, n.params, n.idea, n.mark].filter(Boolean).join(", ");
  const look = (): void => act.look(n.id);
  return svg("g", {
    class: `mkn-node mkn-node-${n.tone}${best ? " mkn-node-best" : ""}${picked ? " mkn-node-picked" : ""}`, role: "button",
    tabindex: 0, "aria-label": label, "data-key": `node-${n.id}`, click: look,
    keydown: (event) => { if (["Enter", " "].includes((event as KeyboardEvent).key)) { event.preventDefault(); look(); } },
  },
  svg("title", {}, label),
  svg("circle", { cx: x, cy: y, r }),
  svg("text", { x, y: y + 3.5, "text-anchor": "middle" }, n.mark === "pinned" ? "★" : n.mark === "pruned" ? "✂" : n.sign));
}

function time(ms: number): string {
  return ms >= 1 ? `${ms.toPrecision(3)} ms` : `${(ms * 1e3).toPrecision(3)} µs`;
}

function curve(view: GraphView): Child {
  const [wide, high] = [WIDE, 150];
  const value = (p: CurvePoint): number => p.speedup ?? 1 / p.ms;
  const top = Math.max(...view.curve.map(value)), most = Math.max(1, view.judged);
  const x = (judged: number): number => LEFT + (judged / most) * (wide - LEFT - 14);
  const y = (v: number): number => high - 36 - (v / top) * (high - 52);
  const points: string[] = [];
  let before: number | null = null;
  for (const p of view.curve) {
    if (before !== null) points.push(`${x(p.judged)},${y(before)}`);
    before = value(p);
    points.push(`${x(p.judged)},${y(before)}`);
  }
  if (before !== null) points.push(`${x(most)},${y(before)}`);
  const last = view.curve[view.curve.length - 1] as CurvePoint;
  const against = last.speedup !== null;
  const said = against ? `${last.speedup?.toFixed(2) ?? ""}× over XLA, modelled, after ${last.judged} of ${view.judged} judgements`
    : `${time(last.ms)} after ${last.judged} of ${view.judged} judgements`;
  return h("figure", { class: "mkn-graph" },
    svg("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": `Best so far: ${said}` },
      svg("path", { class: "mkn-axis", d: `M${LEFT} 8V${high - 36}H${wide - 10}` }),
      svg("polyline", { class: "mkn-curve", points: points.join(" ") }),
      against && top > 1 && svg("line", { class: "mkn-edge", x1: LEFT, x2: wide - 10, y1: y(1), y2: y(1), "stroke-dasharray": "2 4" }),
      svg("text", { class: "mkn-tick", x: LEFT - 5, y: y(top) + 4, "text-anchor": "end" }, against ? `${top.toFixed(2)}×` : time(last.ms)),
      against && top > 1 && svg("text", { class: "mkn-tick", x: LEFT - 5, y: y(1) + 4, "text-anchor": "end" }, "XLA"),
      [0, most].map((v) => svg("text", { class: "mkn-tick", x: x(v), y: high - 20, "text-anchor": "middle" }, v)),
      svg("text", { x: (wide + LEFT) / 2, y: high - 6, "text-anchor": "middle" }, "candidates judged")),
    h("figcaption", { class: "mkn-quiet" }, said));
}

function fastest(view: GraphView, act: GraphActions): Child {
  const late = Number.POSITIVE_INFINITY;
  const rows = [...view.nodes].sort((a, b) => (a.ms ?? late) - (b.ms ?? late)).slice(0, ROWS);
  return table("Fastest kernels", ["Kernel", "Result", "Modelled", "Against XLA", "Came by", "Constants", "Idea"], rows.map((n) => [
    [h("button", { type: "button", class: "mkn-sort", "data-key": `row-${n.id}`, click: () => act.look(n.id) }, h("code", {}, n.id)),
      n.id === view.best && h("span", { class: "mkn-best" }, "best"), n.mark && h("span", { class: "mkn-quiet" }, ` ${n.mark}`)],
    h("span", { class: `mkn-nowrap mkn-tone-${n.tone}` }, n.sign, " ", n.result), h("span", { class: "mkn-nowrap" }, n.time), n.against,
    n.how, n.params, n.idea,
  ]), rows.map((n) => (n.id === view.best ? "mkn-row-best" : "")));
}

function detail(act: GraphActions): Child {
  const node = act.shown;
  if (!node) return h("p", { class: "mkn-quiet" }, "Choose a kernel above to see how it differs from its parents, and what the judge said.");
  const button = (intent: Intent, label: string): Child =>
    h("button", { type: "button", class: "mkn-button mkn-small", "data-key": `${intent}-${node.id}`, click: () => act.mark(intent, node.id) }, label);
  return h("section", { class: "mkn-node-detail", "aria-label": `Kernel ${node.id}` },
    h("div", { class: "mkn-bar" }, h("h4", {}, node.title),
      node.mark ? button("unmark", node.mark === "pinned" ? "Unpin" : "Take the pruning back")
        : [button("pin", "Pin: build on it"), button("prune", "Prune: no more children")]),
    facts([...node.facts, ...node.commands]),
    node.complete && node.source && h("details", { "data-key": "node-edit" }, h("summary", {}, "Write your own version"), act.own,
      h("button", { type: "button", class: "mkn-button mkn-small", "data-key": `edit-${node.id}`, click: () => act.judge(node.id) },
        "Judge my version next")),
    node.checks && h("details", { "data-key": "node-checks" }, h("summary", {}, "Verdicts"), checks(node.checks)),
    node.profile && h("details", { "data-key": "node-profile" }, h("summary", {}, `Profile: ${node.profile.time}, bound by ${node.profile.bound || "?"}`),
      facts(node.profile.facts), table("Longest ops", ["Longest ops", "Modelled", "Bound by"], node.profile.ops.map((op) => [op.name, op.time, op.bound]))),
    node.diffs.map((view, n) => h("details", { "data-key": `node-diff-${n}`, open: n === 0 },
      h("summary", {}, `${view.claim}: +${view.added} −${view.removed}`),
      diff({ ...view, claim: "" }, { layout: act.layout, arrange: act.arrange, head: (hunk) => h("span", {}, `Hunk ${hunk.number + 1}`) }))));
}
