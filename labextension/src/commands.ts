import type { ISharedCell } from '@jupyter/ydoc';
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import type { Cell } from '@jupyterlab/cells';
import { INotebookTracker, NotebookActions, NotebookPanel } from '@jupyterlab/notebook';
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { LabIcon } from '@jupyterlab/ui-components';

import { functionsOf, isCandidate, magicLine, Mode, modeOf, Options, optionsOf, withMagic } from './cellsource';
import { askOptions, OptionForm } from './form';
import type { KernelLink } from './link';
import { warn } from './notify';
import type { Session, Sessions } from './sessions';
import { replace, sealed } from './write';

export const CATEGORY = 'MaxKernel';
const LOAD = '%load_ext maxkernel_nb';

const MODES: readonly [Mode, string][] = [
  ['auto', 'Optimise with MaxKernel'],
  ['hitl', 'Optimise with MaxKernel, Step by Step'],
  ['search', 'Search for Kernels with MaxKernel']
];

export const icon = new LabIcon({
  name: 'maxkernel:icon',
  svgstr:
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24"><path class="jp-icon3" fill="#616161" ' +
    'd="M4 4h16v16H4z M7 7v10h2v-6l3 4 3-4v6h2V7h-2l-3 4-3-4z" fill-rule="evenodd"/></svg>'
});

export interface Needs {
  app: JupyterFrontEnd;
  tracker: INotebookTracker;
  sessions: Sessions;
  settings: ISettingRegistry.ISettings | null;
  palette: ICommandPalette | null;
}

/** Everything is in the palette and the Run menu too: a toolbar hides when it is narrow. */
export function addCommands(needs: Needs): void {
  const { commands } = needs.app;
  const ids = [
    ...MODES.map(([mode, label]) => add(needs, `maxkernel:${mode}`, label, where => optimise(where, mode))),
    add(needs, 'maxkernel:options', 'Optimise with MaxKernel …', where => withForm(where)),
    add(needs, 'maxkernel:profile', 'Profile with MaxKernel', where => below(where, 'profile')),
    add(needs, 'maxkernel:explain', 'Explain with MaxKernel', where => below(where, 'explain')),
    steps(needs, 'maxkernel:next-change', 'Next Proposed Change', 1),
    steps(needs, 'maxkernel:previous-change', 'Previous Proposed Change', -1)
  ];
  for (const command of ids) {
    needs.palette?.addItem({ command, category: CATEGORY });
  }
  const told = () => ids.forEach(id => commands.notifyCommandChanged(id));
  needs.sessions.changed.connect(told);
  whenCandidacyChanges(needs.tracker, told);
}

/** While a person types in a cell, the commands are looked at again only where the cell becomes a candidate or ceases to be. */
function whenCandidacyChanges(tracker: INotebookTracker, told: () => void): void {
  let shared: ISharedCell | null = null;
  let was = false;
  const look = () => {
    const now = shared !== null && isCandidate(shared.getSource());
    if (now !== was) {
      was = now;
      told();
    }
  };
  tracker.activeCellChanged.connect((_, cell) => {
    shared?.changed.disconnect(look);
    shared = cell?.model.sharedModel ?? null;
    shared?.changed.connect(look);
    look();
  });
}

/** The cell a command is about. */
interface Where {
  panel: NotebookPanel;
  cell: Cell;
  session: Session | null;
}

function add(needs: Needs, id: string, label: string, execute: (where: Where) => Promise<void>): string {
  const possible = () => {
    const where = target(needs);
    return where !== null && isCandidate(where.cell.model.sharedModel.getSource());
  };
  needs.app.commands.addCommand(id, {
    label,
    icon: id === 'maxkernel:options' ? icon : undefined,
    isEnabled: possible,
    isVisible: args => args['toolbar'] !== true || possible(),
    execute: async () => {
      const where = target(needs);
      const why = where === null ? '' : sealed(where.panel, where.cell);
      if (why !== '') {
        warn(`${why}: MaxKernel writes its line into the cell. Start it in a copy that can be edited.`);
      } else if (where !== null) {
        await execute(where);
      }
    },
    describedBy: { args: { type: 'object', properties: { toolbar: { type: 'boolean' } } } }
  });
  return id;
}

