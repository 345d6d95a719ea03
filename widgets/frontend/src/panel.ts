// The run panel: renders the document Python wrote, sends what the person wants, decides nothing.
import { candidates, type SortKey } from "./compare";
import { diff, type Layout } from "./diff";
import { h, Region, type Child } from "./dom";
import { graph } from "./graph";
import { Intents, type Model } from "./intents";
import { markdown } from "./markdown";
import { profile } from "./profile";
import * as section from "./sections";
import { watchTheme } from "./theme";
import {
  COMPARISON, DOC, NODE, type Action, type ComparisonView, type Document as Doc, type HunkView, type Intent, type NodeView,
} from "./wire";

type Tab = "proposal" | "checks" | "profile" | "plan" | "graph" | "candidates" | "source" | "log";
const TABS: [Tab, string][] = [
  ["proposal", "Proposal"], ["checks", "Checks"], ["profile", "Profile"], ["plan", "Plan"],
  ["graph", "Search"], ["candidates", "Candidates"], ["source", "Source"], ["log", "Log"],
];
const CONTROLS: string[] = ["stop", "pause"];
const DECISIONS: string[] = ["accept", "reject", "answer"];
const WRITTEN: string[] = [...DECISIONS, "ask"]; // what the comment box belongs to
const DISCONNECTED = "comm_live_update"; // Jupyter's widget managers say so when a kernel restarts
const KERNEL_LOST = "maxkernel:kernel-lost"; // the lab extension says so, of a kernel that died by itself too
let panels = 0;

class Panel {
  private doc: Doc;
  private intents: Intents;
  private picked: Tab | null = null; // null: follow the run
  private skipped = new Set<number>(); // hunks the person left out
  private before: Set<number>[] = []; // what was left out before each choice, to undo it
  private remarks = new Map<number, string>(); // on single hunks
  private proposal = "";
  private layout: Layout | null = null; // null: what fits
  private sort: SortKey = "order";
  private down = false;
  private compared: string[] = []; // candidates, two at most
  private comparison: ComparisonView | null = null;
  private full = new Set<Tab>(); // long lists shown in full
  private node: NodeView | null = null; // of the search, as it was when it was asked for
  private wanted = "";
  private gone = ""; // what happened to the kernel: nothing reaches the run from here
  private readonly uid = `mkn-${(panels += 1)}`;
  private readonly regions = new Map<string, Region>();
  private readonly comment = h("input", {
    type: "text", class: "mkn-comment", placeholder: "Comment (optional)", "aria-label": "Comment on your decision",
    maxlength: 2000,
  }) as HTMLInputElement;
  private readonly editor = h("textarea", {
    class: "mkn-editor", rows: 8, spellcheck: "false", "aria-label": "Edit before you answer", input: () => this.drawDecision(),
  }) as HTMLTextAreaElement;
  private readonly caption = h("p", { class: "mkn-quiet mkn-caption" });
  private readonly own = h("textarea", {
    class: "mkn-editor", rows: 14, spellcheck: "false", "aria-label": "Your own version of this kernel",
  }) as HTMLTextAreaElement;
  private asked = "";
  private readonly buttons = h("div", { class: "mkn-buttons" });
  private readonly status = h("p", { class: "mkn-said", role: "status", "aria-live": "polite" });
  readonly root: HTMLElement;

  constructor(private model: Model) {
    this.doc = model.get(DOC) as Doc;
    this.intents = new Intents(model, () => this.draw());
    this.root = this.frame();
    this.root.addEventListener(KERNEL_LOST, (event) => this.lost((event as CustomEvent<string>).detail === "restarting" ? RESTARTED : DIED));
    model.on(`change:${DOC}`, this.changed);
    model.on("msg:custom", this.received);
    model.on(DISCONNECTED, this.disconnected);
    this.draw();
  }

  destroy(): void {
    this.model.off(`change:${DOC}`, this.changed);
    this.model.off("msg:custom", this.received);
    this.model.off(DISCONNECTED, this.disconnected);
    this.intents.clear();
    this.root.remove();
  }

  private changed = (): void => {
    this.doc = this.model.get(DOC) as Doc;
    this.draw();
  };

  private disconnected = (): void => this.lost(RESTARTED);

  private lost(how: string): void {
    this.gone ||= how;
    this.intents.clear();
    this.draw();
  }

