// Consoles without a browser, as many as wanted, each with its overview open: what a page asks the router, and how often.
// node --experimental-websocket overviews.mjs URL COUNT. For each line of standard input it says in one line of JSON what
// has happened since the one before: consoles that are connected, answers, the milliseconds of half of them, of the slowest.
import { App } from "../src/app.ts";
import type { Network, Source } from "../src/app.ts";
import type { Value } from "../src/data/management.ts";

interface Host {
    argv: string[];
    exit(): never;
    stdout: { write(text: string): void };
    stdin: { on(event: "data" | "end", call: (text: Uint8Array) => void): void };
}

Object.assign(globalThis, { document: { visibilityState: "visible", addEventListener: () => undefined } });
const host = (globalThis as unknown as { process: Host }).process;
const [url, count] = [host.argv[2]!, Number(host.argv[3])];
let times: number[] = [];

/** A console whose requests are timed. */
function open(): App {
    const app: App = new App(url, async (address, properties, body, follows) => {
        const began = performance.now();
        const answer = await app.client.request(address, properties, body, follows);
        times.push(performance.now() - began);
        return answer;
    });
    app.client.open();
    return app;
}

/** Keep the feeds going that the overview and the recorder of charts have. */
function look(app: App): void {
    const kept = new Map<string, () => void>();
    const keep = (source: Source<unknown>, changed: () => void): void => {
        if (!kept.has(source.key)) kept.set(source.key, app.poller.watch(source.key, source.fetch, source.interval, changed));
    };
    const known = (): void => {
        const network = app.poller.get<Network>("network").value;
        const targets = network?.targets ?? [];
        const wanted: Source<unknown>[] = [
            app.network(), ...targets.map((each) => app.summary(each)), ...targets.slice(0, 1).map((each) => app.workers(each)),
            ...app.watchedTargets(network).map((each) => app.watched(each)),
        ];
        const keys = new Set(wanted.map((each) => each.key));
        for (const [key, end] of kept) {
            if (keys.has(key)) continue;
            end();
            kept.delete(key);
        }
        for (const source of wanted) keep(source, source.key === "network" ? known : () => undefined);
    };
    known();
}

const apps = Array.from({ length: count }, open);
apps.forEach(look);
host.stdin.on("end", () => host.exit());
host.stdin.on("data", () => {
    const sorted = times.sort((one, other) => one - other);
    times = [];
    const report: Record<string, Value> = {
        open: apps.filter((app) => app.client.state === "open" && app.poller.get<Network>("network").value !== undefined).length,
        answers: sorted.length, median: sorted[sorted.length >> 1] ?? 0, slowest: sorted.at(-1) ?? 0,
    };
    host.stdout.write(`${JSON.stringify(report)}\n`);
});
