// What the build and the tests tell esbuild alike: rhea is written for Node, the shims are what it uses of that.
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const SHIMS = join(dirname(fileURLToPath(import.meta.url)), "src/amqp/shims");

export const SHARED = {
    bundle: true,
    format: "esm",
    jsx: "automatic",
    jsxImportSource: "preact",
    inject: [join(SHIMS, "globals.ts")],
    alias: { util: join(SHIMS, "util.ts"), os: join(SHIMS, "nothing.ts"), path: join(SHIMS, "nothing.ts") },
    define: { global: "globalThis" },
    logLevel: "warning",
};
