// The profile section: the same numbers and colours as the report's charts, drawn with the page's own elements.
import { h, svg, type Child } from "./dom";
import { stepTimelines, vmemMaps } from "./memory";
import { facts, table } from "./sections";
import { withTips } from "./tips";
import type { ProfileView, RoofView, SideView } from "./wire";

// The reference and the best kernel, modelled; then the same two as measured.
const SIDES = ["ref", "best"];

function look(side: SideView, n: number): string {
  return `mkn-side-${SIDES[n % 2] ?? "best"}${side.evidence === "measured" ? " mkn-measured" : ""}`;
}

function evidence(sides: SideView[]): string {
  return [...new Set(sides.map((s) => s.evidence))].join(" and ");
}

export function profile(view: ProfileView): Child[] {
  return [
    h("p", { class: "mkn-evidence-line" }, h("span", { class: "mkn-badge mkn-badge-modelled" }, `${evidence(view.sides)}${errors(view.sides)}`), " ",
      h("span", { class: "mkn-quiet" }, view.caption)),
    withTips(
      view.difference.length > 0 && [h("p", {}, "Where measured and modelled part:"), h("ul", {}, view.difference.map((line) => h("li", {}, line)))],
    h("h4", {}, `${evidence(view.sides)} time`.replace(/^m/, "M")),
      times(view.sides),
      view.sides.some((s) => s.units.length > 0) && [h("h4", {}, "Issue slots used, by unit"), units(view.sides)],
      stepTimelines(view.sides),
      vmemMaps(view.sides),
      view.roof && [h("h4", {}, `Roofline of ${view.roof.chip}`), roofline(view.roof, view.sides)]),
    h("div", { class: "mkn-sides" }, view.sides.map((side) =>
      h("div", {}, h("h4", {}, side.label), facts(side.facts), side.ops.length > 0 &&
        table(`Longest ops of ${side.label}`, ["Longest ops", side.evidence === "measured" ? "Measured" : "Modelled", "Bound by"],
          side.ops.map((op) => [op.name, h("span", { class: "mkn-nowrap" }, op.time), op.bound]))))),
  ];
}

function errors(sides: SideView[]): string {
  const known = sides.flatMap((s) => (s.error_pct === null ? [] : [Math.round(s.error_pct)]));
  if (!known.length) return "";
  const [low, high] = [Math.min(...known), Math.max(...known)];
  return low === high ? ` ±${low} %` : ` ±${low} to ${high} %`;
}

function percent(share: number): string {
  return `${(Math.max(0, Math.min(1, share)) * 100).toFixed(2)}%`;
}

function times(sides: SideView[]): Child {
  const most = Math.max(...sides.map((s) => s.ms * (1 + (s.error_pct ?? 0) / 100))) || 1;
  return h("div", { class: "mkn-bars" }, sides.map((side, n) => {
    const spread = (side.error_pct ?? 0) / 100;
    return [
      h("span", { class: "mkn-bar-label" }, side.label),
      h("div", { class: "mkn-bar-track", "data-tip": timeTip(side) },
        h("div", { class: `mkn-bar-fill ${look(side, n)}`, style: `width:${percent(side.ms / most)}` }),
        spread > 0 && h("div", { class: "mkn-whisker",
          style: `left:${percent((side.ms * (1 - spread)) / most)};width:${percent((side.ms * 2 * spread) / most)}` }),
        side.bound_ms > 0 && h("div", { class: "mkn-bound",
          style: `left:${percent(side.bound_ms / most)}` })),
      h("span", { class: "mkn-bar-value" }, side.time,
        side.error_pct !== null && h("span", { class: "mkn-quiet" }, ` ±${side.error_pct.toFixed(0)} %`)),
    ];
  }), h("p", { class: "mkn-legend mkn-quiet" }, h("span", { class: "mkn-key-bound", "aria-hidden": "true" }), "roofline bound: ",
    sides.map((s) => `${s.label} ${s.bound_ms.toPrecision(3)} ms`).join(", "), ". Whiskers: typical error of the model."));
}

function timeTip(side: SideView): string {
  const error = side.error_pct === null ? "" : `, typical error ±${side.error_pct.toFixed(0)} %`;
  const bound = side.bound_ms > 0 ? `; roofline bound ${side.bound_ms.toPrecision(3)} ms (${percent(side.bound_ms / side.ms)} of it)` : "";
  return `${side.label}: ${side.time} ${side.evidence}${error}${bound}`;
}

