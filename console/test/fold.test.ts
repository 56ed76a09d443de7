import assert from "node:assert/strict";
import { cpuUsage } from "node:process";
import { test } from "node:test";
import { fold } from "../src/data/fold.ts";
import type { Filter, Folded } from "../src/data/fold.ts";
import { build } from "../src/data/graph.ts";
import type { Graph } from "../src/data/graph.ts";
import { Room, boxOf, nameNodes } from "../src/data/labels.ts";
import type { Box } from "../src/data/labels.ts";
import { Layout, RADIUS } from "../src/data/layout.ts";
import type { Place } from "../src/data/layout.ts";
import type { Row } from "../src/data/management.ts";
import { cutMiddle, labelsOf } from "../src/data/names.ts";
import { foldPath, pathOf } from "../src/data/path.ts";
import { CITIES, STORES, connections, linkState, routers } from "./retail.ts";

const whole = (): Graph => build(routers(), linkState);
const folded = (open: string[] = [], hidden: Filter[] = ["standby"], graph = whole()): Folded => fold(graph, { open: new Set(open), hidden: new Set(hidden) });
const ids = ({ graph }: Folded, kind: string): string[] => [...graph.nodes.values()].filter((node) => node.kind === kind).map((node) => node.id).sort();
const EDGES = "edges:frankfurt-1";

function laid(graph: Graph, layout = new Layout()): Layout {
    layout.take(graph);
    while (layout.improve(1000, () => 0));
    return layout;
}

test("edge routers and clients of a router are one node each, with their number", () => {
    const { graph, shown } = folded();
    assert.deepEqual(ids(folded(), "edges"), [EDGES, "edges:sydney-1"]);
    assert.equal(graph.nodes.get(EDGES)!.members.length, 9);
    assert.deepEqual(ids(folded(), "edge"), [STORES[12]], "the only edge router of virginia-1");
    assert.equal(graph.nodes.get("crowd:frankfurt-1")!.connections.length, 27);
    assert.equal(shown.get(STORES[0]!), EDGES);
    assert.ok(graph.nodes.size < 30, `${graph.nodes.size} nodes`);
});

test("an open group shows its members, by their lines to it", () => {
    const { graph } = folded([EDGES]);
    assert.equal(ids(folded([EDGES]), "edge").length, 10);
    assert.ok(graph.nodes.get(EDGES)!.open);
    assert.ok([...graph.edges.values()].some(({ from, to }) => [from, to].includes(STORES[0]!) && [from, to].includes(EDGES)));
    const sum = [...graph.edges.values()].find(({ from, to }) => from === EDGES && to === "frankfurt-1")!;
    assert.equal(sum.there, 9 * 4);
});

test("standby links are left out unless the reader wants them", () => {
    const all = whole();
    assert.equal([...all.edges.values()].filter((edge) => edge.standby).length, 13);
    assert.ok([...folded().graph.edges.values()].every((edge) => !edge.standby));
    assert.ok([...folded([], []).graph.edges.values()].some((edge) => edge.standby && edge.to === "frankfurt-2"));
});

test("kinds that are left out take their clients and lines with them", () => {
    const { graph } = folded([], ["standby", "edge"]);
    assert.deepEqual([...graph.nodes.values()].filter((node) => /store/.test(node.id + (node.at ?? ""))), []);
    for (const { from, to } of graph.edges.values()) assert.ok(graph.nodes.has(from) && graph.nodes.has(to));
    assert.deepEqual(ids(folded([], ["standby", "clients", "broker"]), "crowd"), []);
});

test("edge routers are left out until their router is known, in a network that has one", () => {
    const unknown = routers().map((each) => ({ ...each, connections: undefined }));
    assert.deepEqual(ids(folded([], [], build(unknown, linkState)), "edge"), []);
    assert.deepEqual(ids(folded([], [], build(unknown.slice(8), [])), "edge").length, 13);
});