  private received = (content: unknown): void => {
    const shown = content as NodeView | ComparisonView | null;
    if (shown?.kind === NODE && shown.id === this.wanted) {
      if (shown.id !== this.node?.id) this.own.value = shown.source; // a mark sends the node again: what was typed stays
      this.node = shown;
    }
    else if (shown?.kind === COMPARISON && shown.left === this.compared[0] && shown.right === this.compared[1]) this.comparison = shown;
    else return this.intents.receive(content);
    this.draw();
  };

  private look = (node: string): void => {
    this.wanted = node;
    this.intents.send("look", { node });
  };

  private judge = (node: string): void => this.intents.send("edit", { node, comment: this.own.value });

  private mark = (intent: Intent, node: string): void => {
    this.wanted = node;
    this.intents.send(intent, { node });
  };

  private region(name: string, tag = "div", props: Record<string, string> = {}): HTMLElement {
    const element = h(tag, { class: `mkn-${name}`, ...props });
    this.regions.set(name, new Region(element));
    return element;
  }

  private frame(): HTMLElement {
    const decide = h("div", { class: "mkn-decide" }, this.region("next"), this.buttons, this.comment, this.caption, this.editor, this.status);
    const main = h("div", { class: "mkn-main" },
      this.region("tabs", "div", { role: "tablist", "aria-label": "Parts of the run" }),
      this.region("body", "div", { role: "tabpanel", id: `${this.uid}-body`, tabindex: "0" }));
    // Tells JupyterLab that typing here is not a notebook shortcut ("dd" in the comment deletes no cell).
    return h("section", { class: "mkn-panel", "data-lm-suppress-shortcuts": "true", "aria-label": "maxkernel run" },
      this.region("top"), this.region("hero"), this.region("flags"), decide,
      h("div", { class: "mkn-columns" }, 
        h("aside", { class: "mkn-side", "aria-label": "Steps", tabindex: 0 }, this.region("steps"), this.region("talk")), main),
      this.region("foot", "footer", { "aria-label": "Spend" }));
  }

  private show(name: string, data: unknown, build: () => Child[]): void {
    this.regions.get(name)?.show(data, build);
  }

  private draw(): void {
    if (!this.doc || !this.doc.header) return;
    if (this.gone !== "") this.doc = withoutKernel(this.doc, this.gone);
    const { doc } = this;
    if (doc.diff && doc.diff.proposal !== this.proposal) {
      this.proposal = doc.diff.proposal;
      this.skipped.clear();
      this.before = [];
      this.remarks.clear();
    }
    const pending = this.intents.pending();
    const controls = doc.next.actions.filter((a) => CONTROLS.includes(a.intent));
    this.show("top", [doc.header, controls, pending], () => this.top(controls));
    this.show("hero", [doc.header, doc.outcome, doc.checks, doc.candidates], () => this.hero());
    this.show("flags", [doc.flags, doc.notes], () => this.flags());
    this.show("next", doc.next, () => [
      h("p", { class: "mkn-next-text" }, doc.next.text),
      doc.next.question?.text && h("div", { class: "mkn-prose" }, markdown(doc.next.question.text)),
      doc.next.effect && h("p", { class: "mkn-quiet" }, doc.next.effect),
    ]);
    this.drawDecision();
    this.drawSteps();
    this.drawTabs();
    this.show("foot", doc.meters, () => section.meters(doc.meters));
  }

  private drawSteps(): void {
    const side = this.regions.get("steps")?.element.parentElement;
    const following = side && side.scrollTop + side.clientHeight >= side.scrollHeight - 4;
    this.show("steps", this.doc.steps, () => [h("h3", {}, "Steps"), section.steps(this.doc.steps)]);
    this.show("talk", this.doc.saying, () => section.saying(this.doc.saying));
    // The newest step stays in sight; before the first layout there is nothing to scroll yet.
    if (following) requestAnimationFrame(() => { side.scrollTop = side.scrollHeight; });
  }

  // -- top ---------------------------------------------------------------------------------------------------------

  private top(controls: Action[]): Child[] {
    const { header } = this.doc;
    return [
      h("div", { class: "mkn-controls" }, [...controls].reverse().map((a) => this.button(a))),
      h("div", { class: "mkn-kicker" },
        h("strong", {}, header.title),
        h("span", { class: `mkn-status mkn-tone-${header.tone}` }, h("span", { class: "mkn-dot", "aria-hidden": "true" }), header.status),
        [header.mode, header.chip, header.run_id, header.elapsed].filter(Boolean).map((t) => h("span", { class: "mkn-nowrap" }, t))),
    ];
  }

