import type { ISharedCell, ISharedCodeCell, ISharedNotebook } from '@jupyter/ydoc';
import type { Cell } from '@jupyterlab/cells';
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { IDisposable } from '@lumino/disposable';

import { applied, magicLine } from './cellsource';
import type { Decided } from './contract';

/** An edit that was written, watched until it is undone. */
export type Written = IDisposable;

/**
 * Writes the accepted text into the cell and puts the reference into a new cell below, as one undoable step each.
 * Null, with nothing touched, where the cell no longer holds `baseline`. `onUndo`: the exact earlier text is back.
 */
export function writeAccepted(
  panel: NotebookPanel, cell: Cell, baseline: string, notice: Decided, onUndo: () => void
): Written | null {
  const notebook = panel.content.model?.sharedModel;
  const shared = cell.model.sharedModel;
  const before = shared.getSource();
  const after = applied(before, baseline, notice.source);
  if (notebook === undefined || after === null || after === before) {
    return null;
  }
  replace(shared, before, after);
  const source = referenceCell(before, baseline, notice.run);
  const kept = keepReference(notebook, shared, source);
  return watch(shared, before, () => {
    remove(notebook, kept, source);
    onUndo();
  });
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

function keepReference(notebook: ISharedNotebook, shared: ISharedCell, source: string): ISharedCodeCell {
  const at = notebook.cells.findIndex(cell => cell.id === shared.id);
  let made: ISharedCell | undefined;
  notebook.transact(() => {
    made = notebook.insertCell(at + 1, { cell_type: 'code', source, metadata: { trusted: true } });
  }, true);
  return made as ISharedCodeCell;
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
