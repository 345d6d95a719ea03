import { Dialog, showDialog } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';

import type { Mode, Options } from './cellsource';
import type { FormField, Welcome } from './contract';
import { element, labelled } from './dom';

export interface Filled {
  mode: Mode;
  options: Options;
}

/** `%%maxkernel`'s options as a form, made from the kernel's own table. `given`: what the cell's line has already. */
export class OptionForm extends Widget implements Dialog.IBodyWidget<Filled> {
  private modes = document.createElement('select');
  private fields = new Map<FormField, HTMLInputElement | HTMLSelectElement>();
  private rows = new Map<FormField, HTMLElement>();

  constructor(welcome: Welcome, mode: Mode, given: Record<string, string[]>, defaults: Record<string, string>) {
    super();
    this.addClass('mkl-form');
    for (const one of welcome.modes.filter(m => m.available)) {
      this.modes.append(option(one.name, `${one.name}: ${one.summary}`));
    }
    this.modes.value = mode;
    this.modes.addEventListener('change', () => this.showFor());
    this.node.append(labelled('Mode', this.modes));
    for (const field of welcome.options) {
      this.add(field, given[field.flag] ?? [], defaults[field.name] ?? '');
    }
    this.showFor();
  }

  getValue(): Filled {
    const mode = this.modes.value as Mode;
    const options: Options = {};
    for (const [field, input] of this.fields) {
      const values = field.repeat ? input.value.split(' | ').map(v => v.trim()) : [input.value.trim()];
      const given = values.filter(value => value !== '');
      if (given.length > 0 && field.modes.includes(mode)) {
        options[field.flag] = field.repeat ? given : (given[0] as string);
      }
    }
    return { mode, options };
  }

  private add(field: FormField, given: string[], preset: string): void {
    const input = field.choices.length > 0 ? choices(field) : text(field);
    input.value = given.join(' | ') || preset;
    const row = labelled(field.name.replaceAll('_', ' '), input);
    row.append(element('small', 'mkl-help', field.repeat ? `${field.help}; several: a | b` : field.help));
    this.fields.set(field, input);
    this.rows.set(field, row);
    this.node.append(row);
  }

  private showFor(): void {
    for (const [field, row] of this.rows) {
      row.hidden = !field.modes.includes(this.modes.value);
    }
  }
}

/** Null when the person closed the form. */
export async function askOptions(form: OptionForm): Promise<Filled | null> {
  const result = await showDialog({
    title: 'Optimise with MaxKernel',
    body: form,
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label: 'Start' })]
  });
  return result.button.accept ? result.value : null;
}

function option(value: string, label: string): HTMLOptionElement {
  const made = document.createElement('option');
  made.value = value;
  made.textContent = label;
  return made;
}

function choices(field: FormField): HTMLSelectElement {
  const select = document.createElement('select');
  select.append(option('', `default: ${field.default}`), ...field.choices.map(one => option(one, one)));
  return select;
}

function text(field: FormField): HTMLInputElement {
  const input = document.createElement('input');
  input.type = 'text';
  input.inputMode = field.type === 'number' ? 'decimal' : 'text';
  input.placeholder = field.default;
  return input;
}