  private hero(): Child[] {
    const { header, outcome } = this.doc;
    const best = this.doc.candidates.find((c) => c.best)?.id;
    const checks = best !== undefined && this.doc.checks?.candidate === best ? this.doc.checks : null;
    const evidence = header.evidence;
    return [
      h("div", { class: "mkn-headline" }, h("h2", {}, header.headline),
        evidence && this.doc.profile && h("span", { class: `mkn-badge mkn-badge-${evidence.kind}`, title: evidence.text },
          evidence.kind, evidence.error && ` ${evidence.error}`)),
      (header.headline_detail || checks) && h("p", { class: "mkn-detail" },
        header.headline_detail && h("span", { class: "mkn-times" }, header.headline_detail),
        checks && h("span", {}, checks.verdict)),
      evidence && this.doc.profile && h("p", { class: "mkn-quiet mkn-evidence" }, evidence.text),
      outcome && h("p", { class: "mkn-outcome" }, outcome),
    ];
  }

  private flags(): Child[] {
    const loud = this.doc.notes.filter((n) => n.level !== "info").slice(-3);
    const flag = (kind: string, text: string, level: string): Child =>
      h("p", { class: `mkn-flag mkn-flag-${level}` }, h("strong", {}, `${kind.charAt(0).toUpperCase()}${kind.slice(1)}: `), text);
    return [...this.doc.flags.map((f) => flag(f.kind, f.text, "warning")), ...loud.map((n) => flag(n.level, n.text, n.level))];
  }

  // -- decisions -----------------------------------------------------------------------------------------------------

  private button(action: Action, label = action.label, off = false): HTMLElement {
    const intent = action.intent as Intent;
    const key = intent + action.choice;
    const pending = this.intents.pending(key);
    return h("button", {
      type: "button", class: `mkn-button mkn-do-${intent}${action.primary ? " mkn-primary" : ""}`, "data-key": `do-${key}`,
      title: action.command, disabled: pending || off, click: () => this.act(action),
    }, pending ? this.intents.doing(intent) : label);
  }

  private act(action: Action): void {
    const intent = action.intent as Intent;
    if (intent === "ask") {
      this.intents.send(intent, { comment: this.comment.value.trim() });
      this.comment.value = "";
      return;
    }
    if (!DECISIONS.includes(intent)) {
      this.intents.send(intent);
      return;
    }
    const chosen = this.chosen();
    const some = intent !== "reject" && chosen.length < this.hunks().length;
    this.intents.send(intent, {
      proposal: this.doc.next.question?.id ?? this.proposal, choice: action.choice, comment: this.words(action),
      hunks: some ? chosen : null,
    });
  }

  /** What goes with a decision: the edited text where the answer takes one and it was changed, else the comment. */
  private words(action: Action): string {
    if (action.takes_text !== "" && this.edited()) return this.editor.value;
    const remarks = [...this.remarks].sort(([a], [b]) => a - b).map(([hunk, text]) => `hunk ${hunk + 1}: ${text}`);
    return [this.comment.value.trim(), ...remarks].filter(Boolean).join("\n");
  }

  private edited(): boolean {
    return !this.editor.hidden && this.editor.value !== this.doc.next.question?.editable;
  }

  /** Who has changed the text wants it taken: the answer that takes it is then the first to press. */
  private answers(): Action[] {
    const actions = this.doc.next.actions.filter((a) => !CONTROLS.includes(a.intent));
    const takes = this.edited() ? actions.findIndex((a) => a.takes_text !== "") : -1;
    const said = actions[takes]?.label ?? actions.find((a) => a.takes_text !== "")?.label;
    this.caption.textContent = takes >= 0 ? `Your text: press “${said}” to send it.` : `You may edit this and press “${said}”.`;
    this.caption.hidden = this.editor.hidden || said === undefined;
    return takes < 0 ? actions : actions.map((a, n) => ({ ...a, primary: n === takes }));
  }

