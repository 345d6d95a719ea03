// Python colours for code that is only read: one regular expression, good for a line or a whole file.
import { h, type Child } from "./dom";

const KEYWORDS =
  "and as assert async await break class continue def del elif else except finally for from global if import in is " +
  "lambda None nonlocal not or pass raise return True False try while with yield match case";
const TOKEN = new RegExp(
  [
    "(#[^\\n]*)", // 1 comment
    "([rbfuRBFU]{0,2}(?:\"\"\"[\\s\\S]*?(?:\"\"\"|$)|'''[\\s\\S]*?(?:'''|$)|\"(?:\\\\.|[^\"\\\\\\n])*\"?|'(?:\\\\.|[^'\\\\\\n])*'?))", // 2
    "(@[\\w.]+)", // 3 decorator
    "\\b(?:(def|class)(\\s+)(\\w+))", // 4 5 6
    `\\b(${KEYWORDS.split(" ").join("|")})\\b`, // 7
    "\\b(\\d[\\w.]*(?:[eE][+-]?\\d+)?)\\b", // 8
  ].join("|"),
  "g",
);

export function python(text: string): Child[] {
  const out: Child[] = [];
  let at = 0;
  for (const found of text.matchAll(TOKEN)) {
    if (found.index > at) out.push(text.slice(at, found.index));
    at = found.index + found[0].length;
    const [all, comment, quoted, decorator, define, gap, name, keyword] = found;
    if (comment !== undefined) out.push(token("c", all));
    else if (quoted !== undefined) out.push(token("s", all));
    else if (decorator !== undefined) out.push(token("f", all));
    else if (define !== undefined) out.push(token("k", define), gap ?? "", token("f", name ?? ""));
    else if (keyword !== undefined) out.push(token("k", all));
    else out.push(token("n", all));
  }
  out.push(text.slice(at));
  return out;
}

function token(kind: string, text: string): Child {
  return h("span", { class: `mkn-t-${kind}` }, text);
}
