import assert from "node:assert/strict";
import { test } from "node:test";
import { keysOf, prove } from "../src/amqp/scram.ts";
import { addressClass, addressText, isInternal } from "../src/data/address.ts";
import { attend, stuckMessages } from "../src/data/attention.ts";
import type { Asked, Watched } from "../src/data/attention.ts";
import { isCounter, parseCharted, readCharted } from "../src/data/charts.ts";
import { duration, heading, octets, short } from "../src/data/format.ts";
import { History, KEPT_SECONDS, align } from "../src/data/history.ts";
import { explain, outcome, verdict } from "../src/data/explain.ts";
import type { Explained } from "../src/data/explain.ts";
import { quantile } from "../src/data/latency.ts";
import { Management, rowsOf } from "../src/data/management.ts";
import type { Row } from "../src/data/management.ts";
import { MOST_LINES, Past, condense } from "../src/data/past.ts";
import { Rates } from "../src/data/rates.ts";
import { collect, readSchema } from "../src/data/schema.ts";
import { stallOf } from "../src/data/stall.ts";

test("counters become rates; one that went back is not known", () => {
    const rates = new Rates((row) => String(row["identity"]));
    const at = (value: number): { identity: string; count: number } => ({ identity: "1", count: value });
    assert.equal(rates.table([at(10)], 0).rate(at(10), "count"), null);
    assert.equal(rates.table([at(30)], 2000).rate(at(30), "count"), 10);
    assert.equal(rates.table([at(5)], 4000).rate(at(5), "count"), null);
});

test("latency is that of the last interval", () => {
    const rates = new Rates((row) => String(row["worker"]));
    const at = (counts: number[]): Row => ({ worker: 0, latencyHistogram: counts });
    const after = (row: Row, ms: number): number[] | null => rates.table([row], ms).added(row, "latencyHistogram");
    assert.equal(after(at([1000, 0, 0]), 0), null);
    assert.deepEqual(after(at([1000, 0, 20]), 3000), [0, 0, 20]);
    assert.deepEqual(after(at([1000, 0, 20]), 6000), [0, 0, 0]);
    assert.equal(after(at([3, 0, 0]), 9000), null); // another worker has taken its place
    assert.equal(quantile([1000, 0, 20], 0.5), 1e-6);
    assert.equal(quantile([0, 0, 20], 0.5), 4e-6);
    assert.equal(quantile([0, 0, 0], 0.99), null);
});

test("a message waits although the first router can pass it on, and the words say why", () => {
    const there = { router: "A", reachable: true, verdict: "reachable at another router", records: [{ remotes: [{ router: "B" }] }] };
    const explained = (end: Row | null): Explained => ({
        answers: new Map<string, Row>([["A", there], ...(end === null ? [] : [["B", end] as const])]), errors: new Map(), ways: [["A", "B"]],
    });
    const stuck = { router: "B", reachable: false, verdict: "no credit: 1 consumer withholds it", records: [{ consumerCount: 1, consumersWithCredit: 0 }] };
    const works = { router: "B", reachable: true, verdict: "reachable", records: [{ consumersWithCredit: 1 }] };
    assert.deepEqual(verdict(there), { kind: "plain", words: "reachable at another router" });
    assert.deepEqual(verdict(stuck), { kind: "bad", words: "no credit: 1 consumer withholds it" });
    assert.deepEqual(outcome(explained(stuck)), { kind: "bad", words: "A message sent now waits: no credit: 1 consumer withholds it at B" });
    assert.deepEqual(outcome(explained(works)), { kind: "good", words: "A message sent now is taken at B" });
    assert.equal(outcome(explained(null)).kind, "plain");
    const doubtful = { router: "B", reachable: true, verdict: "reachable; an auto link does not work", autoLinksDown: 1, records: [{ consumersWithCredit: 1 }] };
    assert.deepEqual(outcome(explained(doubtful)), { kind: "warn", words: "A message sent now is taken at B; at B: reachable; an auto link does not work" });
    const held = { router: "B", reachable: true, verdict: "250 deliveries are stuck", records: [{ consumersWithCredit: 1, deliveriesStuck: 250 }] };
    assert.deepEqual(outcome(explained(held)), { kind: "bad", words: "A message sent now may wait: 250 deliveries are stuck at B" });
    const up = (end: Row): Explained => ({
        answers: new Map<string, Row>([["E", { router: "E", reachable: null, records: [] }], ["B", end]]), errors: new Map(), ways: [["E", "B"]],
    });
    assert.deepEqual(outcome(up(works)), { kind: "good", words: "A message sent now is taken at B" });
    assert.equal(outcome(up({ router: "B", reachable: false, verdict: "not in use", records: [] })).kind, "bad");
    const unused = { router: "E", reachable: null, verdict: "not in use here", records: [] };
    assert.equal(outcome({ answers: new Map([["E", unused]]), errors: new Map(), ways: [] }).kind, "plain");
    assert.deepEqual(verdict({ reachable: false }).words, "not reachable"); // of an older version
});

