// The graph that is shown: edge routers and clients of a router folded into one node each, kinds left out.
import { addEdge, addNode, emptyGraph } from "./graph.ts";
import type { Graph, Node } from "./graph.ts";

/** Kinds that the reader can leave out. */
export type Filter = "edge" | "broker" | "clients" | "standby";

export interface View {
    /** Ids of folded nodes that the reader has opened. */
    open: Set<string>;
    hidden: Set<Filter>;
}

export interface Folded {
    graph: Graph;
    /** Id of the node that stands for each node of the whole graph; absent: left out. */
    shown: Map<string, string>;
    /** Ids of the edges that stand for each edge of the whole graph. */
    lines: Map<string, string[]>;
}

/** A router's edge routers are folded from this number on, and its groups of clients. */
export const FOLDED_EDGES = 3;
export const FOLDED_GROUPS = 2;

/** Fold a graph. Its nodes and edges are not changed. */
export function fold(whole: Graph, view: View): Folded {
    const graph = emptyGraph();
    const shown = new Map<string, string>();
    const hubs = new Map<string, string>(); // hub by member, of all groups, open or not
    for (const hub of hubsOf(whole)) {
        if (view.hidden.has(hub.kind === "edges" ? "edge" : "clients")) continue;
        const open = view.open.has(hub.id);
        // Clients of a folded edge router are not shown: their router is not.
        graph.nodes.set(hub.id, { ...hub, open });
        for (const member of hub.members) hubs.set(member, hub.id);
    }
    const interior = [...whole.nodes.values()].some((node) => node.kind === "router");
    for (const node of whole.nodes.values()) {
        if (node.kind !== "router" && view.hidden.has(node.kind as Filter)) continue;
        // Until a connection of an edge router is known, no place would be its own.
        if (node.kind === "edge" && node.at === null && !node.gone && interior) continue;
        const hub = hubs.get(node.id);
        const open = hub === undefined || graph.nodes.get(hub)!.open;
        if (open) graph.nodes.set(node.id, { ...node, at: hub ?? node.at });
        shown.set(node.id, open ? node.id : hub!);
    }
    dropWithoutRouter(whole, graph, shown);
    const lines = new Map<string, string[]>();
    for (const edge of whole.edges.values()) {
        const [from, to] = [shown.get(edge.from), shown.get(edge.to)];
        if (from === undefined || to === undefined || from === to) continue;
        if (edge.standby && view.hidden.has("standby")) continue;
        const hub = [edge.from, edge.to].map((end) => hubs.get(end)).find((each) => each !== undefined && !edge.standby
            && graph.nodes.get(each)!.open && [edge.from, edge.to].includes(graph.nodes.get(each)!.at!));
        const way = hub === undefined ? [from, to] : [from, hub, to];
        lines.set(edge.id, steps(way).map(([one, other]) => addUp(graph, one, other, edge)));
    }
    return { graph, shown, lines };
}

/** Nodes for groups of edge routers and of clients, folded. */
function hubsOf(whole: Graph): Node[] {
    const members = new Map<string, Node[]>();
    for (const node of whole.nodes.values()) {
        if (node.at === null || (node.kind !== "edge" && node.kind !== "clients")) continue;
        const id = `${node.kind === "edge" ? "edges" : "crowd"}:${node.at}`;
        members.set(id, [...(members.get(id) ?? []), node]);
    }
    const scratch = emptyGraph();
    for (const [id, of] of members) {
        const edges = of[0]!.kind === "edge";
        if (of.length < (edges ? FOLDED_EDGES : FOLDED_GROUPS)) continue;
        const hub = addNode(scratch, id, edges ? "edges" : "crowd", edges ? "edge routers" : "clients", of[0]!.at);
        hub.members = of.map((each) => each.id).sort();
        hub.connections = of.flatMap((each) => each.connections);
        hub.rate = of.reduce((sum, each) => sum + each.rate, 0);
        hub.silent = of.some((each) => each.silent);
    }
    return [...scratch.nodes.values()];
}

/** Leave out clients whose edge router is folded or left out, and groups of them. Their traffic is on its uplink. */
function dropWithoutRouter(whole: Graph, graph: Graph, shown: Map<string, string>): void {
    for (const node of whole.nodes.values()) {
        if (node.at === null || shown.get(node.at) === node.at) continue;
        const hub = shown.get(node.at);
        graph.nodes.delete(node.id);
        graph.nodes.delete(`crowd:${node.at}`);
        if (hub === undefined) shown.delete(node.id);
        else shown.set(node.id, hub);
    }
}

const steps = (way: string[]): [string, string][] => way.slice(1).map((each, index) => [way[index]!, each]);

function addUp(graph: Graph, one: string, other: string, of: { from: string; there: number; back: number; cost: number | null; standby: boolean }): string {
    const known = graph.edges.size;
    const line = addEdge(graph, one, other);
    const fresh = graph.edges.size > known;
    const forward = line.from === one;
    line.there += forward ? of.there : of.back;
    line.back += forward ? of.back : of.there;
    // A line for several connections has a cost only if all have the same, and is standby only if all are.
    line.cost = fresh || line.cost === of.cost ? of.cost : null;
    line.standby = (fresh || line.standby) && of.standby;
    return line.id;
}
