import type { Extension } from '@codemirror/state';
import type { EditorView } from '@codemirror/view';
import { Widget } from '@lumino/widgets';

import { button, element, labelled } from './dom';
import { changesOf, type Change } from './hunks';
import type { Choice, Draft, Matter } from './matter';
import { mergeView, reveal } from './mergeview';

/** How the cell stands to the proposal: as it was, not to be written in, changed since, or without the function. */
export type Standing =
  { kind: 'same' } | { kind: 'sealed'; why: string } | { kind: 'changed'; current: string } | { kind: 'gone' };

/** A matter inside its cell: the merge view, a bar for each change, and the choices. It decides nothing. */
export class ProposalView extends Widget {
  private editor: EditorView | null = null;
  private changes: Change[] = [];
  private bars = new Map<number, HTMLElement>();
  private at = -1;
  private status = element('div', 'mkl-status');
  private warning = element('div', 'mkl-warning');
  private host = element('div', 'mkl-editor');
  private standing = '';
  private choiceButtons = new Map<string, HTMLButtonElement>();

  constructor(
    readonly matter: Matter,
    private draft: Draft,
    private language: Extension,
    private decide: (choice: Choice) => void
  ) {
    super();
    this.addClass('mkl-proposal');
    this.node.dataset.lmSuppressShortcuts = 'true';
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', `${matter.title}, run ${matter.run}`);
    this.status.setAttribute('role', 'status');
    this.warning.setAttribute('role', 'alert');
    this.node.append(this.header(), this.warning, this.host, this.footer());
    this.stand({ kind: 'same' });
  }

  /** Draws the difference anew: against the baseline, or against what the cell holds now. */
  stand(standing: Standing): void {
    const now = standing.kind === 'changed' ? `changed ${standing.current}` : standing.kind;
    if (now === this.standing) {
      return;
    }
    this.standing = now;
    this.warning.textContent = warningOf(standing, this.matter.entry);
    this.warning.hidden = standing.kind === 'same';
    this.node.classList.toggle('mkl-rediff', standing.kind === 'changed');
    if (standing.kind === 'gone' && this.editor !== null) {
      return;
    }
    const baseline = standing.kind === 'changed' ? standing.current : this.matter.baseline;
    this.draw(baseline, standing.kind !== 'changed');
    this.relabel();
  }

  say(text: string, tone: '' | 'bad' | 'busy' = ''): void {
    this.status.textContent = text;
    this.status.className = `mkl-status ${tone === '' ? '' : `mkl-${tone}`}`;
  }

  /** While the kernel has not answered, nothing can be chosen twice. */
  set pending(pending: boolean) {
    this.node.setAttribute('aria-busy', String(pending));
    for (const one of this.choiceButtons.values()) {
      one.disabled = pending;
    }
  }

  step(by: 1 | -1): void {
    if (this.editor === null || this.changes.length === 0) {
      return;
    }
    this.at = (this.at + by + this.changes.length) % this.changes.length;
    const change = this.changes[this.at] as Change;
    const bar = this.bars.get(change.number);
    if (bar !== undefined) {
      reveal(this.editor, change, bar);
    }
  }

  override dispose(): void {
    this.editor?.destroy();
    super.dispose();
  }

  private draw(baseline: string, byHunk: boolean): void {
    this.editor?.destroy();
    this.bars.clear();
    const { proposed, hunks } = this.matter;
    this.changes = byHunk ? changesOf(baseline, hunks) : [whole(baseline, proposed)];
    const bar = (number: number) => {
      const made = this.bars.get(number) ?? this.bar(number, byHunk);
      this.bars.set(number, made);
      return made;
    };
    const shown = { baseline, proposed, changes: this.changes, bar };
    this.editor = mergeView(this.host, shown, this.language, `Proposed text, ${this.changes.length} changes`);
    this.at = -1;
  }

  private header(): HTMLElement {
    const title = element('div', 'mkl-title', `${this.matter.title} · run ${this.matter.run}`);
    const claim = element('div', 'mkl-claim', this.matter.text);
    const steps = element('div', 'mkl-steps');
    steps.append(
      button('Previous change', () => this.step(-1)),
      button('Next change', () => this.step(1))
    );
    const header = element('div', 'mkl-header');
    header.append(title, steps, claim);
    return header;
  }