test("an address is explained by the own router, from another one on", async () => {
    const asked: unknown[] = [];
    const management = new Management((target, properties) => {
        asked.push([target, properties["path"], properties["first"]]);
        const body = { routers: [{ router: "E" }, { router: "H", error: "gone" }], ways: [["E", "H"]] };
        return Promise.resolve({ status: 200, description: "", body });
    });
    const found = await explain(management, "a", { id: "E", kind: "edge" });
    await explain(management, "a", { id: "", kind: "own" });
    assert.deepEqual(asked, [["$management", true, "_edge/E/$management"], ["$management", true, undefined]]);
    assert.deepEqual(found, { answers: new Map([["E", { router: "E" }]]), errors: new Map([["H", "gone"]]), ways: [["E", "H"]] });
});

test("rows have no prototype that a name could reach", () => {
    const [row] = rowsOf({ attributeNames: ["name", "__proto__"], results: [["x", "y"]] });
    assert.equal(row!["__proto__"], "y");
    assert.equal(({} as Record<string, unknown>)["y"], undefined);
});

test("a query asks page after page", async () => {
    const asked: unknown[] = [];
    const management = new Management((_, properties) => {
        asked.push([properties["offset"], properties["count"]]);
        const left = 1200 - Number(properties["offset"]);
        const results = Array.from({ length: Math.min(left, Number(properties["count"])) }, (_, index) => [left - index]);
        return Promise.resolve({ status: 200, description: "", body: { attributeNames: ["name"], results } });
    });
    assert.equal((await management.query({ id: "", kind: "own" }, "router.link", ["name"])).length, 1200);
    assert.deepEqual(asked, [[0, 500], [500, 500], [1000, 500]]);
});

test("a router that ignores pages is asked once or twice", async () => {
    for (const [rows, requests] of [[700, 1], [500, 2], [499, 1]] as const) {
        let asked = 0;
        const management = new Management(() => {
            asked += 1;
            const results = Array.from({ length: rows }, (_, index) => [index]);
            return Promise.resolve({ status: 200, description: "", body: { attributeNames: ["name"], results } });
        });
        assert.equal((await management.query({ id: "", kind: "own" }, "listener", ["name"])).length, rows);
        assert.equal(asked, requests);
    }
});

test("keys of addresses", () => {
    assert.equal(addressText("M0orders"), "orders");
    assert.equal(addressText("RNorth"), "North");
    assert.equal(addressClass("Hkiosk"), "edge");
    assert.ok(isInternal("L$management") && isInternal("M0$anything") && !isInternal("M1orders"));
});

test("numbers for people", () => {
    assert.deepEqual([short(0), short(1.25), short(9999), short(12_345), short(2_500_000)], ["0", "1.3", "9,999", "12.3 k", "2.5 M"]);
    assert.deepEqual([octets(1023), octets(1536), octets(5 << 20)], ["1023 B", "1.5 KiB", "5.0 MiB"]);
    assert.deepEqual([duration(59), duration(61), duration(7200), duration(90_000)], ["59 s", "1 min 1 s", "2 h 0 min", "1 d 1 h"]);
    assert.equal(heading("deliveriesIngressRouteContainer"), "Deliveries ingress route container");
});

