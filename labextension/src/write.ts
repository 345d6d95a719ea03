import type { ISharedCell, ISharedCodeCell, ISharedNotebook } from '@jupyter/ydoc';
import type { Cell } from '@jupyterlab/cells';
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { IDisposable } from '@lumino/disposable';

import { applied, magicLine } from './cellsource';
import type { Decided } from './contract';

/** An edit that was written, watched until it is undone. */
export type Written = IDisposable;

/** Which new cells come below an accepted kernel. */
export interface Below {
  reference: boolean;
  tests: boolean;
}

/**
 * Writes the accepted text into the cell and puts what it replaced and its tests into new cells below. Undo in the cell
 * takes them away again. Null, with nothing touched, where the cell no longer holds `baseline`. `onUndo`: the exact
 * earlier text is back.
 */
export function writeAccepted(
  panel: NotebookPanel, cell: Cell, baseline: string, notice: Decided, below: Below, onUndo: () => void
): Written | null {
  const notebook = panel.content.model?.sharedModel;
  const shared = cell.model.sharedModel;
  const before = shared.getSource();
  const after = applied(before, baseline, notice.source);
  if (notebook === undefined || after === null || after === before) {
    return null;
  }
  replace(shared, before, after);
  const tests = (notice as Partial<Decided>).tests ?? ''; // an older kernel sends none
  const sources = [
    below.reference ? referenceCell(before, baseline, notice.run) : '',
    below.tests ? tests : ''
  ].filter(source => source !== '');
  const made = insertBelow(notebook, shared, sources);
  return watch(shared, before, () => {
    for (const [at, one] of [...made.entries()].reverse()) {
      remove(notebook, one, sources[at] as string); // the last first: within an undo the list of cells is not renewed
    }
    onUndo();
  });
}

/** Why nobody may write into the cell; empty where one may. */
export function sealed(panel: NotebookPanel, cell: Cell): string {
  if (panel.content.model?.readOnly === true) {
    return 'This notebook is read-only';
  }
  return cell.readOnly ? 'This cell is read-only' : '';
}

/** One step of the cell's own undo history, and only the text that differs, so that cursors of others stay. */
export function replace(shared: ISharedCell, before: string, after: string): void {
  const history = (shared as unknown as { undoManager?: { stopCapturing(): void } | null }).undoManager;
  let head = 0;
  while (head < before.length && before[head] === after[head]) {
    head += 1;
  }
  let tail = 0;
  const most = Math.min(before.length, after.length) - head;
  while (tail < most && before[before.length - 1 - tail] === after[after.length - 1 - tail]) {
    tail += 1;
  }
  history?.stopCapturing();
  shared.transact(() => shared.updateSource(head, before.length - tail, after.slice(head, after.length - tail)), true);
  history?.stopCapturing();
}

/** Runs as it is: it optimises again, from the reference. */
function referenceCell(before: string, baseline: string, run: string): string {
  const line = magicLine(before) ?? '%%maxkernel auto';
  return `${line}\n# The reference that run ${run} replaced in the cell above.\n${baseline}`;
}

function insertBelow(notebook: ISharedNotebook, shared: ISharedCell, sources: readonly string[]): ISharedCodeCell[] {
  const at = notebook.cells.findIndex(cell => cell.id === shared.id);
  const cells = sources.map(source => ({ cell_type: 'code' as const, source, metadata: { trusted: true } }));
  let made: ISharedCell[] = [];
  notebook.transact(() => {
    made = notebook.insertCells(at + 1, cells);
  }, true);
  return made as ISharedCodeCell[];
}

/** Only if nobody has written in it since. */
function remove(notebook: ISharedNotebook, kept: ISharedCodeCell, source: string): void {
  const at = notebook.cells.findIndex(cell => cell.id === kept.id);
  if (at >= 0 && kept.getSource() === source) {
    notebook.deleteCell(at);
  }
}

function watch(shared: ISharedCell, before: string, onBack: () => void): Written {
  let disposed = false;
  const look = () => {
    if (!disposed && shared.getSource() === before) {
      onBack();
    }
  };
  shared.changed.connect(look);
  return {
    get isDisposed() {
      return disposed;
    },
    dispose() {
      disposed = true;
      shared.changed.disconnect(look);
    }
  };
}