  private footer(): HTMLElement {
    const footer = element('div', 'mkl-footer');
    const takers = this.matter.choices.filter(choice => choice.text !== '');
    if (takers.length > 0) {
      const box = document.createElement('textarea');
      box.rows = 1;
      box.value = this.draft.comment;
      box.addEventListener('input', () => (this.draft.comment = box.value));
      footer.append(labelled('Comment (optional)', box));
    }
    const row = element('div', 'mkl-choices');
    for (const choice of this.matter.choices) {
      const made = button(choice.label, () => this.decide(choice), choice.primary ? 'mkl-primary' : '');
      this.choiceButtons.set(choice.name, made);
      row.append(made);
    }
    footer.append(row, this.status);
    return footer;
  }

  private bar(number: number, byHunk: boolean): HTMLElement {
    const bar = element('div', 'mkl-bar');
    const count = this.changes.length;
    bar.append(element('span', 'mkl-bar-title', byHunk ? `Change ${number + 1} of ${count}` : 'The text as it is now'));
    if (!byHunk || count < 2) {
      return bar;
    }
    const what = `change ${number + 1}`;
    const accept = button('Accept', () => this.choose(number, true, bar), '', `Accept ${what}`);
    const reject = button('Reject', () => this.choose(number, false, bar), '', `Reject ${what}`);
    bar.append(accept, reject, ...this.remark(number));
    this.choose(number, !this.draft.rejected.has(number), bar);
    return bar;
  }

  private remark(number: number): HTMLElement[] {
    const comment = document.createElement('input');
    comment.type = 'text';
    comment.value = this.draft.comments.get(number) ?? '';
    comment.setAttribute('aria-label', `Comment on change ${number + 1}`);
    comment.hidden = comment.value === '';
    comment.addEventListener('input', () => this.draft.comments.set(number, comment.value));
    const open = button('Comment', () => {
      comment.hidden = !comment.hidden;
      open.setAttribute('aria-expanded', String(!comment.hidden));
      if (!comment.hidden) {
        comment.focus();
      }
      this.editor?.requestMeasure();
    }, '', `Comment on change ${number + 1}`);
    open.setAttribute('aria-expanded', String(!comment.hidden));
    return [open, comment];
  }

  private choose(number: number, accepted: boolean, bar: HTMLElement): void {
    const { rejected } = this.draft;
    if (accepted) {
      rejected.delete(number);
    } else {
      rejected.add(number);
    }
    bar.classList.toggle('mkl-rejected', !accepted);
    const [accept, reject] = bar.querySelectorAll('button');
    accept?.setAttribute('aria-pressed', String(accepted));
    reject?.setAttribute('aria-pressed', String(!accepted));
    this.relabel();
  }

  /** The primary button says how much it accepts. */
  private relabel(): void {
    const primary = this.matter.choices.find(choice => choice.primary);
    const made = primary && this.choiceButtons.get(primary.name);
    if (!primary || !made) {
      return;
    }
    const all = this.matter.hunks.length;
    const kept = all - this.draft.rejected.size;
    const rediffed = this.node.classList.contains('mkl-rediff');
    const part = kept === all || rediffed ? (all > 1 ? ' all' : '') : ` ${kept} of ${all}`;
    made.textContent = primary.name === 'accept' ? `${primary.label}${part}` : primary.label;
    made.disabled = primary.name === 'accept' && kept === 0 && !rediffed;
  }
}

function whole(baseline: string, proposed: string): Change {
  let head = 0;
  const least = Math.min(baseline.length, proposed.length);
  while (head < least && baseline[head] === proposed[head]) {
    head += 1;
  }
  head = baseline.lastIndexOf('\n', head - 1) + 1;
  let tail = 0;
  while (tail < least - head && baseline[baseline.length - 1 - tail] === proposed[proposed.length - 1 - tail]) {
    tail += 1;
  }
  return { number: 0, fromA: head, toA: baseline.length - tail, fromB: head, toB: proposed.length - tail };
}

function warningOf(standing: Standing, entry: string): string {
  switch (standing.kind) {
    case 'same':
      return '';
    case 'sealed':
      return `${standing.why}: accepting binds the kernel and leaves the text as it is.`;
    case 'changed':
      return (
        `The cell was changed since this kernel was proposed: below it is compared with ${entry} as it is now. ` +
        'Its checks were made against the earlier text. Accepting binds the kernel and replaces what is shown here.'
      );
    case 'gone':
      return 'The cell no longer holds this function: accepting binds the kernel and leaves the cell as it is.';
  }
}