test("15 minutes are kept, and silent series have gaps", () => {
    const history = new History();
    for (let second = 0; second < 2 * KEPT_SECONDS; second += 3) history.add("a", "A", "", second, second);
    const found = history.get("a")!;
    assert.ok(found.times.length <= KEPT_SECONDS / 3 + 1);
    assert.equal(found.times[0], 2 * KEPT_SECONDS - 3 - KEPT_SECONDS);
    const [times, one, other] = align([
        { title: "", unit: "", times: [1, 3], values: [1, 3] }, { title: "", unit: "", times: [2], values: [null] },
    ]);
    assert.deepEqual([times, one, other], [[1, 2, 3], [1, undefined, 3], [undefined, null, undefined]]);
});

const event = (time: number, text: string, count = 1, last = time): Row => ({ time, kind: "reload", text, count, last });

test("answers about the past are put together", () => {
    const past = new Past("A", 5, 20);
    past.add({ first: 105, figures: { a: [1, null, 3], b: [4, 5, 6] }, events: [event(103, "x"), event(110, "y")] });
    assert.deepEqual([past.since, past.series("a")!.values, past.series("none")], [115, [1, null, 3], undefined]);
    past.add({ first: 120, figures: { a: [7], b: [8] }, events: [event(110, "y", 2, 118)] });
    assert.deepEqual([past.times, past.series("b")!.values], [[105, 110, 115, 120], [4, 5, 6, 8]]);
    assert.deepEqual(past.events.map(({ text, count }) => [text, count]), [["x", 1], ["y", 2]]);
    past.add({ first: 0, figures: { a: [], b: [] }, events: [] });
    assert.equal(past.since, 120);
    past.add({ first: 125, figures: { a: [9], b: [9] }, events: [] });
    assert.deepEqual([past.times, past.series("a")!.values], [[110, 115, 120, 125], [null, 3, 7, 9]]);
    assert.deepEqual(past.events.map(({ text }) => text), ["y"]);
    past.add({ first: 115, figures: { a: [1], b: [1] }, events: [] }); // the router's clock was set back
    assert.deepEqual([past.times, past.series("a")!.values], [[110, 115], [null, 1]]);
});

test("charts of many routers show the total, the largest ones, and the others together", () => {
    const one = (title: string, values: (number | null)[]) => ({ title, unit: "", times: values.map((_, index) => 5 * index), values });
    const many = Array.from({ length: MOST_LINES + 3 }, (_, size) => one(`R${size}`, [size, size]));
    const { lines, omitted } = condense(many, true, 5);
    assert.deepEqual([lines.length, omitted, lines[0]!.total], [MOST_LINES + 1, 0, true]);
    assert.deepEqual(lines[0]!.values, [55, 55]);
    assert.deepEqual([lines[1]!.title, lines.at(-1)!.title, lines.at(-1)!.values], ["R4", "4 others", [6, 6]]);
    assert.deepEqual(condense(many, false, 5).omitted, 4);
    assert.deepEqual(condense(many.slice(0, 1), true, 5), { lines: many.slice(0, 1), omitted: 0 });
});

test("the total ends where one router has not answered yet, and goes on without a lost one", () => {
    const series = (last: number, value: number, first = 0) => {
        const times = Array.from({ length: last + 1 - first }, (_, index) => 5 * (first + index));
        return { title: "", unit: "", times, values: times.map(() => value) };
    };
    const total = (...all: ReturnType<typeof series>[]) => condense(all, true, 5).lines[0]!.values;
    assert.deepEqual(total(series(3, 1), series(2, 10)), [11, 11, 11]);
    assert.deepEqual(total(series(3, 1), series(3, 10, 1)), [11, 11, 11]);
    assert.deepEqual(total(series(9, 1), series(2, 10)), [11, 11, 11, 1, 1, 1, 1, 1, 1, 1]);
});

