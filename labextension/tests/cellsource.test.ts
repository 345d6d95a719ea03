import { describe, expect, it } from 'vitest';
import {
  applied, body, functionsOf, holds, isCandidate, magicLine, modeOf, optionsOf, quoted, withMagic
} from '../src/cellsource';

const CELL = 'import jax\n\ndef f(x):\n    return x + 1\n';

describe('a cell', () => {
  it('is a candidate when it defines a function', () => {
    expect(functionsOf(`${CELL}\ndef create_inputs(key):\n    return ()\n    def inner(): pass\n`)).toEqual(['f']);
    expect(isCandidate(CELL)).toBe(true);
    expect(isCandidate('x = 1')).toBe(false);
    expect(isCandidate('async def f(x):\n    return x')).toBe(false);
    expect(isCandidate(`%%time\n${CELL}`)).toBe(false);
    expect(isCandidate(`%%maxkernel auto\n${CELL}`)).toBe(true);
  });

  it('gets a magic line, once, and loses it again', () => {
    const marked = withMagic(CELL, 'auto', { '--chip': 'v5e' });
    expect(marked).toBe(`%%maxkernel auto --chip v5e\n${CELL}`);
    expect(withMagic(marked, 'hitl')).toBe(`%%maxkernel hitl\n${CELL}`);
    expect(body(marked)).toBe(CELL);
    expect(magicLine(`\n\n${marked}`)).toBe('%%maxkernel auto --chip v5e');
    expect(withMagic(`\n# mine\n\n${marked}`, 'auto')).toBe(`%%maxkernel auto\n\n# mine\n\n${CELL}`);
    expect(magicLine(`x = 1\n${marked}`)).toBe(null);
  });
});

describe('options', () => {
  it('come back as they were written', () => {
    for (const value of ['v6e', '20 candidates, $2', 'x: bf16[8,8], w: f32[8]', 'it\'s "so"', 'a\\b c', "o'clock"]) {
      const line = magicLine(withMagic(CELL, 'search', { '--shapes': value })) as string;
      expect(optionsOf(line)).toEqual({ '--shapes': [value] });
      expect(modeOf(line)).toBe('search');
    }
    expect(quoted('plain')).toBe('plain');
  });

  it('may be given again, with = or alone', () => {
    const line = '%%maxkernel --case "a: f32[8]" --case=b --flag';
    expect(optionsOf(line)).toEqual({ '--case': ['a: f32[8]', 'b'], '--flag': [''] });
    expect(magicLine(withMagic('', 'auto', { '--case': ['a', 'b'] }))).toBe('%%maxkernel auto --case a --case b');
  });
});

describe('an accepted edit', () => {
  const baseline = 'def f(x):\n    return x + 1\n';

  it('replaces exactly the function, and the magic line goes', () => {
    const cell = `%%maxkernel auto\nimport jax\n\n${baseline}y = 2\n`;
    expect(applied(cell, baseline, 'def f(x):\n    return x\n')).toBe('import jax\n\ndef f(x):\n    return x\ny = 2\n');
  });

  it('does not depend on a last line end', () => {
    const cell = `%%maxkernel auto\n${baseline}`.trimEnd();
    expect(applied(cell, baseline, 'def f(x):\n    return x\n')).toBe('def f(x):\n    return x');
  });

  it('never touches a cell that was changed since', () => {
    expect(applied('def f(x):\n    return x + 2\n', baseline, 'anything')).toBeNull();
    expect(applied(`${baseline}${baseline}`, baseline, 'anything')).toBeNull();
    expect(holds(`%%maxkernel\n${baseline}`, baseline)).toBe(true);
    expect(holds('', '')).toBe(false);
    expect(holds(`${baseline.trimEnd()} + 41`, baseline)).toBe(false);
    expect(holds(`${baseline}\n    more = 1\n`, baseline)).toBe(false);
    expect(holds(`x = "${baseline}"`, baseline)).toBe(false);
    expect(holds(`${baseline}\n# about y\ny = 1\n`, baseline)).toBe(true);
  });
});
