import { Widget } from '@lumino/widgets';

import { button } from './dom';
import type { Sessions } from './sessions';

/** Running and waiting runs, and what they have spent. Click: the sidebar. */
export class RunStatus extends Widget {
  private face: HTMLButtonElement;

  constructor(private sessions: Sessions, open: () => void) {
    super();
    this.addClass('mkl-statusbar');
    this.face = button('', open, 'mkl-statusbar-button');
    this.node.append(this.face);
    sessions.changed.connect(this.draw, this);
    this.draw();
  }

  private draw(): void {
    const runs = this.sessions.all.flatMap(session => [...(session.link?.runs.values() ?? [])]);
    const alive = runs.filter(run => run.live && !run.ended);
    const waiting = alive.filter(run => run.waits !== '').length;
    const dollars = alive.reduce((total, run) => total + run.dollars, 0);
    const parts = [`${alive.length} running`];
    if (waiting > 0) {
      parts.push(`${waiting} waiting for you`);
    }
    if (dollars > 0) {
      parts.push(`$${dollars.toFixed(2)}`);
    }
    this.face.textContent = `MaxKernel: ${parts.join(', ')}`;
    this.setHidden(alive.length === 0);
  }
}