test("what is a counter", () => {
    for (const name of ["deliveriesIngress", "acceptedDeliveries", "deliveryCount", "totalDenials"]) assert.ok(isCounter(name), name);
    for (const name of ["deliveriesStuck", "unsettledCount", "connectionCount", "memoryUsage"]) assert.ok(!isCounter(name), name);
    assert.deepEqual(parseCharted("North/router.link/7/deliveryCount"), { router: "North", type: "router.link", identity: "7", name: "deliveryCount" });
    assert.equal(parseCharted("nonsense"), null);
    assert.deepEqual(readCharted('[{"router":1},{"router":"A","type":"b","identity":"c","name":"d"}]').length, 1);
    assert.deepEqual(readCharted("{"), []);
});

const SCHEMA = JSON.stringify({ entityTypes: { address: {
    fullyQualifiedType: "org.apache.qpid.dispatch.router.config.address", operations: ["CREATE"], description: "d",
    attributes: {
        name: { type: "string" }, identity: { type: "string" }, prefix: { type: "string", required: true },
        priority: { type: "integer" }, waypoint: { type: "boolean" }, distribution: { type: ["multicast", "closest"] },
        openProperties: { type: "properties" }, operStatus: { type: "string" },
    },
} } });

test("a form sends what the schema takes", () => {
    const [type] = readSchema(SCHEMA);
    assert.equal(type!.type, "router.config.address");
    const good = new Map([["prefix", " a "], ["priority", "7"], ["waypoint", "yes"], ["distribution", "closest"], ["openProperties", '{"a": 1}'], ["operStatus", "up"]]);
    assert.deepEqual(collect(type!, good, null).attributes, { prefix: "a", priority: 7, waypoint: true, distribution: "closest", openProperties: { a: 1 } });
    const bad = new Map([["priority", "2.5"], ["waypoint", "1"], ["distribution", "Closest"], ["openProperties", "[1]"]]);
    assert.deepEqual([...collect(type!, bad, null).errors.keys()].sort(), ["distribution", "openProperties", "prefix", "priority", "waypoint"]);
    const changed = collect(type!, new Map([["prefix", "a"], ["priority", "8"]]), { prefix: "a", priority: 7 });
    assert.deepEqual([changed.attributes, changed.errors.size], [{ priority: 8 }, 0]);
});

function watched(id: string, more: object = {}): Asked {
    const nothing = { router: { id }, connectors: [], profiles: [], autoLinks: [], vhosts: [], policies: [], links: [], connections: [] };
    return { target: { id, kind: "router" }, error: null, watched: { ...nothing, ...more } };
}

test("who withholds credit is one finding for all routers", () => {
    const consumer = { linkDir: "out", owningAddr: "M0letters", connectionId: "4", zeroCreditSeconds: 40, undeliveredCount: 250, deliveriesStuck: 250 };
    const producer = { linkDir: "in", owningAddr: "M0letters", connectionId: "12", zeroCreditSeconds: 30 };
    const found = attend([watched("North", { links: [producer] }), watched("West", { links: [consumer] })], new Map(), new Map(), 0);
    assert.deepEqual(found.map((each) => [each.weight, each.title, each.text]), [
        [3, "letters is blocked", "1 consumer grants no credit, for 40 s: connection 4 of West. 250 messages wait. 1 producer waits."],
    ]);
});

test("a finding offers to close the connection that holds deliveries, and names its client", () => {
    const holder = { linkDir: "out", owningAddr: "M0labels", connectionId: "6", zeroCreditSeconds: 0, deliveriesStuck: 34 };
    const client = { identity: "6", container: "printer", role: "normal" };
    const uplink = { identity: "1", container: "West", role: "edge" };
    const [found] = attend([
        watched("West", { links: [holder], connections: [client] }), watched("Kiosk", { links: [{ ...holder, connectionId: "1" }], connections: [uplink] }),
    ], new Map(), new Map(), 0);
    assert.equal(found!.text, "Consumers have got them and do not settle them: printer, connection 6 of West.");
    assert.deepEqual(found!.actions[1], { title: "Close connection 6 of West …", close: { router: "West", connection: client } });
});

test("producers without consumers are a note until one of them has sent", () => {
    const producer = { linkDir: "in", owningAddr: "M0early", connectionId: "3", zeroCreditSeconds: 5400, deliveryCount: 0 };
    const weight = (link: object): number => attend([watched("A", { links: [link] })], new Map(), new Map(), 0)[0]!.weight;
    assert.deepEqual([weight(producer), weight({ ...producer, deliveryCount: 7 })], [1, 2]);
});