  private ask(): void {
    const question = this.doc.next.question;
    if ((question?.id ?? "") !== this.asked) {
      this.asked = question?.id ?? "";
      this.editor.value = question?.editable ?? "";
      this.comment.value = "";
    }
    this.editor.hidden = !question?.editable;
    const wanted = !this.editor.hidden ? "" : this.doc.next.actions.map((a) => a.takes_text).find(Boolean);
    const only = !this.doc.next.actions.some((a) => DECISIONS.includes(a.intent)); // nothing to decide: a question fits
    const answer = wanted && !only ? `Write with your answer: ${wanted}` : "Comment (optional)";
    this.comment.placeholder = only ? "Your question about this work" : answer;
    this.comment.setAttribute("aria-label", only ? "Your question" : "Comment on your decision");
  }

  private hunks(): HunkView[] {
    return this.doc.diff?.hunks ?? [];
  }

  private chosen(): number[] {
    return this.hunks().map((hunk) => hunk.number).filter((n) => !this.skipped.has(n));
  }

  private drawDecision(): void {
    this.ask();
    const actions = this.answers();
    const writing = actions.some((a) => WRITTEN.includes(a.intent));
    const [some, all] = [this.chosen().length, this.hunks().length];
    this.comment.hidden = !writing;
    const region = this.regions.get("buttons") ?? new Region(this.buttons);
    this.regions.set("buttons", region);
    region.show([actions, some, all, actions.map((a) => this.intents.pending(a.intent + a.choice))], () =>
      actions.map((a) => this.button(a, some < all ? inPart(a, some, all) : a.label,
        a.intent === "accept" && all > 0 && some === 0)));
    const said = this.intents.said;
    this.status.className = `mkn-said mkn-said-${said?.tone ?? "plain"}`;
    if (this.status.textContent !== (said?.text ?? "")) this.status.textContent = said?.text ?? "";
  }

  /** What a person may do with one hunk; its pressed state and its remark are kept here, never in the document. */
  private hunkHead = (hunk: HunkView): Child => {
    const n = hunk.number, title = h("strong", {}, `Hunk ${n + 1}`);
    if (!this.doc.diff?.open) return title;
    const remark = h("input", {
      type: "text", class: "mkn-comment mkn-remark", "aria-label": `Comment on hunk ${n + 1}`, "data-key": `remark-${n}`, maxlength: 500,
      placeholder: "Goes with your decision", hidden: !this.remarks.has(n),
      input: (event) => this.remark(n, (event.target as HTMLInputElement).value),
    }) as HTMLInputElement;
    remark.value = this.remarks.get(n) ?? "";
    const comment = h("button", {
      type: "button", class: "mkn-toggle", "data-key": `comment-${n}`, "aria-label": `Comment on hunk ${n + 1}`, "aria-expanded": remark.hidden ? "false" : "true",
      click: () => {
        remark.hidden = !remark.hidden;
        comment.setAttribute("aria-expanded", remark.hidden ? "false" : "true");
        if (!remark.hidden) remark.focus();
      },
    }, "Comment");
    const choice = (taken: boolean): Child => h("button", {
      type: "button", class: `mkn-toggle ${taken ? "mkn-take" : "mkn-leave"}`, "data-key": `${taken ? "take" : "leave"}-${n}`,
      "aria-label": `${taken ? "Accept" : "Reject"} hunk ${n + 1}`, "aria-pressed": this.skipped.has(n) === taken ? "false" : "true",
      click: () => this.choose(taken ? [] : [n], taken ? [n] : []),
    }, taken ? "Accept" : "Reject");
    const choices = this.hunks().length > 1 && h("span", { class: "mkn-choice", role: "group", "aria-label": `Choice for hunk ${n + 1}` }, choice(true), choice(false));
    return [title, choices, comment, remark];
  };

  private hunkBar(): Child {
    if (!this.doc.diff?.open || this.hunks().length < 2) return null;
    const all = this.hunks().map((hunk) => hunk.number);
    const button = (key: string, label: string, click: () => void): Child =>
      h("button", { type: "button", class: "mkn-button mkn-small", "data-key": `hunks-${key}`, click }, label);
    return h("div", { class: "mkn-hunk-bar", role: "group", "aria-label": "All hunks" },
      button("all", "Choose all", () => this.choose([], all)), button("none", "Choose none", () => this.choose(all, [])),
      button("undo", "Undo last choice", () => this.unchoose()));
  }

  private choose(leave: number[], take: number[]): void {
    this.before.push(new Set(this.skipped));
    for (const n of leave) this.skipped.add(n);
    for (const n of take) this.skipped.delete(n);
    this.draw();
  }

