// Bundles src/ into ../static/. With --check it only compares, so that CI sees a forgotten build.
import { build } from "esbuild";
import { readFile, writeFile, mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "..", "static");
const checking = process.argv.includes("--check");

const result = await build({
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
});

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