function units(sides: SideView[]): Child {
  const names = sides.find((s) => s.units.length > 0)?.units.map((u) => u.label) ?? [];
  return [
    h("div", { class: "mkn-units" }, names.map((name) => [
      h("span", { class: "mkn-bar-label" }, name),
      h("div", {}, sides.map((side, n) => {
        const share = side.units.find((u) => u.label === name)?.share;
        return share !== undefined && h("div", { class: "mkn-unit", "data-tip": `${side.label}: ${percent(share)} of the ${name} slots` },
          h("div", { class: "mkn-bar-track mkn-thin" },
            h("div", { class: `mkn-bar-fill ${look(side, n)}`, style: `width:${percent(share)}` })),
          h("span", { class: "mkn-unit-value" }, h("span", { class: "mkn-sr" }, `${side.label} `), `${(share * 100).toFixed(0)} %`));
      })),
    ])),
    h("p", { class: "mkn-legend mkn-quiet" }, sides.map((s, n) => s.units.length > 0 &&
      h("span", {}, h("span", { class: `mkn-key ${look(s, n)}`, "aria-hidden": "true" }), s.label, " "))),
  ];
}

function decades([low, high]: number[]): number[] {
  const powers = Array.from({ length: 13 }, (_, n) => 10 ** (n - 3));
  return powers.filter((p) => p >= (low ?? 0) && p <= (high ?? 0));
}

function roofline(roof: RoofView, sides: SideView[]): Child {
  const shown = sides.filter((s) => s.intensity > 0 && s.tflops > 0);
  const isReference = (s: SideView): boolean => sides.length > 1 && sides.indexOf(s) % 2 === 0;
  const ridge = (roof.peak_tflops * 1e3) / roof.hbm_gbps;
  const [wide, high, left, bottom] = [460, 220, 58, 40];
  const xs = [Math.min(ridge / 30, ...shown.map((s) => s.intensity / 3)), Math.max(ridge * 10, ...shown.map((s) => s.intensity * 3))];
  const ys = [Math.min(roof.peak_tflops / 100, ...shown.map((s) => s.tflops / 3)), roof.peak_tflops * 2];
  const place = (v: number, [lo, hi]: number[], from: number, to: number): number =>
    from + ((Math.log(v) - Math.log(lo ?? 1)) / (Math.log(hi ?? 10) - Math.log(lo ?? 1))) * (to - from);
  const x = (v: number): number => place(v, xs, left, wide - 10);
  const y = (v: number): number => place(v, ys, high - bottom, 10);
  const start = Math.max(xs[0] ?? 0, ((ys[0] ?? 0) * 1e3) / roof.hbm_gbps);
  const line = [[start, (start * roof.hbm_gbps) / 1e3], [ridge, roof.peak_tflops], [xs[1] ?? 1, roof.peak_tflops]];
  const said = shown.map((s) => `${s.label}: ${s.tflops.toPrecision(3)} TFLOP/s at ${s.intensity.toPrecision(3)} flop per byte`);
  return h("figure", { class: "mkn-roof" },
    svg("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": `Roofline, ${evidence(shown)}. ${said.join(". ")}` },
      svg("path", { class: "mkn-axis", d: `M${left} 10V${high - bottom}H${wide - 10}` }),
      svg("polyline", { class: "mkn-roofline", points: line.map(([a, b]) => `${x(a ?? 1)},${y(b ?? 1)}`).join(" ") }),
      shown.map((s, n) => svg("g", { "data-tip": `${s.label}: ${s.tflops.toPrecision(3)} TFLOP/s at ${s.intensity.toPrecision(3)} flop per byte` },
        n === 0 && sides.length > 1
          ? svg("circle", { class: "mkn-dot-ref", cx: x(s.intensity), cy: y(s.tflops), r: 6 })
          : svg("rect", { class: "mkn-dot-best", x: x(s.intensity) - 6, y: y(s.tflops) - 6, width: 12, height: 12 }),
        isReference(s)
          ? svg("text", { x: x(s.intensity) - 10, y: y(s.tflops) + 4, "text-anchor": "end" }, `${s.tflops.toPrecision(3)} TFLOP/s`)
          : svg("text", { x: x(s.intensity) + 10, y: y(s.tflops) + 4 }, `${s.tflops.toPrecision(3)} TFLOP/s`))),
      decades(xs).map((v) => svg("text", { class: "mkn-tick", x: x(v), y: high - bottom + 14, "text-anchor": "middle" }, v)),
      decades(ys).map((v) => svg("text", { class: "mkn-tick", x: left - 5, y: y(v) + 4, "text-anchor": "end" }, v)),
      svg("text", { x: x(ridge), y: y(roof.peak_tflops) - 6, "text-anchor": "middle" }, `${roof.peak_tflops} TFLOP/s`),
      svg("text", { x: (wide + left) / 2, y: high - 4, "text-anchor": "middle" }, "flop per HBM byte"),
      svg("text", { transform: `translate(12 ${(high - bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, `TFLOP/s, ${evidence(shown)}`)),
    h("figcaption", { class: "mkn-quiet" }, said.join("; ")));
}