  private unchoose(): void {
    this.skipped = this.before.pop() ?? this.skipped;
    this.draw();
  }

  private remark(hunk: number, text: string): void {
    if (text.trim()) this.remarks.set(hunk, text.trim());
    else this.remarks.delete(hunk);
  }

  /** A choice changes a few attributes; a long diff is not drawn again for it. */
  private drawChoices(): void {
    for (const { number: n } of this.hunks()) {
      const left = this.skipped.has(n);
      this.root.querySelector(`[data-key="take-${n}"]`)?.setAttribute("aria-pressed", left ? "false" : "true");
      this.root.querySelector(`[data-key="leave-${n}"]`)?.setAttribute("aria-pressed", left ? "true" : "false");
      this.root.querySelector(`.mkn-hunk[data-hunk="${n}"]`)?.classList.toggle("mkn-left-out", left && this.current() === "proposal");
    }
    const undo = this.root.querySelector<HTMLButtonElement>('[data-key="hunks-undo"]');
    if (undo) undo.disabled = this.before.length === 0;
  }

  // -- tabs ----------------------------------------------------------------------------------------------------------

  private available(): Tab[] {
    const { doc } = this;
    const has: Record<Tab, boolean> = {
      proposal: doc.diff !== null, checks: doc.checks !== null, profile: doc.profile !== null, plan: doc.plan !== null,
      graph: doc.graph !== null, candidates: doc.candidates.length > 0, source: doc.source !== null, log: true,
    };
    return TABS.map(([tab]) => tab).filter((tab) => has[tab]);
  }

  private current(): Tab {
    const open = this.available();
    if (this.picked && open.includes(this.picked)) return this.picked;
    const searching = this.doc.graph !== null && !this.doc.ended;
    const wanted: Tab[] = this.doc.diff?.open ? ["proposal"] : searching ? ["graph"] : this.doc.ended ? ["profile", "checks"] : ["checks", "plan", "profile"];
    return wanted.find((tab) => open.includes(tab)) ?? "log";
  }

  private drawTabs(): void {
    const now = this.current();
    const open = this.available();
    this.show("tabs", [open, now, this.badge("checks"), this.badge("candidates"), this.badge("log")], () =>
      TABS.filter(([tab]) => open.includes(tab)).map(([tab, label]) =>
        h("button", {
          type: "button", role: "tab", class: "mkn-tab", id: `${this.uid}-${tab}`, "data-key": `tab-${tab}`,
          "aria-selected": tab === now ? "true" : "false", "aria-controls": `${this.uid}-body`, tabindex: tab === now ? 0 : -1,
          click: () => this.pick(tab), keydown: (event) => this.move(event as KeyboardEvent, tab),
        }, label, this.badge(tab) && h("span", { class: "mkn-count" }, this.badge(tab)))));
    this.regions.get("body")?.element.setAttribute("aria-labelledby", `${this.uid}-${now}`);
    this.show("body", [now, this.data(now)], () => this.body(now));
    if (now === "proposal") this.drawChoices();
  }

  private badge(tab: Tab): string {
    if (tab === "checks") {
      const bad = this.doc.checks?.rows.filter((r) => r.outcome === "fail").length ?? 0;
      return bad ? `${bad} ✗` : "";
    }
    if (tab === "candidates") return String(this.doc.candidates.length);
    return tab === "log" && this.doc.notes.length ? String(this.doc.notes.length) : "";
  }

  private pick(tab: Tab): void {
    this.picked = tab;
    this.draw();
    const body = this.regions.get("body")?.element;
    if (body) body.scrollTop = 0;
  }

  private move(event: KeyboardEvent, from: Tab): void {
    const open = this.available();
    const at = open.indexOf(from);
    const to: Record<string, number> = {
      ArrowRight: (at + 1) % open.length, ArrowLeft: (at - 1 + open.length) % open.length, Home: 0, End: open.length - 1,
    };
    const next = open[to[event.key] ?? -1];
    if (!next) return;
    event.preventDefault();
    this.pick(next);
    this.root.querySelector<HTMLElement>(`[data-key="tab-${next}"]`)?.focus();
  }

