// Bundles the console into the folder that the router serves: node build.mjs [FOLDER]
import { build } from "esbuild";
import { cp, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { SHARED } from "./shared.mjs";

const HERE = dirname(fileURLToPath(import.meta.url));
const INTO = process.argv[2] ?? join(HERE, "..", "supervisor", "web", "console");
const MOST = 400_000; // octets of all files, compressed

await rm(INTO, { recursive: true, force: true });
await mkdir(INTO, { recursive: true });
await build({
    ...SHARED,
    entryPoints: { console: join(HERE, "src/main.tsx") },
    outdir: INTO,
    minify: true,
    target: ["es2022"],
    legalComments: "none",
});
for (const name of ["index.html", "icon.svg"]) await cp(join(HERE, "src", name), join(INTO, name));

// Beside each file what a browser gets that takes compressed ones.
let all = 0;
for (const name of await readdir(INTO)) {
    const compressed = gzipSync(await readFile(join(INTO, name)), { level: 9 });
    await writeFile(join(INTO, `${name}.gz`), compressed);
    all += compressed.length;
}
if (all > MOST) {
    console.error(`The console has ${all} octets compressed, and may have ${MOST}`);
    process.exit(1);
}
console.log(`console: ${Math.round(all / 1000)} kB compressed`);
