import { Change as Merged, unifiedMergeView } from '@codemirror/merge';
import { EditorState, Extension, StateField, Text } from '@codemirror/state';
import { Decoration, DecorationSet, EditorView, lineNumbers, WidgetType } from '@codemirror/view';
import { jupyterTheme } from '@jupyterlab/codemirror';

import type { Change } from './hunks';

/** The two texts, where they differ, and what stands above each difference. */
export interface Shown {
  baseline: string;
  proposed: string;
  changes: readonly Change[];
  bar(number: number): HTMLElement;
}

class Bar extends WidgetType {
  constructor(private element: HTMLElement) {
    super();
  }
  override toDOM(): HTMLElement {
    return this.element;
  }
  override eq(other: Bar): boolean {
    return other.element === this.element;
  }
  /** What is not on screen is laid out by this. */
  override get estimatedHeight(): number {
    return 34;
  }
  override ignoreEvent(): boolean {
    return true;
  }
}

/** A read-only merge view: deletions shown in place, unchanged stretches folded, a bar above every change. */
export function mergeView(parent: HTMLElement, shown: Shown, language: Extension, label: string): EditorView {
  return new EditorView({
    parent,
    doc: lines(shown.proposed),
    extensions: [
      EditorState.lineSeparator.of('\n'),
      jupyterTheme,
      language,
      lineNumbers(),
      EditorView.lineWrapping,
      EditorState.readOnly.of(true),
      EditorView.editable.of(false),
      EditorView.contentAttributes.of({ 'aria-label': label, tabindex: '0' }),
      bars(shown),
      unifiedMergeView({
        original: lines(shown.baseline),
        mergeControls: false,
        gutter: true,
        syntaxHighlightDeletions: true,
        collapseUnchanged: { margin: 3, minSize: 8 },
        diffConfig: { override: () => shown.changes.map(c => new Merged(c.fromA, c.toA, c.fromB, c.toB)) }
      })
    ]
  });
}

/** Every character counts, a carriage return too: changes are offsets in these very texts. */
function lines(text: string): Text {
  return Text.of(text.split('\n'));
}

function bars(shown: Shown): Extension {
  return StateField.define<DecorationSet>({
    create: state => {
      const all = shown.changes.map(change => {
        const line = state.doc.lineAt(Math.min(change.fromB, state.doc.length));
        return Decoration.widget({ widget: new Bar(shown.bar(change.number)), block: true, side: -2 }).range(line.from);
      });
      return Decoration.set(all, true);
    },
    update: (set, transaction) => set.map(transaction.changes),
    provide: field => EditorView.decorations.from(field)
  });
}

/** Scrolls to a change and puts the cursor of a keyboard user on its bar. */
export function reveal(view: EditorView, change: Change, bar: HTMLElement): void {
  view.dispatch({ effects: EditorView.scrollIntoView(Math.min(change.fromB, view.state.doc.length), { y: 'center' }) });
  view.requestMeasure({
    read: () => undefined,
    write: () => bar.querySelector<HTMLElement>('button')?.focus({ preventScroll: false })
  });
}