  private data(tab: Tab): unknown {
    const { doc } = this;
    const layout = this.arranged();
    const parts: Record<Tab, unknown> = {
      proposal: [doc.diff, layout], checks: [doc.checks, this.full.has("checks")], profile: doc.profile, plan: doc.plan,
      graph: [doc.graph, this.node, this.wanted, layout],
      candidates: [doc.candidates, this.sort, this.down, this.compared, this.comparison, this.full.has("candidates"), layout], source: doc.source, log: [doc.notes, doc.trimmed, doc.header.versions],
    };
    return parts[tab];
  }

  private body(tab: Tab): Child[] {
    const { doc } = this;
    switch (tab) {
      case "proposal": return doc.diff ? diff(doc.diff, { ...this.laidOut(), head: this.hunkHead, bar: this.hunkBar() }) : [];
      case "checks": return doc.checks ? section.checks(doc.checks, this.full.has("checks"), this.more("checks")) : [];
      case "profile": return doc.profile ? profile(doc.profile) : [];
      case "plan": return doc.plan ? section.plan(doc.plan) : [];
      case "graph": return doc.graph ? graph(doc.graph, { look: this.look, mark: this.mark, own: this.own, judge: this.judge, shown: this.node, picked: this.wanted, ...this.laidOut() }) : [];
      case "candidates": return candidates(doc.candidates, {
        sort: this.sort, down: this.down, chosen: this.compared, shown: this.comparison, all: this.full.has("candidates"),
        order: this.order, choose: this.pair, more: this.more("candidates"), ...this.laidOut(),
      });
      case "source": return doc.source ? section.source(doc.source, () => this.copy()) : [];
      case "log": return section.log(doc);
    }
  }

  /** Side by side where two columns of code fit. */
  private arranged(): Layout {
    return this.layout ?? ((this.regions.get("body")?.element.clientWidth ?? 0) >= 900 ? "split" : "unified");
  }

  private laidOut(): { layout: Layout; arrange(layout: Layout): void } {
    return { layout: this.arranged(), arrange: (layout) => { this.layout = layout; this.draw(); } };
  }

  private more(tab: Tab): () => void {
    return () => { this.full.add(tab); this.draw(); };
  }

  private order = (key: SortKey): void => {
    this.down = key === this.sort && !this.down;
    this.sort = key;
    this.draw();
  };

  /** Two candidates at most are chosen; a third takes the place of the one chosen first. */
  private pair = (id: string): void => {
    this.compared = this.compared.includes(id) ? this.compared.filter((other) => other !== id) : [...this.compared, id].slice(-2);
    this.comparison = null;
    const [node, other] = this.compared;
    if (node && other) this.intents.send("compare", { node, other });
    this.draw();
  };

  private copy(): void {
    const text = this.doc.source?.text ?? "";
    const done = (said: string): void => { this.intents.said = { tone: "plain", text: said }; this.draw(); };
    if (!navigator.clipboard) {
      done("This page may not use the clipboard; select the source and copy it by hand.");
      return;
    }
    navigator.clipboard.writeText(text).then(() => done("Source copied."), () => done("The browser refused the clipboard."));
  }
}

const RESTARTED = "was restarted", DIED = "died";

/** What takes the code says how much of it is taken. */
function inPart(action: Action, some: number, all: number): string {
  if (action.intent === "accept") return `Accept ${some} of ${all} hunks`;
  return action.intent === "answer" && action.primary ? `${action.label} (${some} of ${all} hunks)` : action.label;
}

/** What a panel says whose kernel is gone; the run itself is in its journal. */
function withoutKernel(doc: Doc, how: string): Doc {
  const run = doc.header.run_id;
  const kept = doc.ended ? `%maxkernel show ${run} brings it back.` : `%maxkernel resume ${run} goes on without repeating finished steps.`;
  const text = `The kernel ${how}. This run is kept: load the extension again (%load_ext maxkernel_nb), then ${kept}`;
  const header = doc.ended ? doc.header : { ...doc.header, status: "interrupted", tone: "warn" as const };
  return { ...doc, header, saying: [], diff: doc.diff && { ...doc.diff, open: false }, next: { text, effect: "", actions: [], question: null } };
}

export default {
  render({ model, el }: { model: Model; el: HTMLElement }): () => void {
    const panel = new Panel(model);
    el.replaceChildren(panel.root);
    const unwatch = watchTheme(panel.root);
    return () => {
      unwatch();
      panel.destroy();
    };
  },
};
