import { readFileSync } from 'node:fs';
import { Signal } from '@lumino/signaling';
import type { KernelMessage } from '@jupyterlab/services';
import { describe, expect, it } from 'vitest';
import { type Command, type Decided, type Notice, type Propose, type Question, VERSION } from '../src/contract';
import { type CommLike, KernelLink } from '../src/link';
import { Draft, fromProposal, fromQuestion } from '../src/matter';
import { withHunks } from '../src/hunks';

/** The same file that the kernel's own tests compare with. */
const GOLDEN = JSON.parse(
  readFileSync(new URL('../../tests/magics/golden/lab_contract_v1.messages.json', import.meta.url), 'utf8')
) as { commands: Command[]; notices: Notice[] };

function noticed<K extends Notice['notice']>(kind: K): Extract<Notice, { notice: K }> {
  return GOLDEN.notices.find(one => one.notice === kind) as Extract<Notice, { notice: K }>;
}

function linked(): { link: KernelLink; sent: Command[]; say: (notice: Notice) => void } {
  const sent: Command[] = [];
  const comm: CommLike = {
    onMsg: () => undefined, onClose: () => undefined, open: () => undefined, close: () => undefined,
    dispose: () => undefined, send: data => sent.push(data)
  };
  const link = new KernelLink({ createComm: () => comm, iopubMessage: new Signal<object, KernelMessage.IIOPubMessage>({}) });
  link.wake();
  return { link, sent, say: notice => void comm.onMsg({ content: { data: notice } } as never) };
}

describe('the golden messages', () => {
  it('are sent as they are written', () => {
    const { link, sent } = linked();
    for (const { id, version, ...request } of GOLDEN.commands) {
      expect(version).toBe(VERSION);
      void link.send(request, id);
    }
    expect(sent.slice(1)).toEqual(GOLDEN.commands);
  });

  it('are each understood', () => {
    const { link, say } = linked();
    const decided: Decided[] = [];
    link.decided.connect((_, notice) => decided.push(notice));
    const welcome = GOLDEN.notices.find(one => one.notice === 'maxkernel:ack' && one.data?.kind === 'welcome');
    expect(welcome).toBeDefined();
    say(welcome as Notice);
    expect(link.state).toBe('open');
    say(noticed('maxkernel:propose'));
    say(noticed('maxkernel:question'));
    expect([link.proposals.size, link.questions.size]).toEqual([1, 1]);
    say(noticed('maxkernel:run'));
    expect(link.runs.size).toBe(1);
    say(noticed('maxkernel:decided'));
    expect(decided).toHaveLength(1);
    expect(link.proposals.size).toBe(0);
  });

  it('make a proposal whose hunks lead to the proposed text', () => {
    const offer: Propose = noticed('maxkernel:propose');
    const matter = fromProposal(offer);
    expect(withHunks(offer.baseline, matter.hunks, new Set(matter.hunks.map(hunk => hunk.number)))).toBe(offer.proposed);
    const draft = new Draft();
    draft.comment = ' why ';
    draft.comments.set(1, 'b').set(0, 'a');
    draft.rejected.add(0);
    expect(draft.remarks()).toBe('why\nchange 1: a\nchange 2: b');
    const [accept, reject] = matter.choices;
    expect(accept && matter.request(accept, draft.chosen(matter.hunks), '')).toMatchObject({ accepted: true });
    expect(reject && matter.request(reject, [0], 'no')).toMatchObject({ accepted: false, hunks: null, comment: 'no' });
  });

  it('show a question in the cell only where it has a patch', () => {
    const asked: Question = noticed('maxkernel:question');
    expect(fromQuestion({ ...asked, hunks: [] })).toBeNull();
    const matter = fromQuestion({ ...asked, hunks: noticed('maxkernel:propose').hunks });
    expect(matter?.choices.filter(choice => choice.primary).map(choice => choice.name)).toEqual([asked.default]);
  });
});
