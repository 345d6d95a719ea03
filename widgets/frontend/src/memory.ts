// One pipeline step as work beside copies, and the VMEM map: before and after on one scale, as widgets/memory_charts.py has them.
import { h, svg, type Child } from "./dom";
import type { SideView, StepView, VmemView } from "./wire";

const MIB = 1024 * 1024;
const WORK = ["best", "sky", "pink", "yellow"];
const KINDS: Record<string, string> = { input: "sky", output: "best", scratch: "yellow", spill: "bound", temporary: "pink", other: "ref" };
const [WIDE, LEFT, LANE] = [640, 82, 26];

interface Piece {
  colour: string;
  from: number;
  size: number;
  label: string;
  value: string;
}

export function stepTimelines(sides: SideView[]): Child {
  const shown = sides.flatMap((s) => (s.step ? [{ label: s.label, step: s.step }] : []));
  if (!shown.length) return null;
  const most = Math.max(...shown.map(({ step }) => length(step)));
  return [h("h4", {}, "A typical step: work beside copies"), shown.map(({ label, step }) => timeline(label, step, most))];
}

function length(step: StepView): number {
  return Math.max(step.compute_us, step.read_us + step.written_us);
}

function micros(us: number): string {
  return `${us.toPrecision(3)} µs`;
}

function timeline(label: string, step: StepView, most: number): Child {
  const x = (us: number): number => LEFT + (us / most) * (WIDE - LEFT - 12);
  let at = 0;
  const parts = step.parts.map((part, n): Piece => {
    const piece = { colour: WORK[n % WORK.length] ?? "best", from: at, size: part.us, label: part.label, value: micros(part.us) };
    at += part.us;
    return piece;
  });
  const read: Piece = { colour: "green", from: 0, size: step.read_us, label: "reads for the next step", value: micros(step.read_us) };
  const back: Piece = { colour: "ref", from: step.read_us, size: step.written_us, label: "write-back of the last step", value: micros(step.written_us) };
  const pieces = [read, ...parts, back];
  const lanes: [string, Piece[]][] = [["DMA in", [read]], ["compute", parts], ["DMA out", [back]]];
  const high = lanes.length * LANE + 34;
  return h("figure", { class: "mkn-lanes" },
    h("figcaption", {}, h("strong", {}, label), ` ${step.op}: `, h("span", { class: "mkn-quiet" }, `${step.text} ${Math.round(step.trips).toLocaleString("en")} steps, modelled.`)),
    svg("svg", { viewBox: `0 0 ${WIDE} ${high}`, role: "img", "aria-label": `${label}, one step of ${micros(length(step))}, modelled. ${pieces.map((p) => `${p.label} ${p.value}`).join(", ")}.` },
      lanes.map(([name, row], n) => [
        svg("text", { x: LEFT - 8, y: n * LANE + 19, "text-anchor": "end" }, name),
        svg("rect", { class: "mkn-lane", x: LEFT, y: n * LANE + 4, width: WIDE - LEFT - 12, height: LANE - 6 }),
        row.map((piece) => block(piece, pieces.indexOf(piece) + 1, x(piece.from), x(piece.from + piece.size), n * LANE + 4, LANE - 6)),
      ]),
      svg("line", { class: "mkn-edge-of-step", x1: x(length(step)), x2: x(length(step)), y1: 0, y2: lanes.length * LANE + 4 }),
      svg("text", { class: "mkn-tick", x: x(length(step)), y: high - 14, "text-anchor": "end" }, `step ${micros(length(step))}`),
      svg("text", { class: "mkn-tick", x: LEFT, y: high - 14 }, "0")),
    legend(pieces));
}

/** One stretch, numbered as in its legend, so that colour is never the only sign. */
function block(piece: Piece, number: number, from: number, to: number, y: number, high: number): Child {
  if (piece.size <= 0) return null;
  const wide = Math.max(1.5, to - from);
  return svg("g", { class: `mkn-block mkn-block-${piece.colour}`, "data-tip": `${piece.label}: ${piece.value}` },
    svg("rect", { x: from, y, width: wide, height: high }),
    wide > 14 && svg("text", { x: from + wide / 2, y: y + high / 2 + 4, "text-anchor": "middle" }, number));
}

function legend(pieces: Piece[]): Child {
  return h("ol", { class: "mkn-pieces" }, pieces.map((piece, n) => piece.size > 0 && h("li", { value: n + 1 },
    h("span", { class: `mkn-key mkn-key-${piece.colour === "bound" ? "bound2" : piece.colour}`, "aria-hidden": "true" }, n + 1), `${piece.label} `, h("strong", {}, piece.value))));
}

export function vmemMaps(sides: SideView[]): Child {
  const shown = sides.flatMap((s) => (s.vmem ? [{ label: s.label, vmem: s.vmem }] : []));
  if (!shown.length) return null;
  const most = Math.max(...shown.map(({ vmem }) => Math.max(vmem.capacity, vmem.used)));
  return [h("h4", {}, "VMEM, buffer by buffer"), shown.map(({ label, vmem }) => vmemMap(label, vmem, most))];
}

function vmemMap(label: string, vmem: VmemView, most: number): Child {
  const x = (bytes: number): number => 2 + (bytes / most) * (WIDE - 4);
  let at = 0;
  const pieces = vmem.rows.map((row): Piece => {
    const piece = { colour: KINDS[row.kind] ?? "ref", from: at, size: row.size, label: `${row.label} (${row.kind})`, value: row.text };
    at += row.size;
    return piece;
  });
  const mib = (bytes: number): string => `${(bytes / MIB).toFixed(bytes < 10 * MIB ? 1 : 0)} MiB`;
  const said = `${mib(vmem.used)} of ${mib(vmem.capacity)} used; a kernel may use ${mib(vmem.limit)}`;
  return h("figure", { class: "mkn-lanes" },
    h("figcaption", {}, h("strong", {}, label), ` ${vmem.op}: `, h("span", { class: "mkn-quiet" }, `${said}.`)),
    svg("svg", { viewBox: `0 0 ${WIDE} 52`, role: "img", "aria-label": `${label}: VMEM, ${said}. ${pieces.map((p) => `${p.label} ${p.value}`).join(", ")}.` },
      svg("rect", { class: "mkn-lane", x: 2, y: 4, width: x(vmem.capacity) - 2, height: 28, "data-tip": `free: ${mib(vmem.capacity - vmem.used)}` }),
      pieces.map((piece, n) => block(piece, n + 1, x(piece.from), x(piece.from + piece.size), 4, 28)),
      svg("line", { class: "mkn-edge-of-step", x1: x(vmem.limit), x2: x(vmem.limit), y1: 0, y2: 36 }),
      svg("text", { class: "mkn-tick", x: 2, y: 48 }, "0"),
      vmem.limit < vmem.capacity * 0.85 && svg("text", { class: "mkn-tick", x: x(vmem.limit), y: 48, "text-anchor": vmem.limit < vmem.capacity / 2 ? "start" : "end" }, `limit ${mib(vmem.limit)}`),
      svg("text", { class: "mkn-tick", x: x(vmem.capacity), y: 48, "text-anchor": "end" }, mib(vmem.capacity))),
    legend(pieces));
}
