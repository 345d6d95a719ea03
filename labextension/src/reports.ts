import { type ICodeCellModel, isCodeCellModel } from '@jupyterlab/cells';
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { IDisposable } from '@lumino/disposable';

import type { RunInfo } from './contract';
import type { KernelLink } from './link';

const VIEW = 'application/vnd.jupyter.widget-view+json';
const LINE = /^maxkernel run (\S+): /;

/** A live panel among a notebook's outputs, as it is stored. */
interface Shown {
  run: string;
  model: string; // the widget's id
  cell: ICodeCellModel;
  at: number; // its place among the cell's outputs
}

/**
 * Puts the report where a live panel stands that the kernel reaches no more: the display ids of a page are lost when it is
 * reloaded, and a restarted kernel knows none. Without it such a cell would be saved without its report.
 */
export class Reports implements IDisposable {
  private inherited: Set<string>; // panels that were there when this page met the kernel
  private asked = new Set<string>();
  private wasOpen = false;

  constructor(private panel: NotebookPanel, private link: KernelLink) {
    this.inherited = new Set(this.shown().map(one => one.model));
    link.changed.connect(this.changed, this);
  }

  get isDisposed(): boolean {
    return this._disposed;
  }
  private _disposed = false;

  dispose(): void {
    this._disposed = true;
    this.link.changed.disconnect(this.changed, this);
  }

  private changed(): void {
    const open = this.link.state === 'open';
    if (open && !this.wasOpen) {
      void this.compare();
    }
    this.wasOpen = open;
    for (const run of this.link.runs.values()) {
      if (run.ended) {
        this.replace(run.id, one => this.inherited.has(one.model));
      }
    }
  }

  /** The kernel has just been met: panels of runs that it does not drive are dead. */
  private async compare(): Promise<void> {
    if (this.shown().length === 0) {
      return;
    }
    const ack = await this.link.send({ command: 'maxkernel:runs' });
    const known: RunInfo[] = ack.data?.kind === 'runs' ? ack.data.runs : [];
    for (const run of known.filter(one => !one.live)) {
      this.replace(run.id, () => !this.link.runs.has(run.id));
    }
  }

  private shown(): Shown[] {
    const cells = this.panel.content.widgets.map(cell => cell.model).filter(isCodeCellModel);
    return cells.flatMap(cell => cell.outputs.toJSON().flatMap((output, at) => {
      const data = (output.data ?? {}) as { [VIEW]?: { model_id?: string }; 'text/plain'?: string };
      const run = LINE.exec(data['text/plain'] ?? '')?.[1];
      const model = data[VIEW]?.model_id;
      return run !== undefined && model !== undefined ? [{ run, model, cell, at }] : [];
    }));
  }

  private replace(run: string, dead: (one: Shown) => boolean): void {
    if (this.asked.has(run) || !this.shown().some(one => one.run === run && dead(one))) {
      return;
    }
    this.asked.add(run);
    void this.link.send({ command: 'maxkernel:report', run }).then(ack => {
      this.asked.delete(run);
      if (ack.ok && ack.data?.kind === 'report' && !this._disposed) {
        const report = fragment(ack.data.html, run);
        this.shown().filter(one => one.run === run && dead(one)).forEach(one => put(one, report));
      }
    });
  }
}

function put({ cell, at }: Shown, data: Record<string, string>): void {
  cell.outputs.set(at, { output_type: 'display_data', data, metadata: {} });
}

/** What the kernel itself would have put there: the page's article with its style, and the line of text. */
export function fragment(page: string, run: string): Record<string, string> {
  const parsed = new DOMParser().parseFromString(page, 'text/html');
  const article = parsed.querySelector('article');
  const style = parsed.querySelector('body style');
  const status = article?.querySelector('.mkn-status')?.textContent ?? '';
  return {
    'text/html': `${style?.outerHTML ?? ''}${article?.outerHTML ?? ''}`,
    'text/plain': `maxkernel run ${run}: ${status}`
  };
}
