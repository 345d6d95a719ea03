import { describe, expect, it } from 'vitest';
import type { RunInfo } from '../src/contract';
import { actionsOf, gain, labelOf, lineOf, matches, rowsOf, spend } from '../src/runs';

const RUN: RunInfo = {
  id: 'f-1', mode: 'auto', author: 'recipes', entry: 'f', chip: 'v6e', status: 'running', outcome: '', reason: '',
  doing: 'compiling', waits: '', best: '', speedup: null, evidence: '', dollars: 0, tokens: 0, judged: 0,
  control: 'person', live: true, ended: false, cell: ''
};
const run = (more: Partial<RunInfo>): RunInfo => ({ ...RUN, ...more });
const session = (...runs: RunInfo[]): never => ({ link: { runs: new Map(runs.map(one => [one.id, one])) } }) as never;

describe('the list of runs', () => {
  it('has the newest first and believes the kernel before the disk', () => {
    const disk = [run({ id: 'f-1', live: false }), run({ id: 'g-1', live: false }), run({ id: 'g-1', status: 'newer' })];
    const rows = rowsOf([session(run({ id: 'f-1' }), run({ id: 'h-1' }))], disk);
    expect(rows.map(row => [row.run.id, row.run.live, row.session !== null])).toEqual([
      ['h-1', true, true], ['g-1', true, false], ['f-1', true, true]
    ]);
    expect(rows[1]?.run.status).toBe('newer');
  });

  it('is filtered by every word', () => {
    const row = { run: run({ outcome: 'accepted' }), session: null };
    expect(matches(row, 'ACC f-')).toBe(true);
    expect(matches(row, 'accepted hitl')).toBe(false);
    expect(matches(row, '')).toBe(true);
  });

  it('says in one line what a run does, gained and spent', () => {
    expect(lineOf(run({}))).toBe('compiling');
    expect(lineOf(run({ waits: 'question' }))).toBe('a question waits for you');
    expect(lineOf(run({ ended: true, outcome: 'stopped' }))).toBe('stopped');
    expect([gain(run({ speedup: 2, evidence: 'modelled' })), gain(RUN)]).toEqual(['2.00x modelled', '']);
    expect([spend(run({ dollars: 1.5, judged: 3 })), spend(RUN)]).toEqual(['$1.50, 3 judged', '']);
  });
});

describe('what may be done with a run', () => {
  it.each<[string, Partial<RunInfo>, string[]]>([
    ['one at work', {}, ['stop', 'pause', 'takeback']],
    ['a paused one', { status: 'paused', mode: 'hitl' }, ['stop', 'unpause']],
    ['one handed over', { mode: 'hitl', control: 'auto' }, ['stop', 'pause', 'takeback']],
    ['one that a dead kernel left', { live: false, status: 'interrupted' }, ['resume', 'takeback']],
    ['one of steps that a dead kernel left', { live: false, status: 'interrupted', mode: 'hitl' }, ['resume']],
    ['one that kept the reference', { live: false, ended: true, outcome: 'kept-reference' }, ['takeback']],
    ['one that another process works on', { live: false, status: 'running in process 77' }, []],
    ['a stopped one', { live: false, ended: true, outcome: 'stopped' }, ['resume', 'takeback']],
    ['a finished one', { live: false, ended: true, outcome: 'accepted' }, []]
  ])('%s', (_, more, actions) => {
    expect(actionsOf(run(more))).toEqual(actions);
  });

  it('is named by what it means for the run', () => {
    expect(labelOf('takeback', run({ mode: 'hitl' }))).toBe('Take back');
    expect(labelOf('takeback', RUN)).toBe('Continue in HITL');
  });
});
