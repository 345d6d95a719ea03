/** What a cell's text says to MaxKernel, and how that text is changed. Pure functions on strings. */

export type Mode = 'auto' | 'hitl' | 'search';

/** Options as the magic line has them: flag -> value ('' for a flag alone). Repeated flags keep all values. */
export type Options = Record<string, string | readonly string[]>;

/** What may stand above the magic line, then the line. IPython wants it first; a person may not know. */
const MAGIC = /^((?:[^\S\n]*(?:#[^\n]*)?\n)*)[^\S\n]*(%%maxkernel\b[^\n]*)/;
const DEF = /^def\s+([A-Za-z_]\w*)\s*\(/gm;
const INPUT_MAKER = 'create_inputs';

/** The names of the functions that the cell defines at its top level; coroutines are none that a kernel can replace. */
export function functionsOf(source: string): string[] {
  const names = [...source.matchAll(DEF)].map(match => match[1] as string);
  return names.filter((name, at) => name !== INPUT_MAKER && names.indexOf(name) === at);
}

/** A cell that MaxKernel can work on: it defines a function, and no other cell magic has it. */
export function isCandidate(source: string): boolean {
  const other = /^\s*%%(?!maxkernel\b)/.test(source);
  return !other && functionsOf(source).length > 0;
}

/** The magic line, or null. Only comments and empty lines may stand above it. */
export function magicLine(source: string): string | null {
  return MAGIC.exec(source)?.[2] ?? null;
}

/** The cell without its magic line, and without empty lines above that. */
export function body(source: string): string {
  const found = MAGIC.exec(source);
  if (found === null) {
    return source;
  }
  const above = (found[1] as string).trim() === '' ? '' : (found[1] as string);
  const rest = source.slice(found[0].length);
  return above + (rest.startsWith('\n') ? rest.slice(1) : rest);
}

/** The cell with `%%maxkernel mode --option value` as its first line, in the place of one that is there. */
export function withMagic(source: string, mode: Mode, options: Options = {}): string {
  return `${['%%maxkernel', mode, ...words(options)].join(' ')}\n${body(source)}`;
}

function words(options: Options): string[] {
  return Object.entries(options).flatMap(([flag, value]) =>
    (typeof value === 'string' ? [value] : [...value]).flatMap(one =>
      one === '' ? [flag] : [flag, quoted(one)]
    )
  );
}

/** As Python's shlex reads it. */
export function quoted(value: string): string {
  if (/^[\w@%+=:,./-]+$/.test(value)) {
    return value;
  }
  return value.includes('"') ? `'${value.replaceAll("'", `'"'"'`)}'` : `"${value.replaceAll('\\', '\\\\')}"`;
}

/** The options of a magic line: flag -> values. The mode and what cannot be read are left out. */
export function optionsOf(line: string): Record<string, string[]> {
  const found: Record<string, string[]> = {};
  const tokens = split(line.replace(/^%%maxkernel\s*/, ''));
  for (let at = 0; at < tokens.length; at += 1) {
    const token = tokens[at] as string;
    if (!token.startsWith('--')) {
      continue;
    }
    const [flag, inline] = token.split(/=(.*)/s, 2) as [string, string | undefined];
    const next = tokens[at + 1];
    const value = inline ?? (next !== undefined && !next.startsWith('--') ? (at += 1, next) : '');
    (found[flag] ??= []).push(value);
  }
  return found;
}

export function modeOf(line: string): Mode {
  const word = split(line)[1];
  return word === 'hitl' || word === 'search' ? word : 'auto';
}

function split(line: string): string[] {
  const tokens = line.match(/(?:[^\s"']+|"(?:\\.|[^"\\])*"|'[^']*')+/g) ?? [];
  return tokens.map(token =>
    token.replace(/"((?:\\.|[^"\\])*)"|'([^']*)'/g, (_, double?: string, single?: string) =>
      double !== undefined ? double.replace(/\\(.)/g, '$1') : (single ?? '')
    )
  );
}

/**
 * The cell after an accepted edit: its magic line gone, the text `baseline` replaced by `accepted`.
 * Null where the cell no longer holds `baseline` exactly once: it was changed since, and nothing may be overwritten.
 */
export function applied(source: string, baseline: string, accepted: string): string | null {
  const text = body(source);
  const wanted = baseline.replace(/\n$/, '');
  const first = text.indexOf(wanted);
  if (wanted === '' || first < 0 || text.indexOf(wanted, first + 1) >= 0) {
    return null;
  }
  const rest = text.slice(first + wanted.length);
  if (!/(^|\n)$/.test(text.slice(0, first)) || goesOn(rest)) {
    return null;
  }
  return text.slice(0, first) + accepted.replace(/\n$/, '') + rest;
}

/** Whether what follows still belongs to the function: its line goes on, or indented code comes next. */
function goesOn(rest: string): boolean {
  if (rest !== '' && !rest.startsWith('\n')) {
    return true;
  }
  const next = rest.split('\n').find(line => !/^\s*(#.*)?$/.test(line));
  return next !== undefined && /^\s/.test(next);
}

/** Whether the cell still holds the text a proposal was made for. */
export function holds(source: string, baseline: string): boolean {
  return applied(source, baseline, baseline) !== null;
}
