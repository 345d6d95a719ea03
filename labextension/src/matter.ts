import type { Decided, Hunk, Propose, Question } from './contract';
import type { Request } from './link';

/** One way to answer. `text`: what may be written with it, empty for none. */
export interface Choice {
  name: string;
  label: string;
  primary: boolean;
  text: string;
}

/** Something that waits for a person and concerns a cell's text: a proposal, or a question that shows a patch. */
export interface Matter {
  run: string;
  cell: string;
  id: string;
  title: string;
  text: string;
  entry: string;
  baseline: string;
  proposed: string;
  hunks: readonly Hunk[];
  choices: readonly Choice[];
  request(choice: Choice, hunks: number[] | null, comment: string): Request;
}

export function fromProposal(notice: Propose): Matter {
  return {
    ...notice,
    id: notice.proposal,
    title: `Proposed kernel for ${notice.entry}`,
    text: notice.claim,
    choices: [
      { name: 'accept', label: 'Accept', primary: true, text: 'a comment' },
      { name: 'reject', label: 'Reject', primary: false, text: 'a comment' }
    ],
    request: (choice, hunks, comment) => ({
      command: 'maxkernel:decide', run: notice.run, proposal: notice.proposal,
      accepted: choice.name === 'accept', hunks: choice.name === 'accept' ? hunks : null, comment
    })
  };
}

/** Null where the question shows no patch: the panel in the cell's output asks it. */
export function fromQuestion(notice: Question): Matter | null {
  if (notice.hunks.length === 0) {
    return null;
  }
  return {
    ...notice,
    id: notice.question,
    entry: '',
    choices: notice.choices.map(choice => ({
      name: choice.name, label: choice.label, primary: choice.name === notice.default, text: choice.takes_text
    })),
    request: (choice, hunks, comment) => ({
      command: 'maxkernel:answer', run: notice.run, question: notice.question, choice: choice.name, text: comment, hunks
    })
  };
}

/** What a person has chosen so far in one matter; it outlives the view, which goes when a cell is moved. */
export class Draft {
  readonly rejected = new Set<number>();
  readonly comments = new Map<number, string>();
  comment = '';

  /** The accepted hunks' numbers, or null for all of them. */
  chosen(hunks: readonly Hunk[]): number[] | null {
    return this.rejected.size === 0 ? null : hunks.map(h => h.number).filter(n => !this.rejected.has(n));
  }

  /** The comment with those on single hunks below it. */
  remarks(): string {
    const single = [...this.comments].filter(([, text]) => text.trim() !== '').sort(([a], [b]) => a - b);
    const lines = single.map(([number, text]) => `change ${number + 1}: ${text.trim()}`);
    return [this.comment.trim(), ...lines].filter(line => line !== '').join('\n');
  }
}

/** What an accepted decision means for the cell: nothing unless a kernel is bound now. */
export function bindsKernel(notice: Decided): boolean {
  return notice.accepted && !notice.undone && notice.source !== '';
}
