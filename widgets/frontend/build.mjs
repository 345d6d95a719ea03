// Bundles src/ into ../static/. With --check it only compares, so that CI sees a forgotten build.
import { build } from "esbuild";
import { readFile, writeFile, mkdir } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "..", "static");
const checking = process.argv.includes("--check");

const options = {
  entryPoints: [join(here, "src/panel.ts"), join(here, "src/panel.css")],
  bundle: true,
  format: "esm",
  target: ["es2021", "chrome110", "firefox110", "safari16"],
  minify: true,
  charset: "utf8",
  legalComments: "none",
  outdir: out,
  write: false,
  logLevel: "warning",
};

if (process.argv.includes("--sizes")) {
  await printSizes();
  process.exit(0);
}
const result = await build(options);

await mkdir(out, { recursive: true });
let stale = 0;
for (const file of result.outputFiles) {
  if (!checking) {
    await writeFile(file.path, file.contents);
    continue;
  }
  const committed = await readFile(file.path).catch(() => Buffer.alloc(0));
  if (!committed.equals(Buffer.from(file.contents))) {
    stale += 1;
    console.error(`${file.path} is not what src/ builds; run npm run build and commit it.`);
  }
}
process.exit(stale ? 1 : 0);

// What each library costs: gzipped bytes of the bundle with it, less those without it.
async function printSizes() {
  const script = (outputs) => outputs.find((file) => file.path.endsWith(".js")).contents;
  const gzipped = async (more) => gzipSync(script((await build({ ...options, ...more })).outputFiles)).length;
  const whole = await build({ ...options, metafile: true });
  const all = gzipSync(script(whole.outputFiles)).length;
  const { dependencies } = JSON.parse(await readFile(join(here, "package.json"), "utf8"));
  let own = all;
  for (const name of Object.keys(dependencies)) { // what a library itself needs counts as its own
    const cost = all - await gzipped({ external: [name, `${name}/*`] });
    own -= cost;
    console.log(`${name.padEnd(16)} ${(cost / 1000).toFixed(1).padStart(6)} KB gzipped`);
  }
  console.log(`${"our own".padEnd(16)} ${(own / 1000).toFixed(1).padStart(6)} KB gzipped`);
  const css = gzipSync(whole.outputFiles.find((file) => file.path.endsWith(".css")).contents).length;
  console.log(`${"panel.js".padEnd(16)} ${(all / 1000).toFixed(1).padStart(6)} KB gzipped, panel.css ${(css / 1000).toFixed(1)} KB`);
}
