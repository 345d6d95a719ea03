import { Dialog, showDialog } from '@jupyterlab/apputils';
import { PathExt } from '@jupyterlab/coreutils';
import type { ServerConnection } from '@jupyterlab/services';
import { Widget } from '@lumino/widgets';

import { icon, load } from './commands';
import type { RunInfo } from './contract';
import { button, element, labelled } from './dom';
import { warn } from './notify';
import { type Action, actionsOf, gain, labelOf, lineOf, matches, type Row, rowsOf, runsOfKernel, runsOnDisk, spend } from './runs';
import type { Session, Sessions } from './sessions';

export interface Opener {
  reveal(row: Row): Promise<void>;
  report(row: Row): Promise<void>;
  /** Whether a person wants to be asked before a run is stopped. */
  confirms(): boolean;
}

/** All runs of the open notebooks and of the current one's project. */
export class RunsSidebar extends Widget {
  private filter = document.createElement('input');
  private list = element('ul', 'mkl-runs');
  private empty = element('p', 'mkl-empty');
  private onDisk: RunInfo[] = [];
  private seen = '';

  constructor(
    private sessions: Sessions,
    private server: ServerConnection.ISettings,
    private opener: Opener
  ) {
    super();
    this.id = 'maxkernel-runs';
    this.title.icon = icon;
    this.title.caption = 'MaxKernel runs';
    this.addClass('mkl-sidebar');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', 'MaxKernel runs');
    this.filter.type = 'search';
    this.filter.placeholder = 'name, mode, outcome';
    this.filter.addEventListener('input', () => this.draw());
    const head = element('div', 'mkl-sidebar-head');
    head.append(element('h2', '', 'MaxKernel runs'), button('Refresh', () => void this.read(true)));
    this.node.append(head, labelled('Filter', this.filter), this.list, this.empty);
    sessions.changed.connect(this.refresh, this);
    this.draw();
  }

  protected override onAfterAttach(): void {
    this.draw();
  }

  protected override onAfterShow(): void {
    this.draw();
    void this.read(true);
  }

  private refresh(): void {
    void this.read(false);
    this.draw();
  }

  /** From the disk, once per folder and whenever a kernel comes or goes, or when asked. */
  private async read(again: boolean): Promise<void> {
    const { current } = this.sessions;
    const folder = current === null ? '' : PathExt.dirname(current.panel.context.path);
    const wanted = [folder, ...this.sessions.all.map(session => session.link?.state ?? '')].join(' ');
    if (!this.isVisible || (wanted === this.seen && !again)) {
      return;
    }
    this.seen = wanted;
    const known = await Promise.all([runsOfKernel(current), runsOnDisk(folder, this.server)]);
    if (wanted === this.seen) {
      this.onDisk = known.flat();
      this.draw();
    }
  }

  private draw(): void {
    if (!this.isVisible) {
      return; // drawn when it is shown
    }
    const focused = (document.activeElement as HTMLElement | null)?.dataset['mkl'];
    const rows = rowsOf(this.sessions.all, this.onDisk).filter(row => matches(row, this.filter.value));
    this.list.replaceChildren(...rows.map(row => this.row(row)));
    this.empty.textContent =
      rows.length > 0 ? '' : this.filter.value !== '' ? 'No run matches.' : 'No runs yet: optimise a cell that defines a function.';
    if (focused !== undefined) {
      this.list.querySelector<HTMLElement>(`[data-mkl="${CSS.escape(focused)}"]`)?.focus();
    }
  }

  private row(row: Row): HTMLElement {
    const { run } = row;
    const item = element('li', `mkl-run ${run.waits !== '' ? 'mkl-waits' : ''}`);
    item.append(
      element('div', 'mkl-run-name', `${run.id} · ${run.mode}`),
      element('div', 'mkl-run-line', lineOf(run)),
      element('div', 'mkl-run-numbers', [gain(run), spend(run)].filter(text => text !== '').join(' · '))
    );
    const actions = element('div', 'mkl-run-actions');
    for (const [label, act] of this.actions(row)) {
      const made = button(label, act, '', `${label} ${run.id}`);
      made.dataset['mkl'] = `${run.id}/${label}`;
      actions.append(made);
    }
    item.append(actions);
    return item;
  }

  /** A run that only the disk knows is reached through the current notebook's kernel. */
  private actions(row: Row): [string, () => void][] {
    const { run } = row;
    const session = row.session ?? this.sessions.current;
    if (session === null) {
      return [];
    }
    const reached = { run, session };
    return [
      ['Show cell', () => void this.opener.reveal(reached)],
      ['Report', () => void this.reach(session, () => this.opener.report(reached))],
      ...actionsOf(run).map((action): [string, () => void] => [
        labelOf(action, run), () => void this.reach(session, () => this.control(session, run, action))
      ])
    ];
  }

  private async reach(session: Session, act: () => Promise<void>): Promise<void> {
    if (await load(session)) {
      await act();
    }
  }

  private async control(session: Session, run: RunInfo, action: Action): Promise<void> {
    if (action === 'stop' && this.opener.confirms() && !(await confirmed(run))) {
      return;
    }
    const ack = await session.link?.send({ command: 'maxkernel:control', run: run.id, action });
    if (ack?.ok === false) {
      warn(ack.message);
    }
  }
}

async function confirmed(run: RunInfo): Promise<boolean> {
  const result = await showDialog({
    title: `Stop run ${run.id}?`,
    body: 'What it has found is kept, and Resume goes on from there.',
    buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: 'Stop' })]
  });
  return result.button.accept;
}