test("the path of an address goes from clients of edge routers over their uplinks to consumers", () => {
    const row = (id: string, container: string): string => String(connections(id).find((each) => each["container"] === container)!["identity"]);
    const hop = (router: string, nextHop: string): Row => ({ router, nextHop });
    const record = (fields: Row): Row => ({ records: [{ producers: [], consumers: [], remotes: [], ...fields }] });
    const answers = new Map<string, Row>([
        [STORES[0]!, record({ producerCount: 1, producers: [{ connection: row(STORES[0]!, "till-0-1") }] })],
        ["frankfurt-1", record({ remotes: [hop("sydney-1", "singapore-1")] })],
        ["singapore-1", record({ remotes: [hop("sydney-1", "sydney-1")] })],
        ["sydney-1", record({ consumerCount: 1, consumers: [{ connection: row("sydney-1", STORES[9]!) }] })],
        [STORES[9]!, record({ consumerCount: 1, consumers: [{ connection: row(STORES[9]!, "till-9-1") }] })],
    ]);
    const all = whole();
    const path = pathOf(all, answers);
    const lines = [...path.edges].map((id) => id.split("\n").sort().join(" – "));
    assert.deepEqual(lines.sort(), [
        `clients:${STORES[0]}:till-* – ${STORES[0]}`, `clients:${STORES[9]}:till-* – ${STORES[9]}`, "frankfurt-1 – singapore-1",
        `frankfurt-1 – ${STORES[0]}`, "singapore-1 – sydney-1", `${STORES[9]} – sydney-1`,
    ].map((each) => each.split(" – ").sort().join(" – ")).sort());
    const short = foldPath(folded([], ["standby"], all), path);
    assert.ok(short.nodes.has(EDGES) && short.nodes.has("edges:sydney-1"));
    assert.equal(short.edges.size, 4, [...short.edges].join());
    const open = foldPath(folded([EDGES], ["standby"], all), path);
    assert.ok(open.edges.size >= 6 && [...open.edges].some((id) => id.includes(STORES[0]!) && id.includes(EDGES)), "over the open group, whole");
});

function overlaps(graph: Graph, layout: Layout): string[] {
    const nodes = [...graph.nodes.values()].map((node) => ({ node, place: layout.place(node) }));
    return nodes.flatMap(({ node, place }, index) => nodes.slice(index + 1).filter((other) =>
        Math.hypot(place.x - other.place.x, place.y - other.place.y) < RADIUS[node.kind] + RADIUS[other.node.kind] + 4,
    ).map((other) => `${node.id} and ${other.node.id}`));
}

test("no node of 21 routers covers another, whatever is open", () => {
    const layout = new Layout();
    const all = [...folded().graph.nodes.values()].filter((node) => node.members.length).map((node) => node.id);
    for (const open of [[], ...all.map((id) => [id]), all]) {
        const { graph } = folded(open);
        laid(graph, layout);
        assert.deepEqual(overlaps(graph, layout), [], `open: ${open.join()}`);
    }
});

test("routers are where they were after a group was opened and folded again", () => {
    const layout = laid(folded().graph);
    const places = (): [string, Place][] => CITIES.map((id) => [id, layout.place(folded().graph.nodes.get(id)!)]);
    const before = places();
    laid(folded([EDGES]).graph, layout);
    laid(folded().graph, layout);
    assert.deepEqual(places(), before);
});

