import type { Extension } from '@codemirror/state';
import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import type { Cell } from '@jupyterlab/cells';
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { IDisposable } from '@lumino/disposable';
import { Debouncer, Throttler } from '@lumino/polling';
import type { PanelLayout } from '@lumino/widgets';

import { body, functionsOf, holds } from './cellsource';
import type { Decided, RunInfo } from './contract';
import { functionText } from './hunks';
import { ARRIVED, type KernelLink } from './link';
import { bindsKernel, Choice, Draft, fromProposal, fromQuestion, Matter } from './matter';
import { warn } from './notify';
import { ProposalView, Standing } from './proposalview';
import type { Preferences } from './sessions';
import { sealed, writeAccepted, Written } from './write';

const INPUT_WRAPPER = 1; // where a cell's layout keeps its input: the view comes right below it

/** What was decided here, and against which text of the cell: only that text may be replaced. */
interface Mine {
  cell: string;
  baseline: string;
}

/**
 * Shows open matters inside the cells they are about, in one notebook, and writes what is accepted here.
 * A decision taken elsewhere (panel, magic, another tab) closes the view and leaves the cell's text alone.
 */
export class InPlace implements IDisposable {
  private views = new Map<string, ProposalView>();
  private drafts = new Map<string, Draft>();
  private mine = new Map<string, Mine>();
  private written = new Map<string, Written>();
  private told = new Set<string>();
  private seen = new Map<string, Matter>();
  /** Notices of several runs come without a pause; a person who types makes one. */
  private soon = new Throttler(() => this.refresh(), { limit: 30, edge: 'trailing' });
  private later = new Debouncer(() => this.refresh(), 150);

  constructor(
    readonly panel: NotebookPanel,
    private link: KernelLink,
    private language: Extension,
    private wishes: Pick<Preferences, 'confirms' | 'below'>
  ) {
    link.changed.connect(this.arrived, this);
    link.decided.connect(this.decided, this);
    link.slow.connect(this.slow, this);
    panel.content.modelContentChanged.connect(this.typed, this);
    this.refresh();
  }

  get isDisposed(): boolean {
    return this._disposed;
  }
  private _disposed = false;

  dispose(): void {
    this._disposed = true;
    this.link.changed.disconnect(this.arrived, this);
    this.link.decided.disconnect(this.decided, this);
    this.link.slow.disconnect(this.slow, this);
    this.panel.content.modelContentChanged.disconnect(this.typed, this);
    this.soon.dispose();
    this.later.dispose();
    for (const view of this.views.values()) {
      view.dispose();
    }
    for (const written of this.written.values()) {
      written.dispose();
    }
  }

  /** The open matter of the active cell, for commands and keys. */
  viewIn(cell: Cell | null): ProposalView | null {
    return [...this.views.values()].find(view => view.parent === cell && cell !== null) ?? null;
  }

  /** Scrolls to the cell of a run, or to the only one that defines its function. False where this notebook has none. */
  async reveal(run: RunInfo): Promise<boolean> {
    const cell = this.cellOf(this.seen.get(run.id) ?? null, run.cell) ?? this.only(run.entry);
    if (cell === null) {
      return false;
    }
    const at = this.panel.content.widgets.indexOf(cell);
    this.panel.content.activeCellIndex = at;
    await this.panel.content.scrollToItem(at, 'center');
    return true;
  }

  private arrived(): void {
    this.soon.invoke().catch((reason: unknown) => this.failed(reason));
  }

  private typed(): void {
    this.later.invoke().catch((reason: unknown) => this.failed(reason));
  }

  private failed(reason: unknown): void {
    if (!this._disposed) {
      console.error('MaxKernel could not draw a proposal', reason);
    }
  }

  private matters(): Matter[] {
    const proposals = [...this.link.proposals.values()].map(fromProposal);
    const questions = [...this.link.questions.values()].map(fromQuestion);
    return [...proposals, ...questions.filter((m): m is Matter => m !== null)];
  }

  private refresh(): void {
    if (this._disposed || this.panel.isDisposed) {
      return;
    }
    const open = new Map(this.matters().map(matter => [key(matter), matter]));
    for (const [id, view] of this.views) {
      if (!open.has(id) || view.isDisposed) {
        this.drop(id);
      }
    }
    for (const [id, matter] of open) {
      this.seen.set(matter.run, matter);
      this.show(id, matter);
    }
  }

  private drop(id: string): void {
    this.views.get(id)?.dispose();
    this.views.delete(id);
  }

  private show(id: string, matter: Matter): void {
    const cell = this.cellOf(matter, matter.cell);
    const known = this.views.get(id);
    if (cell === null) {
      this.drop(id);
      this.tellDeleted(id, matter);
      return;
    }
    if (known !== undefined && known.parent === cell) {
      known.stand(this.standing(cell, matter));
      return;
    }
    this.drop(id);
    const first = !this.drafts.has(id);
    const draft = this.drafts.get(id) ?? new Draft();
    this.drafts.set(id, draft);
    const view = new ProposalView(matter, draft, this.language, choice => void this.decide(id, choice));
    (cell.layout as PanelLayout).insertWidget(INPUT_WRAPPER + 1, view);
    view.stand(this.standing(cell, matter));
    this.views.set(id, view);
    if (first) {
      measureFrom(matter.run);
    }
  }

