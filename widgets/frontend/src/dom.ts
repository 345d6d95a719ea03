// Elements with text children only: nothing a model or a person wrote is ever parsed as HTML.

export type Child = Node | string | number | null | undefined | false | Child[];

type Props = Record<string, string | number | boolean | ((event: Event) => void) | undefined>;

const SVG = "http://www.w3.org/2000/svg";

export function h(tag: string, props: Props = {}, ...children: Child[]): HTMLElement {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag: string, props: Props = {}, ...children: Child[]): SVGElement {
  return fill(document.createElementNS(SVG, tag) as SVGElement, props, children);
}

function fill<E extends Element>(element: E, props: Props, children: Child[]): E {
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(key, value);
    else if (key === "checked" || key === "disabled") (element as unknown as Record<string, unknown>)[key] = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

export function append(element: Node, children: Child[]): void {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child instanceof Node) element.appendChild(child);
    else if (child !== null && child !== undefined && child !== false) {
      element.appendChild(document.createTextNode(visible(String(child))));
    }
  }
}

// Bidirectional overrides and control characters can make code read as something else: shown as a box.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

export function visible(text: string): string {
  return text.replace(HIDDEN, "\u25a1");
}

/** A part of the page rebuilt only when its data changed; keeps scroll positions, open details and focus. */
export class Region {
  private last = "\u0000";

  constructor(readonly element: HTMLElement) {}

  show(data: unknown, build: () => Child[]): void {
    const now = JSON.stringify(data);
    if (now === this.last) return;
    this.last = now;
    const kept = remember(this.element);
    this.element.replaceChildren();
    append(this.element, build());
    kept();
  }
}

function remember(element: HTMLElement): () => void {
  const root = element.getRootNode() as Document | ShadowRoot;
  const focused = element.contains(root.activeElement) ? root.activeElement?.getAttribute("data-key") : null;
  const open = new Map<string, boolean>();
  const scrolled = new Map<string, [number, number]>();
  for (const node of keyed(element)) {
    const key = node.getAttribute("data-key") ?? "";
    if (node instanceof HTMLDetailsElement) open.set(key, node.open);
    if (node.scrollLeft || node.scrollTop) scrolled.set(key, [node.scrollLeft, node.scrollTop]);
  }
  return () => {
    for (const node of keyed(element)) {
      const key = node.getAttribute("data-key") ?? "";
      if (node instanceof HTMLDetailsElement && open.has(key)) node.open = open.get(key) === true;
      const at = scrolled.get(key);
      if (at) [node.scrollLeft, node.scrollTop] = at;
      if (focused && key === focused) node.focus({ preventScroll: true });
    }
  };
}

function keyed(element: HTMLElement): HTMLElement[] {
  return Array.from(element.querySelectorAll<HTMLElement>("[data-key]"));
}
