import { describe, expect, it } from 'vitest';
import type { Hunk } from '../src/contract';
import { changesOf, functionText, withHunks } from '../src/hunks';

const BASE = 'a\nb\nc\nd\n';
const hunk = (number: number, start: number, stop: number, added: string[]): Hunk => ({
  number, start, stop, old: BASE.split(/(?<=\n)/).slice(start, stop), new: added
});
const HUNKS = [hunk(0, 0, 1, ['A\n', 'A2\n']), hunk(1, 2, 2, ['new\n']), hunk(2, 3, 4, [])];
const ALL = 'A\nA2\nb\nnew\nc\n';

describe('hunks', () => {
  it('give the proposal, the baseline, or what lies between', () => {
    expect(withHunks(BASE, HUNKS, new Set([0, 1, 2]))).toBe(ALL);
    expect(withHunks(BASE, HUNKS, new Set())).toBe(BASE);
    expect(withHunks(BASE, HUNKS, new Set([1]))).toBe('a\nb\nnew\nc\nd\n');
  });

  it('are changes in both texts', () => {
    for (const { number, fromA, toA, fromB, toB } of changesOf(BASE, HUNKS)) {
      expect(BASE.slice(fromA, toA)).toBe(HUNKS[number]?.old.join(''));
      expect(ALL.slice(fromB, toB)).toBe(HUNKS[number]?.new.join(''));
    }
  });

  it('reach the end of a text without a last line end', () => {
    const one: Hunk = { number: 0, start: 1, stop: 2, old: ['b'], new: ['B\n', 'c'] };
    expect(withHunks('a\nb', [one], new Set([0]))).toBe('a\nB\nc');
  });
});

describe('the function in a cell', () => {
  it('is found with decorators, to the next statement', () => {
    const text = '@jax.jit\ndef f(\n    x,\n):\n    return x\n\n    # inside\n';
    expect(functionText(`import jax\n\n${text}\n# about y\ny = f(1)\n`, 'f')).toBe(text);
    expect(functionText(text, 'f')).toBe(text);
  });

  it('is nothing when it is gone or there twice', () => {
    expect(functionText('x = 1\n', 'f')).toBe('');
    expect(functionText('def f(x):\n  pass\ndef f(y):\n  pass\n', 'f')).toBe('');
  });
});
