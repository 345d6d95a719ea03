// The little Markdown that plans use, as nodes. widgets/markdown.py reads the same forms for the report.
import { h, type Child } from "./dom";

const INLINE = /`([^`\n]+)`|\*\*([^*\n]+)\*\*|\*([^*\s][^*\n]*)\*/g;
const ITEM = /^\s*(?:[-*+]|\d+[.)])\s+(.*)/;
const HEADING = /^#{1,6}\s+(.*)/;

export function markdown(text: string): Child[] {
  return text.split(/^```.*$/m).map((part, at): Child =>
    at % 2 ? h("pre", {}, h("code", {}, part.replace(/^\n+|\n+$/g, ""))) : runs(part).map(block),
  );
}

function runs(text: string): string[][] {
  const found: string[][] = [[]];
  for (const line of text.split(/\r?\n/)) {
    const run = found[found.length - 1] ?? [];
    const last = run[run.length - 1] ?? "";
    const parts = !line.trim() || HEADING.test(line) || HEADING.test(last);
    if (parts || (last && ITEM.test(line) && !ITEM.test(run[0] ?? ""))) found.push([]);
    if (line.trim()) found[found.length - 1]?.push(line);
  }
  return found.filter((run) => run.length > 0);
}

function block(lines: string[]): Child {
  const heading = HEADING.exec(lines[0] ?? "");
  if (heading) return h("p", {}, h("strong", {}, inline(heading[1] ?? "")));
  if (!ITEM.test(lines[0] ?? "")) return h("p", {}, inline(lines.join(" ")));
  const items: string[] = [];
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item) items.push(item[1] ?? "");
    else items[items.length - 1] += ` ${line.trim()}`;
  }
  return h("ul", {}, items.map((item) => h("li", {}, inline(item))));
}

function inline(text: string): Child[] {
  const out: Child[] = [];
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    out.push(text.slice(at, found.index));
    if (found[1] !== undefined) out.push(h("code", {}, found[1]));
    else if (found[2] !== undefined) out.push(h("strong", {}, found[2]));
    else out.push(h("em", {}, found[3] ?? ""));
    at = (found.index ?? 0) + found[0].length;
  }
  out.push(text.slice(at));
  return out;
}
