// Keeps the history going, whatever page is shown.
import { useEffect } from "preact/hooks";
import type { Source } from "../app.ts";
import { ROUTER_CHARTS, WORKER_CHARTS, isCounter, keyOf, label, readCharted, unitOf } from "../data/charts.ts";
import type { Charted } from "../data/charts.ts";
import { quantile } from "../data/latency.ts";
import { addressOf, longName, text } from "../data/management.ts";
import type { Row } from "../data/management.ts";
import type { Feed } from "../data/poller.ts";
import type { Table } from "../data/rates.ts";
import { stored, useApp, useFeeds, useNetwork, useRoute } from "./hooks.ts";
import type { App } from "../app.ts";

export const MOST_RECORDED = 12; // routers
const EVERY = 3000; // ms

/** One entity, read for a chart. */
function entity(app: App, { router, type, identity }: Charted): Source<Row> {
    return {
        key: `read/${router}/${type}/${identity}`, interval: EVERY,
        fetch: async () => {
            const asked = { operation: "READ", type: longName(type), identity };
            return (await app.client.request(addressOf(app.targetOf(router)), asked)).body as Row;
        },
    };
}

export function Recorder(): null {
    const app = useApp();
    useRoute(); // the charts page changes what is chosen
    const network = useNetwork();
    const targets = (network?.targets ?? []).slice(0, MOST_RECORDED);
    const chosen = readCharted(stored("charts") ?? "[]");
    const extra = chosen.filter(({ router, type, name }) =>
        type !== "router" || !ROUTER_CHARTS.some((each) => each.name === name) || !targets.some((each) => each.id === router));
    const feeds = useFeeds<Table | Row>([
        ...targets.map((target) => app.summary(target)),
        ...targets.slice(0, 1).map((target) => app.workers(target)),
        ...extra.map((each) => entity(app, each)),
    ] as Source<Table | Row>[]);
    useEffect(() => {
        const now = Date.now() / 1000;
        targets.forEach((target, index) => record(app, target.id, feeds[index] as Feed<Table>, "router", ROUTER_CHARTS, now));
        if (targets[0] !== undefined) record(app, targets[0].id, feeds[targets.length] as Feed<Table>, "worker", WORKER_CHARTS, now);
        extra.forEach((each, index) => {
            const feed = feeds[targets.length + 1 + index] as Feed<Row> | undefined;
            if (feed?.value === undefined || feed.error !== null || performance.now() - feed.at > 1000) return;
            const value = feed.value[each.name];
            if (typeof value !== "number") return;
            app.history.add(keyOf(each), label(each), unitOf(each.name), now, isCounter(each.name) ? app.history.rate(keyOf(each), now, value) : value);
        });
    });
    return null;
}

/** null: nothing was settled since the look before; undefined: there was none. */
function latency(table: Table, row: Row, share: number): number | null | undefined {
    const counts = table.added(row, "latencyHistogram");
    return counts === null ? undefined : quantile(counts, share);
}

function record(app: App, router: string, feed: Feed<Table> | undefined, type: string, charts: { name: string; share?: number }[], now: number): void {
    if (feed?.value === undefined || feed.error !== null || performance.now() - feed.at > 1000) return;
    for (const row of feed.value.rows) {
        const identity = type === "worker" ? text(row["worker"]) : "";
        for (const { name, share } of charts) {
            const value = share !== undefined ? latency(feed.value, row, share) : isCounter(name) ? feed.value.rate(row, name) : row[name];
            // No delivery within the interval: a gap in a chart of latency.
            if (typeof value !== "number" && !(share !== undefined && value === null)) continue;
            const title = type === "worker" ? `worker ${identity}` : router;
            app.history.add(keyOf({ router, type, identity, name }), title, unitOf(name), now, value);
        }
    }
}
