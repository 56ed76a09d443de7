import assert from "node:assert/strict";
import { test } from "node:test";
import { addEdge, addNode, build } from "../src/data/graph.ts";
import type { Graph, RouterData } from "../src/data/graph.ts";
import { Layout } from "../src/data/layout.ts";
import type { Row } from "../src/data/management.ts";
import { pathOf } from "../src/data/path.ts";
import { table } from "./retail.ts";

const router = (id: string, rows: Row[] = []): RouterData => ({ id, kind: "router", connections: table(rows), silent: false });

test("both ends tell of a connection, and its messages count once", () => {
    const graph = build([
        router("A", [{ role: "inter-router", container: "B", deliveriesIn: 5, deliveriesOut: 7, cost: 3 }]),
        router("B", [{ role: "inter-router", container: "A", deliveriesIn: 7, deliveriesOut: 5, cost: 3 }]),
    ], []);
    assert.deepEqual([...graph.edges.values()], [{ id: "A\nB", from: "A", to: "B", cost: 3, there: 7, back: 5, standby: false }]);
});

test("of a router that does not say, its neighbour does; names of 1.19 are no numbers", () => {
    const silent: RouterData = { id: "B", kind: "router", connections: undefined, silent: true };
    const graph = build([router("A", [
        { role: "inter-router", container: "B", deliveriesIn: 5, deliveriesOut: 7, cost: "connection/x" },
        { role: "inter-router", container: "gone", deliveriesIn: 1 },
    ]), silent], []);
    assert.deepEqual([...graph.edges.values()], [{ id: "A\nB", from: "A", to: "B", cost: null, there: 7, back: 5, standby: false }]);
    assert.ok(graph.nodes.get("B")!.silent);
});

test("names with colons are one line in both directions", () => {
    const graph = build([
        router("b:1", [{ role: "inter-router", container: "a:1", deliveriesIn: 5, deliveriesOut: 7 }]),
        router("a:1", [{ role: "inter-router", container: "b:1", deliveriesIn: 7, deliveriesOut: 5 }]),
    ], []);
    assert.equal(graph.edges.size, 1);
});

test("the path goes from producers to consumers", () => {
    const graph = build([
        router("A", [{ role: "normal", container: "shop", identity: "1", host: "h" }]), router("B"),
        router("C", [{ role: "normal", container: "billing", identity: "2", host: "h" }]), router("D"),
    ], [{ id: "A", linkState: ["B", "D"] }, { id: "B", linkState: ["A", "C"] }, { id: "C", linkState: ["B"] }]);
    const hop = (nextHop: string): Row => ({ router: "C", nextHop });
    const answers = new Map<string, Row>([
        ["A", { records: [{ producerCount: 1, producers: [{ connection: "1" }], consumers: [], remotes: [hop("B")] }] }],
        ["B", { records: [{ producerCount: 0, consumers: [], remotes: [hop("C")] }] }],
        ["C", { records: [{ consumerCount: 1, consumers: [{ connection: "2" }], producers: [], remotes: [] }] }],
    ]);
    const path = pathOf(graph, answers);
    assert.deepEqual([...path.edges].sort(), ["A\nB", "B\nC", "clients:A:shop\nA", "clients:C:billing\nC"]);
    assert.ok(!path.nodes.has("D"));
});

function ring(count: number, clients = 0): Graph {
    const rows = Array.from({ length: clients }, (_, index) => ({ role: "normal", container: `${String.fromCharCode(97 + index)}-client`, host: "h" }));
    const ids = Array.from({ length: count }, (_, index) => `R${index}`);
    return build(ids.map((id) => router(id, rows)), ids.map((id, index) => ({ id, linkState: [ids[(index + 1) % count]!, ids[(index * 7 + 3) % count]!].filter((each) => each !== id) })));
}

function laid(graph: Graph, layout = new Layout()): Layout {
    layout.take(graph);
    while (layout.improve(1000, () => 0));
    return layout;
}

test("the same network gets the same picture, and nobody sits on another", () => {
    const [one, other] = [laid(ring(30)), laid(ring(30))];
    assert.deepEqual(one.kept(), other.kept());
    const places = [...one.places.values()];
    for (const [index, place] of places.entries()) {
        for (const next of places.slice(index + 1)) assert.ok(Math.hypot(place.x - next.x, place.y - next.y) > 40);
    }
});

test("nodes keep their places when one comes and one goes", () => {
    const before = laid(ring(30));
    const kept = before.kept();
    const graph = ring(30);
    graph.nodes.delete("R4");
    for (const [id, edge] of graph.edges) if (edge.from === "R4" || edge.to === "R4") graph.edges.delete(id);
    addNode(graph, "new", "router", "new", null);
    addEdge(graph, "R1", "new");
    const after = laid(graph, before).kept();
    for (const [id, place] of Object.entries(kept)) assert.deepEqual(after[id], place);
    assert.ok(Math.hypot(after["new"]![0] - after["R1"]![0], after["new"]![1] - after["R1"]![1]) < 400);
});

test("clients keep their slot beside their router", () => {
    const layout = laid(ring(2, 6));
    const many = ring(2, 6);
    const node = many.nodes.get("clients:R0:e-client")!;
    const before = layout.place(node);
    many.nodes.delete("clients:R0:b-client");
    layout.take(many);
    assert.deepEqual(layout.place(node), before);
});

test("a router without neighbours at first moves to them once", () => {
    const graph = ring(5);
    addNode(graph, "edge", "edge", "edge", null);
    const layout = laid(graph);
    assert.ok(!("edge" in layout.kept()));
    addEdge(graph, "R0", "edge");
    laid(graph, layout);
    const [edge, at] = [layout.places.get("edge")!, layout.places.get("R0")!];
    assert.ok(Math.hypot(edge.x - at.x, edge.y - at.y) < 500);
});

test("300 routers and 3,000 groups of clients are laid out in slices, which end when their time does", () => {
    const graph = ring(300, 10);
    assert.equal(graph.nodes.size, 3300);
    const layout = new Layout();
    layout.take(graph);
    let [time, slices] = [0, 0];
    for (let going = true; going; slices += 1) {
        const began = time;
        going = layout.improve(6, () => (time += 1));
        assert.ok(time - began <= 9, `${time - began} ms`);
    }
    assert.ok(slices > 20 && slices < 60, `${slices} slices`);
});
