import { YNotebook } from '@jupyter/ydoc';
import { describe, expect, it, vi } from 'vitest';
import type { Decided } from '../src/contract';
import { writeAccepted } from '../src/write';

const REFERENCE = 'def f(x):\n    return x\n';
const KERNEL = 'def f(x):\n    return x + 0\n';
const TESTS = '# Tests of f\ntest_f()';
const NOTICE = { run: 'f-1', source: KERNEL, tests: TESTS } as Decided;
const KEPT = `%%maxkernel auto\n# The reference that run f-1 replaced in the cell above.\n${REFERENCE}`;
const BOTH = { reference: true, tests: true };

/** The shared model of a real document, as a panel and a cell hand it out. */
function opened(source: string, below = BOTH, notice = NOTICE): { notebook: YNotebook; written: ReturnType<typeof writeAccepted>; onUndo: () => void } {
  const notebook = new YNotebook({ disableDocumentWideUndoRedo: true });
  const cell = notebook.insertCell(0, { cell_type: 'code', source });
  const onUndo = vi.fn<() => void>();
  const panel = { content: { model: { sharedModel: notebook } } };
  const written = writeAccepted(panel as never, { model: { sharedModel: cell } } as never, REFERENCE, notice, below, onUndo);
  return { notebook, written, onUndo };
}

const sources = (notebook: YNotebook): string[] => notebook.cells.map(cell => cell.getSource());

describe('an accepted edit', () => {
  it('is one step of the cell, and undo brings the exact text back and takes the new cells away', () => {
    const before = `%%maxkernel auto\nimport jax\n\n${REFERENCE}`;
    const { notebook, written, onUndo } = opened(before);
    expect(written).not.toBeNull();
    expect(sources(notebook)).toEqual([
      `import jax\n\n${KERNEL}`, KEPT, TESTS
    ]);
    notebook.cells[0]?.undo();
    expect(sources(notebook)).toEqual([before]);
    expect(onUndo).toHaveBeenCalledTimes(1);
  });

  it.each([
    [{ reference: true, tests: false }, [KEPT]],
    [{ reference: false, tests: true }, [TESTS]],
    [{ reference: false, tests: false }, []]
  ])('puts only the cells below that are wanted: %o', (below, wanted) => {
    const { notebook } = opened(`%%maxkernel auto\n${REFERENCE}`, below);
    expect(sources(notebook).slice(1)).toEqual(wanted);
    notebook.cells[0]?.undo();
    expect(sources(notebook)).toHaveLength(1);
  });

  it('has no cell of tests where the kernel could write none, or is older than they are', () => {
    for (const tests of ['', undefined]) {
      const { notebook } = opened(REFERENCE, BOTH, { ...NOTICE, tests } as Decided);
      expect(sources(notebook)).toHaveLength(2);
    }
  });

  it('keeps cells that came below meanwhile, and a reference cell that someone wrote in', () => {
    const { notebook } = opened(REFERENCE);
    notebook.insertCell(1, { cell_type: 'code', source: 'mine' });
    notebook.cells[2]?.updateSource(0, 0, '# kept\n');
    notebook.cells[0]?.undo();
    expect(sources(notebook)[0]).toBe(REFERENCE);
    expect(sources(notebook).slice(1)).toEqual(['mine', expect.stringContaining('# kept') as string]);
  });

  it('is not written over a text that is not the baseline', () => {
    const { notebook, written } = opened('def f(x):\n    return x + 41\n');
    expect(written).toBeNull();
    expect(sources(notebook)).toEqual(['def f(x):\n    return x + 41\n']);
  });
});
