import { Notification } from '@jupyterlab/apputils';
import { PathExt } from '@jupyterlab/coreutils';
import type { ServerConnection } from '@jupyterlab/services';
import { Widget } from '@lumino/widgets';

import { icon } from './commands';
import type { RunInfo } from './contract';
import { button, element, labelled } from './dom';
import type { Request } from './link';
import { gain, lineOf, matches, Row, rowsOf, runsOnDisk, spend } from './runs';
import type { Sessions } from './sessions';

export interface Opener {
  reveal(row: Row): Promise<void>;
  report(row: Row): Promise<void>;
}

/** All runs of the open notebooks and of the current one's project. */
export class RunsSidebar extends Widget {
  private filter = document.createElement('input');
  private list = element('ul', 'mkl-runs');
  private empty = element('p', 'mkl-empty');
  private onDisk: RunInfo[] = [];
  private folder: string | null = null;

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

  protected override onAfterShow(): void {
    void this.read(true);
  }

  private refresh(): void {
    void this.read(false);
    this.draw();
  }

  /** From the disk once per folder, or when asked. */
  private async read(again: boolean): Promise<void> {
    const path = this.sessions.current?.panel.context.path;
    const folder = path === undefined ? '' : PathExt.dirname(path);
    if (!this.isVisible || (folder === this.folder && !again)) {
      return;
    }
    this.folder = folder;
    this.onDisk = await runsOnDisk(folder, this.server);
    this.draw();
  }

  private draw(): void {
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

  private actions(row: Row): [string, () => void][] {
    const { run, session } = row;
    const actions: [string, () => void][] = [];
    const control = (action: (Request & { command: 'maxkernel:control' })['action']) => () =>
      void this.send(row, { command: 'maxkernel:control', run: run.id, action });
    if (session !== null) {
      actions.push(['Show cell', () => void this.opener.reveal(row)]);
      actions.push(['Report', () => void this.opener.report(row)]);
    }
    if (session !== null && run.live && !run.ended) {
      actions.push(['Stop', control('stop')]);
      actions.push(run.status === 'paused' ? ['Go on', control('unpause')] : ['Pause', control('pause')]);
      if (run.control === 'auto') {
        actions.push(['Take back', control('takeback')]);
      }
    }
    if (session !== null && !run.live && (!run.ended || ['stopped', 'failed', 'proposed'].includes(run.outcome))) {
      actions.push(['Resume', control('resume')]);
    }
    return actions;
  }

  private async send(row: Row, request: Request): Promise<void> {
    const ack = await row.session?.link?.send(request);
    if (ack !== undefined && !ack.ok) {
      Notification.warning(ack.message);
    }
  }
}
