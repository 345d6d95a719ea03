import type { KernelMessage } from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';
import { describe, expect, it, vi } from 'vitest';
import type { Command, Decided, RunInfo } from '../src/contract';
import { KernelLink, type CommLike } from '../src/link';

class FakeComm implements CommLike {
  onMsg: CommLike['onMsg'] = () => undefined;
  onClose: CommLike['onClose'] = () => undefined;
  sent: Command[] = [];
  open(): void {}
  close(): void {}
  dispose(): void {}
  send(data: never): void {
    this.sent.push(data);
  }
  say(data: unknown): void {
    void this.onMsg({ content: { data } } as never);
  }
}

class FakeKernel {
  comms: FakeComm[] = [];
  iopubMessage = new Signal<this, KernelMessage.IIOPubMessage>(this);
  createComm(): FakeComm {
    this.comms.push(new FakeComm());
    return this.comms[this.comms.length - 1] as FakeComm;
  }
  ran(code: string): void {
    this.iopubMessage.emit({ header: { msg_type: 'execute_input' }, content: { code } } as never);
    this.iopubMessage.emit({ header: { msg_type: 'status' }, content: { execution_state: 'idle' } } as never);
  }
}

const idOf = (comm: FakeComm, at: number) => (comm.sent[at] as Command).id;
const ack = (id: string, data: unknown = null) => ({ version: 1, notice: 'maxkernel:ack', id, ok: true, message: '', data });
const run = (waits: string) => ({ id: 'f-1', waits, live: true, ended: false }) as unknown as RunInfo;

function opened() {
  const kernel = new FakeKernel();
  const link = new KernelLink(kernel);
  link.wake();
  const comm = kernel.comms[0] as FakeComm;
  comm.say(ack(idOf(comm, 0), { kind: 'welcome', version: 1, package: '0.1.0', modes: [], options: [] }));
  return { kernel, link, comm };
}

describe('the link to a kernel', () => {
  it('says hello once, when a cell that names maxkernel has ended', () => {
    const kernel = new FakeKernel();
    const link = new KernelLink(kernel);
    kernel.ran('1 + 1');
    expect(kernel.comms).toHaveLength(0);
    kernel.ran('%load_ext maxkernel_nb');
    kernel.ran('%maxkernel list');
    expect(kernel.comms).toHaveLength(1);
    expect((kernel.comms[0] as FakeComm).sent.map(m => m.command)).toEqual(['maxkernel:hello']);
    expect(link.state).toBe('opening');
  });

  it('keeps proposals until they are decided', () => {
    const { link, comm } = opened();
    const decided = vi.fn<(notice: Decided) => void>();
    link.decided.connect((_, notice) => decided(notice));
    comm.say({ version: 1, notice: 'maxkernel:propose', run: 'f-1', proposal: 'p1' });
    comm.say({ version: 1, notice: 'maxkernel:run', run: run('proposal') });
    expect(link.proposals.get('f-1')?.proposal).toBe('p1');
    comm.say({ version: 1, notice: 'maxkernel:decided', run: 'f-1', source: 'new' });
    expect(link.proposals.size).toBe(0);
    expect(decided.mock.calls[0]?.[0].source).toBe('new');
  });

  it('gives each command its own ack', async () => {
    const { link, comm } = opened();
    const first = link.send({ command: 'maxkernel:control', run: 'f-1', action: 'stop' });
    const second = link.send({ command: 'maxkernel:runs' });
    comm.say(ack(idOf(comm, 2), { kind: 'runs', runs: [] }));
    comm.say(ack(idOf(comm, 1)));
    expect((await first).data).toBeNull();
    expect((await second).data?.kind).toBe('runs');
  });

  it('says when the kernel is busy', () => {
    vi.useFakeTimers();
    const { link } = opened();
    const slow = vi.fn<(id: string) => void>();
    link.slow.connect((_, id) => slow(id));
    void link.send({ command: 'maxkernel:runs' }, 'mine');
    vi.advanceTimersByTime(2100);
    expect(slow).toHaveBeenCalledWith('mine');
    vi.useRealTimers();
  });

  it('answers what was under way when the kernel goes', async () => {
    const { link, comm } = opened();
    const answer = link.send({ command: 'maxkernel:runs' });
    void comm.onClose({} as never);
    expect((await answer).ok).toBe(false);
    expect((await link.send({ command: 'maxkernel:runs' })).message).toContain('%load_ext maxkernel_nb');
    expect(link.state).toBe('off');
  });
});
