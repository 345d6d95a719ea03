import type { Hunk } from './contract';

/** A change as CodeMirror's merge package counts it: offsets in the baseline (A) and in the proposal (B). */
export interface Change {
  number: number;
  fromA: number;
  toA: number;
  fromB: number;
  toB: number;
}

/** The kernel's hunks as changes between the two texts. `hunks` are in order and do not overlap. */
export function changesOf(baseline: string, hunks: readonly Hunk[]): Change[] {
  const starts = lineStarts(baseline);
  let shift = 0;
  return hunks.map(hunk => {
    const fromA = starts[hunk.start] ?? baseline.length;
    const toA = starts[hunk.stop] ?? baseline.length;
    const length = hunk.new.reduce((total, line) => total + line.length, 0);
    const change = { number: hunk.number, fromA, toA, fromB: fromA + shift, toB: fromA + shift + length };
    shift += length - (toA - fromA);
    return change;
  });
}

/** Offsets at which lines start, as Python's `splitlines` counts them for texts with \n, and the end. */
function lineStarts(text: string): number[] {
  const starts = [0];
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) {
    starts.push(at + 1);
  }
  if (starts[starts.length - 1] !== text.length) {
    starts.push(text.length);
  }
  return starts;
}

/** The baseline with only the chosen hunks. */
export function withHunks(baseline: string, hunks: readonly Hunk[], chosen: ReadonlySet<number>): string {
  let text = baseline;
  for (const { fromA, toA, number } of changesOf(baseline, hunks).reverse()) {
    const hunk = hunks.find(one => one.number === number) as Hunk;
    if (chosen.has(number)) {
      text = text.slice(0, fromA) + hunk.new.join('') + text.slice(toA);
    }
  }
  return text;
}

/**
 * The function `entry` as it stands in a cell now: from its first decorator to the next statement at column 0.
 * Empty where the cell defines it no longer, or more than once.
 */
export function functionText(source: string, entry: string): string {
  const lines = source.split(/(?<=\n)/);
  const isDef = (line: string) => new RegExp(`^(async\\s+)?def\\s+${entry}\\s*\\(`).test(line);
  const at = lines.findIndex(isDef);
  if (at < 0 || lines.slice(at + 1).some(isDef)) {
    return '';
  }
  let first = at;
  while (first > 0 && /^@/.test(lines[first - 1] as string)) {
    first -= 1;
  }
  let end = at + 1;
  while (end < lines.length && /^(\s|#|[)\]}]|$)/.test(lines[end] as string)) {
    end += 1;
  }
  while (end > at + 1 && /^(\s*$|#)/.test(lines[end - 1] as string)) {
    end -= 1;
  }
  return lines.slice(first, end).join('');
}
