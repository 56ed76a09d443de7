// Records what no router keeps, whatever page is shown: chosen attributes, and routers without a history of their own.
import { useEffect } from "preact/hooks";
import type { Source } from "../app.ts";
import { RANGES, ROUTER_CHARTS, isCounter, keyOf, label, readCharted, unitOf } from "../data/charts.ts";
import type { Charted } from "../data/charts.ts";
import { addressOf, longName } from "../data/management.ts";
import type { Row } from "../data/management.ts";
import type { Past } from "../data/past.ts";
import type { Feed } from "../data/poller.ts";
import type { Table } from "../data/rates.ts";
import { stored, useApp, useFeeds, useNetwork, useRoute } from "./hooks.ts";
import type { App } from "../app.ts";

export const MOST_RECORDED = 12; // routers
const EVERY = 3000; // ms
const PROBED_EVERY = 600_000; // ms between two questions whether a router keeps a history
const COARSE = RANGES.at(-1)!;

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
    const probes = useFeeds<Past | null>(targets.map((target) => ({ ...app.past(target, [ROUTER_CHARTS[0]!.name], COARSE.step, COARSE.seconds), interval: PROBED_EVERY })));
    const recorded = targets.filter((_, index) => probes[index]!.value === null);
    const chosen = readCharted(stored("charts") ?? "[]");
    const extra = chosen.filter(({ type, name }) => type !== "router" || !ROUTER_CHARTS.some((each) => each.name === name));
    const feeds = useFeeds<Table | Row>([
        ...recorded.map((target) => app.summary(target)),
        ...extra.map((each) => entity(app, each)),
    ] as Source<Table | Row>[]);
    useEffect(() => {
        const now = Date.now() / 1000;
        recorded.forEach((target, index) => record(app, target.id, feeds[index] as Feed<Table>, now));
        extra.forEach((each, index) => {
            const feed = feeds[recorded.length + index] as Feed<Row> | undefined;
            if (feed?.value === undefined || feed.error !== null || performance.now() - feed.at > 1000) return;
            const value = feed.value[each.name];
            if (typeof value !== "number") return;
            app.history.add(keyOf(each), label(each), unitOf(each.name), now, isCounter(each.name) ? app.history.rate(keyOf(each), now, value) : value);
        });
    });
    return null;
}

function record(app: App, router: string, feed: Feed<Table> | undefined, now: number): void {
    const row = feed?.value?.rows[0];
    if (feed?.value === undefined || row === undefined || feed.error !== null || performance.now() - feed.at > 1000) return;
    for (const { name } of ROUTER_CHARTS) {
        const value = isCounter(name) ? feed.value.rate(row, name) : row[name];
        if (typeof value === "number") app.history.add(keyOf({ router, type: "router", identity: "", name }), router, unitOf(name), now, value);
    }
}