test("a stall is what a router of Sluice says", () => {
    assert.deepEqual(stallOf({ stall: "window", stallSeconds: 12, stallText: "its session is shut" }), { reason: "window", seconds: 12, words: "its session is shut" });
    assert.equal(stallOf({ stall: null, stallSeconds: 0, stallText: null }), undefined);
    assert.equal(stallOf({ stall: "QDR.A", stallSeconds: "M0a" }), undefined); // another column's value, by Dispatch 1.19
});

test("a stuck message counts once, where its producer is", () => {
    const link = (linkDir: string, linkType: string): Row => ({ linkDir, linkType, deliveriesStuck: 250 });
    const there = (...links: Row[]): Watched => watched("A", { links }).watched!;
    assert.equal(stuckMessages([there(link("in", "endpoint"), link("out", "inter-router")), there(link("in", "inter-router"), link("out", "endpoint"))]), 250);
});

test("other findings, the worst first", () => {
    const trouble = {
        profiles: [{ name: "server", expiresInDays: 5 }, { name: "fine", expiresInDays: 300 }],
        connectors: [{ name: "up", connectionStatus: "SUCCESS" }, { name: "c", host: "h", port: "1", connectionStatus: "FAILED", connectionMsg: "[C7] Connection to h:1 failed: proton:io Connection refused - disconnected h:1" }],
        vhosts: [{ hostname: "open" }, { hostname: "shut", connectionsDenied: 3 }],
    };
    const denials = new Map<string, number>();
    const titles = (): string[] => attend([watched("A", trouble), { target: { id: "B", kind: "router" }, watched: undefined, error: "no answer" }], new Map([["C", 0]]), denials, 60_000).map((each) => each.title);
    assert.deepEqual(titles(), [
        "Router C has vanished", "A is not connected to h:1", "Router B does not answer", "A certificate of A expires in 5 days", "A has refused clients",
    ]);
    trouble.vhosts.push({ hostname: "narrow", senderDenied: 2 } as (typeof trouble.vhosts)[0]);
    assert.ok(titles().includes("A refuses clients: 2 since this page was opened"));
    const texts = attend([watched("A", trouble)], new Map(), denials, 0).map((each) => each.text);
    assert.ok(texts.includes("Connector c (): Connection refused"), texts.join("\n"));
    assert.ok(texts.includes("By policy, since its start: vhost shut 3 connections, vhost narrow 2 links. The log says whom, and why."), texts.join("\n"));
});

test("connections for which there is no vhost are refusals", () => {
    const found = attend([watched("A", { policies: [{ unknownVhostsDenied: 4 }] })], new Map(), new Map(), 0);
    assert.deepEqual(found.map((each) => each.text), ["By policy, since its start: unknown vhosts 4 connections. The log says whom, and why."]);
    assert.deepEqual(attend([watched("A", { policies: [{}] })], new Map(), new Map(), 0), []);
});

test("findings about a router stay when it no longer answers", () => {
    const { target, watched: known } = watched("A", { connectors: [{ name: "c", host: "h", port: "1", connectionStatus: "FAILED", connectionMsg: "refused" }] });
    const found = attend([{ target, watched: known, error: "There was no answer" }], new Map(), new Map(), 0);
    assert.deepEqual(found.map((each) => each.title), ["Router A does not answer", "A is not connected to h:1"]);
    assert.ok(found[1]!.text.startsWith("Before it stopped answering"));
});

test("SCRAM as RFC 7677 has it", async () => {
    const derive = (salt: string, rounds: number) => keysOf("SHA-256", "pencil", salt, rounds);
    const nonce = "rOprNGfwEbeRWgbNEkqO";
    const server = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const made = await prove("SHA-256", derive, `n=user,r=${nonce}`, server, nonce);
    assert.ok(made.final.endsWith("p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="));
    assert.equal(made.expected, "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    await assert.rejects(prove("SHA-256", derive, "n=user,r=x", server, "x"), /not one of SCRAM/);
});
