// Markdown of plans and answers as nodes: markdown-it reads, we build. widgets/markdown.py sets its Python twin the same way.
import MarkdownIt from "markdown-it";
import { h, type Child } from "./dom";

type Tokens = ReturnType<InstanceType<typeof MarkdownIt>["parse"]>;

const parser = new MarkdownIt("commonmark", { html: false }).enable("table")
  .disable(["link", "image", "autolink", "reference", "html_inline", "html_block", "entity"]);
const TAGS = new Set(["p", "ul", "ol", "li", "blockquote", "table", "thead", "tbody", "tr", "th", "td", "strong", "em"]);

export function markdown(text: string): Child[] {
  return nodes(parser.parse(text, {}));
}

/** Opening and closing tokens become nested elements; a heading is a strong line, for the panel has headings of its own. */
function nodes(tokens: Tokens): Child[] {
  const stack: { tag: string; start: string; children: Child[] }[] = [{ tag: "", start: "", children: [] }];
  const put = (child: Child): void => { stack[stack.length - 1]?.children.push(child); };
  for (const token of tokens) {
    if (token.nesting === 1) stack.push({ tag: token.hidden ? "" : token.tag, start: String(token.attrGet("start") ?? ""), children: [] });
    else if (token.nesting === -1) {
      const done = stack.pop();
      if (done) put(element(done.tag, done.start, done.children));
    } else put(leaf(token));
  }
  return stack[0]?.children ?? [];
}

function element(tag: string, start: string, children: Child[]): Child {
  if (/^h[1-6]$/.test(tag)) return h("p", {}, h("strong", {}, children));
  return TAGS.has(tag) ? h(tag, tag === "ol" && start ? { start } : {}, children) : children;
}

function leaf(token: Tokens[number]): Child {
  switch (token.type) {
    case "inline": return nodes(token.children ?? []);
    case "code_inline": return h("code", {}, token.content);
    case "fence":
    case "code_block": return h("pre", {}, h("code", {}, token.content.replace(/\n$/, "")));
    case "hr": return h("hr");
    case "softbreak": return " ";
    case "hardbreak": return h("br");
    default: return token.content;
  }
}
