// Messages to the kernel: sent once each, pending until acknowledged, never assumed done.
import { ACK, type Ack, type Intent, type Message } from "./wire";

export interface Model {
  get(name: string): unknown;
  on(name: string, handler: (...args: never[]) => void): void;
  off(name: string, handler: (...args: never[]) => void): void;
  send(content: unknown): void;
}

export interface Said {
  tone: "plain" | "bad" | "busy";
  text: string;
}

const BUSY_AFTER_MS = 2000;
// ipykernel 7 can leave a message unread until the next one comes (ipython/ipykernel#1554, seen with 7.1.0), so it is said
// again; the kernel's side does the same id once.
const AGAIN_MS = 5000;
const DOING: Record<Intent, string> = {
  accept: "Accepting", reject: "Rejecting", stop: "Stopping", pause: "Pausing", unpause: "Continuing", undo: "Undoing", answer: "Answering",
  takeback: "Taking back", ask: "Asking",
  look: "Looking", pin: "Pinning", prune: "Pruning", unmark: "Taking the mark back", edit: "Having your kernel judged", compare: "Comparing",
};

export class Intents {
  private waiting = new Map<string, { key: string; message: Message; timer: number }>();
  said: Said | null = null;

  constructor(private model: Model, private changed: () => void) {}

  /** ``key``: the intent, or ``answer`` and its choice. Without one: is anything pending? */
  pending(key?: string): boolean {
    return Array.from(this.waiting.values()).some((w) => key === undefined || w.key === key);
  }

  send(intent: Intent, more: Partial<Message> = {}): void {
    const key = intent + (more.choice ?? "") + (more.node ?? "") + (more.other ?? "");
    if (this.pending(key)) return;
    const message: Message = { id: uuid(), intent, proposal: "", choice: "", hunks: null, node: "", other: "", comment: "", ...more };
    const timer = window.setTimeout(() => this.busy(message), BUSY_AFTER_MS);
    this.waiting.set(message.id, { key, message, timer });
    this.said = { tone: "plain", text: `${DOING[intent]} …` };
    this.model.send(message);
    this.changed();
  }

  private busy({ intent, id }: Message): void {
    this.said = {
      tone: "busy",
      text: `The kernel is busy with a cell. ${DOING[intent]} happens when that cell ends; there is no need to click again. If no cell is running, the kernel is gone: %maxkernel resume goes on.`,
    };
    this.changed();
    this.again(id);
  }

  /** The same message once more, then ever more rarely, until it is answered. */
  private again(id: string, pause = AGAIN_MS): void {
    const known = this.waiting.get(id);
    if (!known) return;
    this.model.send(known.message);
    known.timer = window.setTimeout(() => this.again(id, pause * 2), pause);
  }

  receive(content: unknown): void {
    const ack = content as Ack;
    if (typeof ack !== "object" || ack === null || ack.kind !== ACK) return;
    const known = this.waiting.get(ack.id);
    if (!known) return;
    window.clearTimeout(known.timer);
    this.waiting.delete(ack.id);
    this.said = ack.ok ? null : { tone: "bad", text: ack.message };
    this.changed();
  }

  doing(intent: Intent): string {
    return `${DOING[intent]} …`;
  }

  clear(): void {
    for (const { timer } of this.waiting.values()) window.clearTimeout(timer);
    this.waiting.clear();
    this.said = null;
  }
}

// crypto.randomUUID exists only in secure contexts; a notebook server on a plain http address is none.
function uuid(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const hex = Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}
