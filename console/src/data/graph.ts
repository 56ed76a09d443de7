// The network as a graph: routers, edge routers, brokers, and clients in groups, with what passes between them.
import { groupName } from "./names.ts";
import { text } from "./management.ts";
import type { Row } from "./management.ts";
import type { Table } from "./rates.ts";

/** "edges" and "crowd" stand for the edge routers and the client groups of a router while these are folded. */
export type Kind = "router" | "edge" | "broker" | "clients" | "edges" | "crowd";

export interface Connected { router: string; row: Row }

export interface Node {
    id: string;
    kind: Kind;
    label: string;
    /** The node that it is placed beside; null: it has a place of its own. */
    at: string | null;
    /** Connections of a group. */
    connections: Connected[];
    rate: number;
    silent: boolean;
    /** It was there a while ago. */
    gone: boolean;
    /** Ids of the nodes that it stands for. */
    members: string[];
    /** Its members are drawn around it. */
    open: boolean;
}

export interface Edge {
    id: string;
    from: string;
    to: string;
    cost: number | null;
    /** Messages a second from `from` to `to`, and back. */
    there: number;
    back: number;
    /** An uplink of an edge router that is connected and not used. */
    standby: boolean;
}

export interface Graph {
    nodes: Map<string, Node>;
    edges: Map<string, Edge>;
    /** Ids of edges by router and identity of the connection, of connections between routers. */
    between: Map<string, string>;
}

export interface RouterData { id: string; kind: "router" | "edge"; connections: Table | undefined; silent: boolean; gone?: boolean }

export const emptyGraph = (): Graph => ({ nodes: new Map(), edges: new Map(), between: new Map() });

/** Build the graph with all clients in groups, and nothing folded. */
export function build(routers: RouterData[], nodes: Row[]): Graph {
    const graph = emptyGraph();
    for (const router of routers) {
        Object.assign(addNode(graph, router.id, router.kind, router.id, null), { silent: router.silent, gone: router.gone === true });
    }
    // linkState has the neighbours of each router, also of those that have not answered yet.
    for (const row of nodes) {
        const id = text(row["id"]);
        const neighbours = Array.isArray(row["linkState"]) ? row["linkState"] as string[] : [];
        for (const other of neighbours) if (graph.nodes.has(id) && graph.nodes.has(other)) addEdge(graph, id, other);
    }
    const told = new Map(routers.filter((each) => each.connections !== undefined).map((each) => [each.id, each]));
    for (const router of routers) {
        for (const row of router.connections?.rows ?? []) {
            if (row["opened"] === false) continue;
            if (isBetween(row)) addLine(graph, router, row, told);
            else addClient(graph, router, row);
        }
    }
    for (const each of graph.edges.values()) each.standby = isStandby(graph, each, told);
    hangOnRouters(graph);
    return graph;
}

const isBetween = (row: Row): boolean => ["inter-router", "edge", "inter-edge"].includes(text(row["role"]));

function addLine(graph: Graph, router: RouterData, row: Row, told: Map<string, RouterData>): void {
    const container = text(row["container"]);
    const table = router.connections!;
    const into = table.rate(row, "deliveriesIn") ?? 0;
    const out = table.rate(row, "deliveriesOut") ?? 0;
    if (!graph.nodes.has(container)) return;
    const found = addEdge(graph, router.id, container);
    graph.between.set(connectionKey(router.id, text(row["identity"])), found.id);
    if (typeof row["cost"] === "number") found.cost = row["cost"];
    // Both ends count the same messages: each tells what it sends.
    const forward = found.from === router.id;
    if (forward) found.there += out;
    else found.back += out;
    if (told.has(container)) return;
    if (forward) found.back += into;
    else found.there += into;
}

/** Only the edge router knows which of its uplinks is in use. */
function isStandby(graph: Graph, { from, to }: Edge, told: Map<string, RouterData>): boolean {
    const [edge, router] = graph.nodes.get(from)!.kind === "edge" ? [from, to] : [to, from];
    if (graph.nodes.get(edge)!.kind !== "edge" || graph.nodes.get(router)!.kind !== "router") return false;
    const rows = told.get(edge)?.connections?.rows.filter((row) => row["role"] === "edge" && row["container"] === router) ?? [];
    return rows.length > 0 && rows.every((row) => row["active"] === false);
}

function addClient(graph: Graph, router: RouterData, row: Row): void {
    const broker = row["role"] === "route-container";
    const name = broker ? text(row["container"]) || text(row["host"]) : groupName(row);
    const id = broker ? `broker:${name}` : `clients:${router.id}:${name}`;
    const found = addNode(graph, id, broker ? "broker" : "clients", name, broker ? null : router.id);
    const into = router.connections!.rate(row, "deliveriesIn") ?? 0;
    const out = router.connections!.rate(row, "deliveriesOut") ?? 0;
    found.connections.push({ router: router.id, row });
    found.rate += into + out;
    const line = addEdge(graph, id, router.id);
    line.there += into;
    line.back += out;
}

/** Edge routers are placed beside the router that they use, brokers beside their only router. */
function hangOnRouters(graph: Graph): void {
    const neighbours = new Map<string, Set<string>>();
    for (const { from, to, standby } of graph.edges.values()) {
        if (standby) continue;
        for (const [one, other] of [[from, to], [to, from]] as const) {
            if (graph.nodes.get(other)!.kind === "router") neighbours.set(one, (neighbours.get(one) ?? new Set()).add(other));
        }
    }
    for (const node of graph.nodes.values()) {
        const routers = [...neighbours.get(node.id) ?? []].sort();
        if (node.kind === "edge") node.at = routers[0] ?? null;
        if (node.kind === "broker" && routers.length === 1) node.at = routers[0]!;
    }
}

export const connectionKey = (router: string, identity: string): string => `${router}\n${identity}`;

export function addNode(graph: Graph, id: string, kind: Kind, label: string, at: string | null): Node {
    let found = graph.nodes.get(id);
    if (found === undefined) {
        found = { id, kind, label, at, connections: [], rate: 0, silent: false, gone: false, members: [], open: false };
        graph.nodes.set(id, found);
    }
    return found;
}

export function addEdge(graph: Graph, one: string, other: string): Edge {
    let found = graph.edges.get(`${one}\n${other}`) ?? graph.edges.get(`${other}\n${one}`);
    if (found === undefined) {
        // Of clients `there` is what they send.
        const [from, to] = one < other || one.includes(":") ? [one, other] : [other, one];
        const id = `${from}\n${to}`;
        found = { id, from, to, cost: null, there: 0, back: 0, standby: false };
        graph.edges.set(id, found);
    }
    return found;
}
