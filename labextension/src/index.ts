import type { Extension } from '@codemirror/state';
import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, IFrame, MainAreaWidget } from '@jupyterlab/apputils';
import { IEditorLanguageRegistry } from '@jupyterlab/codemirror';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';

import { addCommands, icon } from './commands';
import { warn } from './notify';
import type { Row } from './runs';
import { Sessions } from './sessions';
import { RunsSidebar } from './sidebar';
import { RunStatus } from './status';

const ID = 'maxkernel-nb:plugin';

const plugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: 'Optimise a cell with MaxKernel: proposals in the cell, runs in a sidebar.',
  autoStart: true,
  requires: [INotebookTracker, IEditorLanguageRegistry],
  optional: [ISettingRegistry, ICommandPalette, IStatusBar, ILayoutRestorer],
  activate
};

async function activate(
  app: JupyterFrontEnd,
  tracker: INotebookTracker,
  languages: IEditorLanguageRegistry,
  registry: ISettingRegistry | null,
  palette: ICommandPalette | null,
  statusBar: IStatusBar | null,
  restorer: ILayoutRestorer | null
): Promise<void> {
  const settings = await loadSettings(registry);
  if (settings?.composite['enabled'] === false) {
    return;
  }
  const confirms = () => settings?.composite['confirmations'] === true;
  const below = () => ({
    reference: settings?.composite['keepReference'] !== false,
    tests: settings?.composite['addTests'] !== false
  });
  const sessions = new Sessions(tracker, python(languages), { defaults: () => defaults(settings), confirms, below });
  settings?.changed.connect(() => sessions.configure());
  addCommands({ app, tracker, sessions, settings, palette });

  const sidebar = new RunsSidebar(sessions, app.serviceManager.serverSettings, {
    reveal: row => reveal(app, row),
    report: row => report(app, row),
    confirms
  });
  app.shell.add(sidebar, 'left', { rank: 900, type: 'MaxKernel' });
  restorer?.add(sidebar, sidebar.id);
  const open = () => app.shell.activateById(sidebar.id);
  app.commands.addCommand('maxkernel:runs', { label: 'MaxKernel Runs', icon, execute: open });
  palette?.addItem({ command: 'maxkernel:runs', category: 'MaxKernel' });
  statusBar?.registerStatusItem(ID, { item: new RunStatus(sessions, open), align: 'left', rank: 900 });
}

async function loadSettings(registry: ISettingRegistry | null): Promise<ISettingRegistry.ISettings | null> {
  try {
    return registry === null ? null : await registry.load(ID);
  } catch {
    return null; // without a schema the defaults hold
  }
}

/** What the person set; the kernel puts it below pyproject.toml, the environment and %config. */
function defaults(settings: ISettingRegistry.ISettings | null): Record<string, string> {
  const entries = Object.entries(settings?.composite ?? {});
  return Object.fromEntries(entries.filter((one): one is [string, string] => typeof one[1] === 'string' && one[1] !== ''));
}

/** Colours for the merge view; plain text where the language cannot be had. */
async function python(languages: IEditorLanguageRegistry): Promise<Extension> {
  const language = await languages.getLanguage('python');
  return language?.support ?? [];
}

async function reveal(app: JupyterFrontEnd, { run, session }: Row): Promise<void> {
  if (session === null) {
    return;
  }
  app.shell.activateById(session.panel.id);
  if (!(await session.inPlace?.reveal(run))) {
    warn(`The cell of run ${run.id} is not in this notebook any more; %maxkernel show ${run.id} shows it.`);
  }
}

/** The static report, in a tab, in a frame that can run nothing. */
async function report(app: JupyterFrontEnd, { run, session }: Row): Promise<void> {
  const ack = await session?.link?.send({ command: 'maxkernel:report', run: run.id });
  if (!ack?.ok || ack.data?.kind !== 'report') {
    warn(ack?.message ?? `There is no kernel that knows run ${run.id}.`);
    return;
  }
  const frame = new IFrame({ sandbox: [] });
  const blob = new Blob([ack.data.html], { type: 'text/html' });
  frame.url = URL.createObjectURL(blob);
  frame.disposed.connect(() => URL.revokeObjectURL(frame.url));
  const tab = new MainAreaWidget({ content: frame });
  tab.title.label = `Report ${run.id}`;
  tab.title.icon = icon;
  app.shell.add(tab, 'main');
}

export default plugin;
