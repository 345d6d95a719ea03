// tsc, then JupyterLab's own builder, then a stamp of what it was built from (a test compares it with the sources).
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));

/** SHA-256 over names and contents of everything that the build reads, in order of name. */
export function stamp() {
  const files = ['src', 'style', 'schema'].flatMap(folder =>
    readdirSync(join(here, folder)).map(name => `${folder}/${name}`)
  );
  const hash = createHash('sha256');
  for (const name of [...files, 'package.json', 'tsconfig.json'].sort()) {
    hash.update(`${name}\n`).update(readFileSync(join(here, name)));
  }
  return hash.digest('hex');
}

/** The builder reads which packages JupyterLab shares from a folder with its package.json. */
function core() {
  const folder = mkdtempSync(join(tmpdir(), 'core-'));
  copyFileSync(join(here, 'node_modules/@jupyterlab/core-meta/core.package.json'), join(folder, 'package.json'));
  return folder;
}

function run(...words) {
  execFileSync(process.execPath, words, { cwd: here, stdio: 'inherit' });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  rmSync(join(here, 'built'), { recursive: true, force: true });
  run('node_modules/typescript/bin/tsc');
  run('node_modules/@jupyterlab/builder/lib/build-labextension.js', '--core-path', core(), '.');
  rmSync(join(here, 'built', 'schemas', 'maxkernel-nb', 'package.json.orig'), { force: true });
  writeFileSync(join(here, 'built', 'built-from.txt'), `${stamp()}\n`);
}
