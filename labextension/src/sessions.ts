import type { Extension } from '@codemirror/state';
import type { ISessionContext } from '@jupyterlab/apputils';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel } from '@jupyterlab/services';
import { ISignal, Signal } from '@lumino/signaling';

import { InPlace } from './inplace';
import { KernelLink } from './link';
import { warn } from './notify';
import { Reports } from './reports';
import type { Below } from './write';

/** Said to every panel of a notebook (widgets/frontend/src/panel.ts); `detail` is the kernel's status. */
const KERNEL_LOST = 'maxkernel:kernel-lost';

/** What a person set in this front end. `defaults`: for the kernel's magics, by setting name. */
export interface Preferences {
  defaults: () => Record<string, string>;
  confirms: () => boolean;
  below: () => Below;
}

/** One open notebook: the link to its kernel, and the proposals in its cells. */
export class Session {
  link: KernelLink | null = null;
  inPlace: InPlace | null = null;
  private reports: Reports | null = null;
  private kernel: Kernel.IKernelConnection | null = null;

  constructor(
    readonly panel: NotebookPanel,
    private language: Extension,
    private preferences: Preferences,
    private changed: () => void
  ) {
    this.context.kernelChanged.connect(this.connect, this);
    panel.disposed.connect(this.dispose, this);
    this.connect();
  }

  private get context(): ISessionContext {
    return this.panel.sessionContext;
  }

  /** False where the notebook's kernel speaks another language, which `def` may belong to just as well. */
  get speaksPython(): boolean {
    const { model } = this.panel.content;
    const written = model?.getMetadata('language_info') as { name?: string } | undefined;
    const language = this.spoken || (written?.name ?? '');
    return language === '' || /^i?python/i.test(language);
  }
  private spoken = ''; // by the kernel that is connected

  private ask(kernel: Kernel.IKernelConnection): void {
    const heard = (language: string) => {
      if (kernel === this.kernel) {
        this.spoken = language;
        this.changed();
      }
    };
    kernel.info.then(info => heard(info.language_info.name), () => undefined); // gone before it answered
  }

  private connect(): void {
    const kernel = this.context.session?.kernel ?? null;
    if (kernel === this.kernel) {
      return;
    }
    this.disconnect();
    this.kernel = kernel;
    if (kernel !== null) {
      kernel.statusChanged.connect(this.restarted, this);
      this.ask(kernel);
      this.link = new KernelLink(kernel);
      this.link.changed.connect(this.changed);
      this.link.changed.connect(this.configure, this);
      this.inPlace = new InPlace(this.panel, this.link, this.language, this.preferences);
      this.reports = new Reports(this.panel, this.link);
      this.greet();
    }
    this.changed();
  }

  /**
   * Until the cells that were sent have run. A kernel with subshells answers the greeting beside them, before the one
   * that loads MaxKernel has ended.
   */
  async turn(): Promise<void> {
    await this.kernel?.requestKernelInfo().catch(() => undefined); // restarted meanwhile: nothing is sent any more
  }

  /** A notebook that uses MaxKernel may have runs in a kernel that outlived the page. */
  private greet(): void {
    const cells = this.panel.content.widgets.map(cell => cell.model.sharedModel.getSource());
    if (this.speaksPython && this.context.session?.kernel?.status === 'idle' && cells.some(source => source.includes('maxkernel'))) {
      this.link?.wake();
    }
  }

  private restarted(_: unknown, status: Kernel.Status): void {
    if (status === 'restarting' || status === 'autorestarting' || status === 'dead') {
      this.link?.reset();
      tellPanels(this.panel, status);
    } else if (status === 'idle' && this.link?.state === 'off' && !this.greeted) {
      this.greeted = true;
      this.greet();
    }
  }
  private greeted = false;

  /** The person's defaults go to the kernel right behind the greeting, and whenever they change. */
  configure(): void {
    const { link } = this;
    if (link === null || link.state === 'off') {
      this.said = '{}';
      return;
    }
    const settings = this.preferences.defaults();
    const said = JSON.stringify(settings);
    if (said !== this.said) {
      this.said = said;
      void link.send({ command: 'maxkernel:configure', settings }).then(ack => {
        if (!ack.ok && link.state === 'open') {
          warn(ack.message);
        }
      });
    }
  }
  private said = '{}';

  private disconnect(): void {
    this.kernel?.statusChanged.disconnect(this.restarted, this);
    this.inPlace?.dispose();
    this.reports?.dispose();
    this.link?.dispose();
    this.kernel = this.link = this.inPlace = this.reports = null;
    this.spoken = '';
  }

  private dispose(): void {
    this.disconnect();
    this.changed();
  }
}

/** The panels among the outputs cannot see that a kernel died by itself: the widget manager speaks of restarts alone. */
function tellPanels(panel: NotebookPanel, status: Kernel.Status): void {
  for (const shown of panel.node.querySelectorAll('.mkn-panel')) {
    shown.dispatchEvent(new CustomEvent(KERNEL_LOST, { detail: status }));
  }
}

/** All open notebooks. `changed` tells of anything that the sidebar, the status bar or a command shows. */
export class Sessions {
  private sessions = new Map<NotebookPanel, Session>();
  private _changed = new Signal<this, void>(this);

  constructor(private tracker: INotebookTracker, language: Promise<Extension>, preferences: Preferences) {
    const add = async (panel: NotebookPanel) => {
      const loaded = await language;
      await panel.revealed;
      if (!panel.isDisposed) {
        this.sessions.set(panel, new Session(panel, loaded, preferences, () => this._changed.emit()));
        panel.disposed.connect(() => this.sessions.delete(panel));
        this._changed.emit();
      }
    };
    tracker.forEach(panel => void add(panel));
    tracker.widgetAdded.connect((_, panel) => void add(panel));
    tracker.currentChanged.connect(() => this._changed.emit());
    tracker.activeCellChanged.connect(() => this._changed.emit());
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get current(): Session | null {
    const panel = this.tracker.currentWidget;
    return panel === null ? null : (this.sessions.get(panel) ?? null);
  }

  /** The person changed a setting. */
  configure(): void {
    this.all.forEach(session => session.configure());
  }

  get all(): Session[] {
    return [...this.sessions.values()];
  }
}