/** The names of a graph on a canvas, as the drawing places them; 7 px for each letter. */
function named(graph: Graph, layout: Layout, width: number, height: number): { boxes: Box[]; discs: Box[]; routers: number } {
    const nodes = [...graph.nodes.values()].filter((node) => node.kind !== "clients" && node.kind !== "crowd")
        .sort((one, other) => Number(one.kind !== "router") - Number(other.kind !== "router") || (one.id < other.id ? -1 : 1));
    const places = [...graph.nodes.values()].map((node) => layout.place(node));
    const [left, right] = [Math.min(...places.map((each) => each.x)), Math.max(...places.map((each) => each.x))];
    const [top, bottom] = [Math.min(...places.map((each) => each.y)), Math.max(...places.map((each) => each.y))];
    const scale = Math.min(1.4, width / (right - left + 190), height / (bottom - top + 120));
    const labels = labelsOf(nodes.map((node) => node.label), 24);
    const forms = (text: string): { text: string; width: number }[] => [text, cutMiddle(text, 12)].map((each) => ({ text: each, width: 7 * [...each].length }));
    const discs = nodes.map((node) => ({ at: { x: (layout.place(node).x - left + 95) * scale, y: (layout.place(node).y - top + 60) * scale }, radius: RADIUS[node.kind] * Math.max(0.34, Math.min(1.25, scale)) }));
    const found = nameNodes(new Room(), nodes.map((node, index) => ({ ...discs[index]!, forms: forms(labels.get(node.label)!), wanted: false })), (place) => place);
    return {
        boxes: found.filter((each) => each !== null).map(({ place, width: wide }) => boxOf(place, wide)),
        discs: discs.map(({ at, radius }) => ({ left: at.x - radius, top: at.y - radius, right: at.x + radius, bottom: at.y + radius })),
        routers: found.filter((each, index) => each !== null && nodes[index]!.kind === "router").length,
    };
}

const meet = (one: Box, other: Box): boolean => one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;

function assertApart({ boxes, discs }: { boxes: Box[]; discs: Box[] }): void {
    for (const [index, box] of boxes.entries()) {
        assert.ok(boxes.slice(index + 1).every((other) => !meet(box, other)), `name ${index} covers a name`);
        assert.ok(discs.every((disc) => !meet(box, disc)), `name ${index} covers a node`);
    }
}

test("names of 21 routers cover nobody, and all routers have theirs", () => {
    for (const [width, height] of [[390, 560], [1050, 600], [1690, 900]] as const) {
        const { graph } = folded();
        const found = named(graph, laid(graph), width, height);
        assertApart(found);
        assert.ok(width < 400 || found.routers === 8, `${found.routers} routers have a name on ${width} px`);
    }
});

test("300 routers with edge routers and clients are placed in bounded time, and no name covers another", () => {
    const name = (index: number): string => `router-${index}.messaging.svc.cluster.local`;
    const data = Array.from({ length: 300 }, (_, index) => ({
        id: name(index), kind: "router" as const, silent: false,
        connections: { at: 0, added: () => null, rate: () => 1, rows: [
            ...Array.from({ length: 10 }, (_, client): Row => ({ identity: String(client), role: "normal", container: `${"abcdefghij".charAt(client)}-service-${client}`, host: "h" })),
            ...(index % 20 ? [] : [0, 1, 2, 3].map((edge): Row => ({ identity: `e${edge}`, role: "edge", container: `kiosk-${index}-${edge}` }))),
        ] },
    }));
    const kiosks = data.filter((_, index) => index % 20 === 0).flatMap(({ id }, index) => [0, 1, 2, 3].map((edge) => ({
        id: `kiosk-${index * 20}-${edge}`, kind: "edge" as const, silent: false,
        connections: { at: 0, added: () => null, rate: () => 1, rows: [{ identity: "1", role: "edge", container: id, active: true } as Row] },
    })));
    const state = data.map(({ id }, index) => ({ id, linkState: [name((index + 1) % 300), name((index * 7 + 3) % 300)].filter((each) => each !== id) }));
    const began = cpuUsage().user;
    const { graph } = fold(build([...data, ...kiosks], state), { open: new Set(), hidden: new Set(["standby"]) });
    assert.equal(graph.nodes.size, 300 + 300 + 15);
    const layout = laid(graph);
    const spent = (cpuUsage().user - began) / 1e6;
    assert.ok(spent < 5, `${spent} s of processor time`);
    assert.deepEqual(overlaps(graph, layout), []);
    for (const width of [1050, 1690, 12_000]) assertApart(named(graph, layout, width, width * 0.6));
});