  /**
   * By the id that the kernel noted, unless only another cell has the function: the run was resumed from elsewhere, or
   * its cell was cut and pasted.
   */
  private cellOf(matter: Matter | null, id: string): Cell | null {
    const cells = this.panel.content.widgets;
    const known = cells.find(cell => id !== '' && cell.model.id === id) ?? null;
    if (matter === null || (known !== null && this.standing(known, matter).kind !== 'gone')) {
      return known;
    }
    const holders = cells.filter(cell => holds(cell.model.sharedModel.getSource(), matter.baseline));
    if (holders.length === 1) {
      return holders[0] as Cell;
    }
    return id === '' ? this.only(this.link.runs.get(matter.run)?.entry ?? '') : known;
  }

  /** The only cell that defines a function of that name. */
  private only(entry: string): Cell | null {
    const cells = this.panel.content.widgets;
    const definers = cells.filter(cell => functionsOf(cell.model.sharedModel.getSource()).includes(entry));
    return definers.length === 1 ? (definers[0] as Cell) : null;
  }

  private standing(cell: Cell, matter: Matter): Standing {
    const source = cell.model.sharedModel.getSource();
    if (matter.entry === '' || holds(source, matter.baseline)) {
      const why = matter.entry === '' ? '' : sealed(this.panel, cell);
      return why === '' ? { kind: 'same' } : { kind: 'sealed', why };
    }
    const current = functionText(body(source), matter.entry);
    return current === '' || sealed(this.panel, cell) !== '' ? { kind: 'gone' } : { kind: 'changed', current };
  }

  private tellDeleted(id: string, matter: Matter): void {
    const here = this.link.runs.get(matter.run)?.cell ?? matter.cell;
    if (here === '' || this.told.has(id)) {
      return;
    }
    this.told.add(id);
    Notification.warning(
      `The cell of run ${matter.run} was deleted. Its proposal stays open: accept or reject it with ` +
        `%maxkernel accept ${matter.run} or %maxkernel reject ${matter.run}; no cell will be edited.`,
      { autoClose: false }
    );
  }

  private async decide(id: string, choice: Choice): Promise<void> {
    const view = this.views.get(id);
    const draft = this.drafts.get(id);
    const cell = view?.parent as Cell | null;
    if (view === undefined || draft === undefined || cell === null) {
      return;
    }
    const { matter } = view;
    const standing = this.standing(cell, matter);
    const baseline = standing.kind === 'changed' ? standing.current : matter.baseline;
    if (choice.name === 'accept' && standing.kind === 'changed' && this.wishes.confirms() && !(await confirmed(matter))) {
      return;
    }
    const byHunk = standing.kind === 'same' || standing.kind === 'sealed';
    const hunks = byHunk ? draft.chosen(matter.hunks) : null;
    view.pending = true;
    view.say('Sent to the kernel …', 'busy');
    if (choice.name === 'accept' && (standing.kind === 'same' || standing.kind === 'changed')) {
      this.mine.set(matter.run, { cell: cell.model.id, baseline });
    }
    const ack = await this.link.send(matter.request(choice, hunks, draft.remarks()));
    if (view.isDisposed) {
      return;
    }
    view.pending = ack.ok;
    view.say(ack.ok ? 'Taken; the kernel is carrying it out …' : ack.message, ack.ok ? 'busy' : 'bad');
    if (!ack.ok) {
      this.mine.delete(matter.run);
    }
  }

  private slow(): void {
    for (const view of this.views.values()) {
      if (view.node.getAttribute('aria-busy') === 'true') {
        view.say('The kernel is busy: your choice applies when the cell that runs now has ended.', 'busy');
      }
    }
  }

  private decided(_: KernelLink, notice: Decided): void {
    const mine = this.mine.get(notice.run);
    this.mine.delete(notice.run);
    if (!bindsKernel(notice) || mine === undefined) {
      return;
    }
    const cell = this.panel.content.widgets.find(one => one.model.id === mine.cell);
    const written = cell && writeAccepted(this.panel, cell, mine.baseline, notice, this.wishes.below(), () => this.undone(notice.run));
    if (!written) {
      warn(
        `The kernel of run ${notice.run} is bound, but its cell was changed meanwhile and was left as it is; ` +
          `%maxkernel show ${notice.run} has the source.`
      );
      return;
    }
    this.written.get(notice.run)?.dispose();
    this.written.set(notice.run, written);
  }

  /** Ctrl+Z brought the exact earlier text back: the reference is bound again too. */
  private undone(run: string): void {
    this.written.get(run)?.dispose();
    this.written.delete(run);
    void this.link.send({ command: 'maxkernel:control', run, action: 'undo' }).then(ack => {
      if (!ack.ok) {
        warn(ack.message);
      }
    });
  }
}

function key(matter: Matter): string {
  return `${matter.run}/${matter.id}`;
}

async function confirmed(matter: Matter): Promise<boolean> {
  const result = await showDialog({
    title: `Replace ${matter.entry} as it is now?`,
    body: 'The cell was changed since the kernel was proposed; its checks were made against the earlier text.',
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: 'Replace' })]
  });
  return result.button.accept;
}

/** From the notice's arrival to the end of the frame that shows it, on the page's own timeline. */
function measureFrom(run: string): void {
  const marks = performance.getEntriesByName(ARRIVED, 'mark') as PerformanceMark[];
  const arrived = marks.filter(mark => mark.detail === run).pop();
  if (arrived !== undefined) {
    requestAnimationFrame(() =>
      setTimeout(() => performance.measure('maxkernel-proposal', { start: arrived.startTime, end: performance.now() }))
    );
  }
}