function steps(needs: Needs, id: string, label: string, by: 1 | -1): string {
  const view = () => needs.sessions.current?.inPlace?.viewIn(needs.tracker.activeCell) ?? null;
  needs.app.commands.addCommand(id, { label, isEnabled: () => view() !== null, execute: () => view()?.step(by) });
  return id;
}

function target(needs: Needs): Where | null {
  const { currentWidget: panel, activeCell: cell } = needs.tracker;
  const session = needs.sessions.current;
  if (panel === null || cell === null || cell.model.type !== 'code' || session?.speaksPython === false) {
    return null;
  }
  return { panel, cell, session };
}

async function optimise(where: Where, mode: Mode): Promise<void> {
  const line = magicLine(where.cell.model.sharedModel.getSource());
  const kept: Options = line === null ? {} : optionsOf(line);
  await start(where, mode, kept);
}

/** The form is made from the kernel's option table, so the kernel is asked first. */
async function withForm(where: Where): Promise<void> {
  const source = where.cell.model.sharedModel.getSource();
  if (!(await load(where.session, where.cell))) {
    return;
  }
  const welcome = where.session?.link?.welcome;
  if (!welcome) {
    warn('MaxKernel did not answer in this kernel; run %maxkernel doctor to see why.');
    return;
  }
  const line = magicLine(source);
  const given = line === null ? {} : optionsOf(line);
  const form = new OptionForm(welcome, line === null ? 'auto' : modeOf(line), given, {});
  const filled = await askOptions(form);
  if (filled !== null) {
    await start(where, filled.mode, filled.options);
  }
}

/** Changes the cell's first line, where everyone sees it, and runs the cell. */
async function start(where: Where, mode: Mode, options: Options): Promise<void> {
  if (!(await load(where.session, where.cell))) {
    return;
  }
  const shared = where.cell.model.sharedModel;
  const before = shared.getSource();
  const wanted = withMagic(before, mode, options);
  if (wanted !== before) {
    replace(shared, before, wanted);
  }
  await runCell(where);
}

async function runCell({ panel, cell }: Pick<Where, 'panel' | 'cell'>): Promise<boolean> {
  panel.content.activeCellIndex = panel.content.widgets.indexOf(cell);
  panel.content.deselectAll();
  return NotebookActions.run(panel.content, panel.sessionContext);
}

/** `%maxkernel profile f` in a cell of its own, below. */
async function below(where: Where, command: string): Promise<void> {
  const [name] = functionsOf(where.cell.model.sharedModel.getSource());
  if (name === undefined || !(await load(where.session, where.cell))) {
    return;
  }
  await runCell(where);
  const { panel, cell } = where;
  const made = insert(panel, panel.content.widgets.indexOf(cell) + 1, `%maxkernel ${command} ${name}`);
  if (made !== null) {
    await runCell({ panel, cell: made });
  }
}

/**
 * True once MaxKernel answers in the kernel; a notebook that never loads it gets the line, in a cell above `above` (or
 * at its head), and runs it.
 */
export async function load(session: Session | null, above: Cell | null = null): Promise<boolean> {
  const link = session?.link;
  if (!link) {
    warn('This notebook has no kernel; choose one, then start again.');
    return false;
  }
  if ((await answers(link)) || (await session.turn(), await answers(link))) {
    return true;
  }
  const { panel } = session;
  const cells = panel.content.widgets;
  const has = cells.find(cell => cell.model.sharedModel.getSource().includes(LOAD));
  const loader = has ?? insert(panel, above === null ? 0 : cells.indexOf(above), LOAD);
  const ran = loader !== null && (await runCell({ panel, cell: loader }));
  if (!ran) {
    warn('MaxKernel could not be loaded; see the cell with %load_ext maxkernel_nb.');
    return false;
  }
  return answers(link);
}

function answers(link: KernelLink): Promise<boolean> {
  link.wake();
  return link.opened();
}

function insert(panel: NotebookPanel, at: number, source: string): Cell | null {
  const notebook = panel.content;
  const metadata = { trusted: true };
  notebook.model?.sharedModel.insertCell(at, { cell_type: 'code', source, metadata });
  return notebook.widgets[at] ?? null;
}
