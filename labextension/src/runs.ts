import { ServerConnection } from '@jupyterlab/services';
import { URLExt } from '@jupyterlab/coreutils';

import type { Control, RunInfo } from './contract';
import type { Session } from './sessions';

export type Action = Control['action'];

/** A run with where it can be reached: a kernel, or only the journal on the server's disk. */
export interface Row {
  run: RunInfo;
  session: Session | null;
}

/** The runs that open kernels know, newest first; what a kernel says beats what the disk says, later beats earlier. */
export function rowsOf(sessions: readonly Pick<Session, 'link'>[], onDisk: readonly RunInfo[]): Row[] {
  const rows = new Map<string, Row>();
  for (const run of onDisk) {
    rows.set(run.id, { run, session: null });
  }
  for (const session of sessions) {
    for (const run of session.link?.runs.values() ?? []) {
      rows.set(run.id, { run, session: session as Session });
    }
  }
  return [...rows.values()].reverse();
}

export function matches(row: Row, filter: string): boolean {
  const { id, mode, status, outcome, entry, author } = row.run;
  const text = [id, mode, status, outcome, entry, author].join(' ').toLowerCase();
  return filter.toLowerCase().split(/\s+/).every(word => text.includes(word));
}

/** One line about a run: what it does or how it ended. */
export function lineOf(run: RunInfo): string {
  if (run.waits !== '') {
    return run.waits === 'proposal' ? 'a proposal waits for you' : 'a question waits for you';
  }
  return run.ended ? run.outcome || run.status : run.doing || run.status;
}

export function gain(run: RunInfo): string {
  return run.speedup === null ? '' : `${run.speedup.toFixed(2)}x ${run.evidence}`.trim();
}

export function spend(run: RunInfo): string {
  const money = run.dollars > 0 ? `$${run.dollars.toFixed(2)}` : '';
  const judged = run.judged > 0 ? `${run.judged} judged` : '';
  return [money, judged].filter(text => text !== '').join(', ');
}

/** What may be done with a run, by the state it is in. One that another process works on is left to that. */
export function actionsOf(run: RunInfo): Action[] {
  const handedOver = run.mode === 'hitl' ? run.control === 'auto' && run.live : run.outcome !== 'accepted';
  const byHand: Action[] = handedOver ? ['takeback'] : [];
  if (run.live && !run.ended) {
    return ['stop', run.status === 'paused' ? 'unpause' : 'pause', ...byHand];
  }
  if (!run.live && / in process \d+$/.test(run.status)) {
    return [];
  }
  const goesOn = !run.ended || ['stopped', 'failed', 'proposed'].includes(run.outcome);
  return [...(!run.live && goesOn ? ['resume' as const] : []), ...byHand];
}

/** What the button says. A run of another mode than `hitl` is taken over, to go on step by step. */
export function labelOf(action: Action, run: RunInfo): string {
  return action === 'takeback' && run.mode !== 'hitl' ? 'Continue in HITL' : LABELS[action];
}

const LABELS: Record<Action, string> = {
  stop: 'Stop', pause: 'Pause', unpause: 'Go on', takeback: 'Take back', resume: 'Resume', undo: 'Undo'
};

/** All runs of the kernel's project, those of earlier kernels too; empty while no kernel answers. */
export async function runsOfKernel(session: Session | null): Promise<RunInfo[]> {
  const { link } = session ?? {};
  if (link?.state !== 'open') {
    return [];
  }
  const ack = await link.send({ command: 'maxkernel:runs' });
  return ack.data?.kind === 'runs' ? ack.data.runs : [];
}

/** The journals below a notebook's folder, read by the server; empty where its extension is off. */
export async function runsOnDisk(folder: string, settings: ServerConnection.ISettings): Promise<RunInfo[]> {
  const url = `${URLExt.join(settings.baseUrl, 'maxkernel', 'runs')}?path=${encodeURIComponent(folder)}`;
  try {
    const response = await ServerConnection.makeRequest(url, {}, settings);
    return response.ok ? ((await response.json()) as { runs: RunInfo[] }).runs : [];
  } catch {
    return []; // no network is no reason to break the sidebar
  }
}
