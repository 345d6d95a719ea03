import type { KernelMessage } from '@jupyterlab/services';
import { UUID } from '@lumino/coreutils';
import { ISignal, Signal } from '@lumino/signaling';

import {
  Ack, Command, Decided, Notice, Propose, Question, RunInfo, TARGET, VERSION, Welcome
} from './contract';

/** A command without what every command has. */
type Bare<C> = C extends Command ? Omit<C, 'id' | 'version'> : never;
export type Request = Bare<Command>;

export type LinkState = 'off' | 'opening' | 'open';

/** What this file needs of a kernel connection; a fake in tests. */
export interface KernelLike {
  createComm(target: string): CommLike;
  readonly iopubMessage: ISignal<unknown, KernelMessage.IIOPubMessage>;
}
export interface CommLike {
  onMsg: (message: KernelMessage.ICommMsgMsg) => void | PromiseLike<void>;
  onClose: (message: KernelMessage.ICommCloseMsg) => void | PromiseLike<void>;
  open(): unknown;
  send(data: never): unknown;
  close(): unknown;
  dispose(): void;
}

const SLOW_MS = 2000;

/** The mark on the page's own timeline from which drawing a proposal is measured. */
export const ARRIVED = 'maxkernel-arrived';

/**
 * The conversation with one kernel: commands out, acks and notices in, and what is known of its runs.
 * Nothing is decided here. A kernel without MaxKernel closes the comm at once; `wake` tries again.
 */
export class KernelLink {
  readonly runs = new Map<string, RunInfo>();
  readonly proposals = new Map<string, Propose>();
  readonly questions = new Map<string, Question>();
  welcome: Welcome | null = null;

  private comm: CommLike | null = null;
  private waiting = new Map<string, { resolve: (ack: Ack) => void; slow: ReturnType<typeof setTimeout> }>();
  private _state: LinkState = 'off';
  private _changed = new Signal<this, void>(this);
  private _decided = new Signal<this, Decided>(this);
  private _slow = new Signal<this, string>(this);

  constructor(private kernel: KernelLike) {
    kernel.iopubMessage.connect(this.listen, this);
  }

  /** Anything in `runs`, `proposals`, `questions` or `state`. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }
  get decided(): ISignal<this, Decided> {
    return this._decided;
  }
  /** The id of a command that the kernel has not acknowledged after two seconds: it is busy. */
  get slow(): ISignal<this, string> {
    return this._slow;
  }
  get state(): LinkState {
    return this._state;
  }

  /** Opens the conversation unless it is open. The kernel answers when it is idle. */
  wake(): void {
    if (this.comm !== null) {
      return;
    }
    const comm = this.kernel.createComm(TARGET);
    comm.onMsg = message => this.receive(message.content.data as unknown as Notice);
    comm.onClose = () => this.drop(comm);
    this.comm = comm;
    this._state = 'opening';
    comm.open();
    void this.send({ command: 'maxkernel:hello' });
    this._changed.emit();
  }

  /** Resolves with the kernel's ack, never rejects; a conversation that ends answers `ok: false`. */
  send(request: Request, id: string = UUID.uuid4()): Promise<Ack> {
    const comm = this.comm;
    if (comm === null) {
      return Promise.resolve(refused(id, 'MaxKernel is not loaded in this kernel: run %load_ext maxkernel_nb.'));
    }
    return new Promise(resolve => {
      const slow = setTimeout(() => this._slow.emit(id), SLOW_MS);
      this.waiting.set(id, { resolve, slow });
      comm.send({ ...request, id, version: VERSION } as never);
    });
  }

  /** Resolves when the kernel has answered the greeting, false if it turned it away. */
  async opened(): Promise<boolean> {
    while (this._state === 'opening') {
      await new Promise<void>(resolve => {
        const told = () => {
          this._changed.disconnect(told);
          resolve();
        };
        this._changed.connect(told);
      });
    }
    return this._state === 'open';
  }

  /** The kernel restarts: what it knew is gone, and what was under way is answered. */
  reset(): void {
    if (this.comm !== null) {
      this.drop(this.comm);
    }
  }

  dispose(): void {
    this.kernel.iopubMessage.disconnect(this.listen, this);
    const comm = this.comm;
    if (comm !== null) {
      this.drop(comm);
      comm.dispose();
    }
    Signal.clearData(this);
  }

  /** After `%load_ext maxkernel_nb`, or a first `%%maxkernel`, there is someone to talk to. */
  private listen(_: unknown, message: KernelMessage.IIOPubMessage): void {
    const kind = message.header.msg_type;
    if (kind === 'execute_input') {
      const { code } = message.content as { code: string };
      this.mentioned ||= code.includes('maxkernel');
    } else if (kind === 'status' && this.mentioned) {
      const { execution_state: now } = message.content as { execution_state: string };
      if (now === 'idle') {
        this.mentioned = false;
        this.wake();
      }
    }
  }
  private mentioned = false;

  private receive(notice: Notice): void {
    if ((notice.version as number) !== VERSION) {
      return;
    }
    switch (notice.notice) {
      case 'maxkernel:ack':
        this.acknowledged(notice);
        return;
      case 'maxkernel:run':
        this.tell(notice.run);
        break;
      case 'maxkernel:propose':
        this.proposals.set(notice.run, notice);
        performance.mark(ARRIVED, { detail: notice.run });
        break;
      case 'maxkernel:question':
        this.questions.set(notice.run, notice);
        break;
      case 'maxkernel:decided':
        this.proposals.delete(notice.run);
        this._decided.emit(notice);
        break;
    }
    this._changed.emit();
  }

  private tell(run: RunInfo): void {
    this.runs.set(run.id, run);
    if (run.waits !== 'proposal') {
      this.proposals.delete(run.id);
    }
    if (run.waits !== 'question') {
      this.questions.delete(run.id);
    }
  }

  private acknowledged(ack: Ack): void {
    if (ack.data?.kind === 'welcome') {
      this.welcome = ack.data;
      this._state = 'open';
      this._changed.emit();
    }
    const waiting = this.waiting.get(ack.id);
    if (waiting !== undefined) {
      clearTimeout(waiting.slow);
      this.waiting.delete(ack.id);
      waiting.resolve(ack);
    }
  }

  private drop(comm: CommLike): void {
    if (this.comm !== comm) {
      return;
    }
    this.comm = null;
    this._state = 'off';
    this.welcome = null;
    for (const known of [this.runs, this.proposals, this.questions]) {
      known.clear();
    }
    for (const [id, { resolve, slow }] of this.waiting) {
      clearTimeout(slow);
      resolve(refused(id, 'The kernel was restarted or MaxKernel unloaded before it answered; nothing was done.'));
    }
    this.waiting.clear();
    this._changed.emit();
  }
}

function refused(id: string, message: string): Ack {
  return { version: VERSION, notice: 'maxkernel:ack', id, ok: false, message, data: null };
}
