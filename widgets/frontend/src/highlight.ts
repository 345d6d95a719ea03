// Python colours for code that is only read: highlight.js's grammar, walked into tokens, never into HTML.
import pythonGrammar from "highlight.js/lib/languages/python";
import { createLowlight } from "lowlight";
import { h, type Child } from "./dom";

/** A piece of one line; ``kind`` is one of k(eyword) s(tring) n(umber) f(unction) c(omment) or empty. */
export interface Token {
  kind: string;
  text: string;
}

interface Tree {
  type: string;
  value?: string;
  children?: Tree[];
  properties?: { className?: unknown };
}

const KINDS: Record<string, string> = {
  "hljs-keyword": "k", "hljs-literal": "k", "hljs-string": "s", "hljs-number": "n", "hljs-comment": "c",
  "hljs-title": "f", "hljs-meta": "f", "hljs-built_in": "f",
};
const low = createLowlight({ python: pythonGrammar });

/** The tokens of every line of ``text``. */
export function lines(text: string): Token[][] {
  const out: Token[][] = [[]];
  const walk = (node: Tree, kind: string): void => {
    if (node.type === "text") {
      (node.value ?? "").split("\n").forEach((part, n) => {
        if (n > 0) out.push([]);
        if (part) out[out.length - 1]?.push({ kind, text: part });
      });
      return;
    }
    const names = node.properties?.className;
    const own = Array.isArray(names) ? names.map((name) => KINDS[String(name)]).find(Boolean) : undefined;
    for (const child of node.children ?? []) walk(child, own ?? kind);
  };
  walk(low.highlight("python", text) as Tree, "");
  return out;
}

/** Nodes of one line; the characters inside ``marked`` (from, to) are set off as what changed. */
export function paint(tokens: Token[], marked: [number, number][] = []): Child[] {
  const out: Child[] = [];
  let at = 0;
  for (const token of tokens) {
    const edges = [0, ...marked.flat().map((edge) => edge - at), token.text.length]
      .filter((edge) => edge >= 0 && edge <= token.text.length).sort((a, b) => a - b);
    edges.slice(1).forEach((to, n) => {
      const from = edges[n] ?? 0;
      if (to === from) return;
      const changed = marked.some(([a, b]) => a <= at + from && at + to <= b);
      const classes = [token.kind && `mkn-t-${token.kind}`, changed && "mkn-word"].filter(Boolean).join(" ");
      const text = token.text.slice(from, to);
      out.push(classes ? h("span", { class: classes }, text) : text);
    });
    at += token.text.length;
  }
  return out;
}

export function python(text: string): Child[] {
  return lines(text).map((line, n) => [n > 0 && "\n", paint(line)]);
}
