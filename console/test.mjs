// Runs the tests of what needs no document, with Node's own runner: node test.mjs
import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { SHARED } from "./shared.mjs";

const HERE = dirname(fileURLToPath(import.meta.url));
const into = await mkdtemp(join(tmpdir(), "console-test-"));
try {
    const names = (await readdir(join(HERE, "test"))).filter((name) => name.endsWith(".test.ts"));
    await build({
        ...SHARED, external: ["node:*"], outdir: into, outExtension: { ".js": ".mjs" },
        entryPoints: names.map((name) => join(HERE, "test", name)),
    });
    const made = (await readdir(into)).map((name) => join(into, name));
    process.exitCode = spawnSync(process.execPath, ["--test", ...made], { stdio: "inherit" }).status ?? 1;
} finally {
    await rm(into, { recursive: true });
}
