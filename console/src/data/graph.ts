// The network as a graph: routers, edge routers, brokers, and clients in groups, with what passes between them.
import { number, text } from "./management.ts";
import type { Row } from "./management.ts";
import type { Table } from "./rates.ts";

export type Kind = "router" | "edge" | "broker" | "clients";

export interface Node {
    id: string;
    kind: Kind;
    label: string;
    /** The router that clients hang on. */
    at: string | null;
    /** Connections of a group. */
    connections: { router: string; row: Row }[];
    rate: number;
    silent: boolean;
    /** It was there a while ago. */
    gone: boolean;
}

export interface Edge {
    id: string;
    from: string;
    to: string;
    cost: number | null;
    /** Messages a second from `from` to `to`, and back. */
    there: number;
    back: number;
}

export interface Graph { nodes: Map<string, Node>; edges: Map<string, Edge> }

export interface RouterData { id: string; kind: "router" | "edge"; connections: Table | undefined; silent: boolean; gone?: boolean }

/** What clients of one kind have in common: their container id without the part that tells them apart. */
export function groupName(row: Row): string {
    const container = text(row["container"]);
    const user = text(row["user"]);
    const stem = container
        .replace(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/gi, "*")
        .replace(/[0-9a-f]{12,}/gi, "*")
        .replace(/^(console)-[0-9a-z]+$/, "$1-*")
        .replace(/\d+/g, "*")
        .replace(/(\*[^a-z*]*)+/gi, "*");
    if (stem.replace(/[*\W_]/g, "").length >= 2) return stem;
    const host = text(row["host"]).replace(/:\d+$/, "");
    return user && user !== "anonymous" ? `${user} from ${host}` : `clients from ${host}`;
}

export function build(routers: RouterData[], nodes: Row[]): Graph {
    const graph: Graph = { nodes: new Map(), edges: new Map() };
    for (const router of routers) {
        Object.assign(node(graph, router.id, router.kind, router.id, null), { silent: router.silent, gone: router.gone === true });
    }
    // linkState has the neighbours of each router, also of those that have not answered yet.
    for (const row of nodes) {
        const id = text(row["id"]);
        const neighbours = Array.isArray(row["linkState"]) ? row["linkState"] as string[] : [];
        for (const other of neighbours) if (graph.nodes.has(id) && graph.nodes.has(other)) edge(graph, id, other);
    }
    const told = new Set(routers.filter((each) => each.connections !== undefined).map((each) => each.id));
    for (const router of routers) {
        for (const row of router.connections?.rows ?? []) {
            if (row["opened"] !== false) add(graph, router, row, router.connections!, told);
        }
    }
    return graph;
}

function add(graph: Graph, router: RouterData, row: Row, table: Table, told: Set<string>): void {
    const role = text(row["role"]);
    const container = text(row["container"]);
    const into = table.rate(row, "deliveriesIn") ?? 0;
    const out = table.rate(row, "deliveriesOut") ?? 0;
    if (role === "inter-router" || role === "edge" || role === "inter-edge") {
        const there = graph.nodes.get(container);
        if (there === undefined || (role === "edge" && row["active"] === false)) return;
        const found = edge(graph, router.id, container);
        if (typeof row["cost"] === "number") found.cost = row["cost"];
        // Both ends count the same messages: each tells what it sends.
        const forward = found.from === router.id;
        if (forward) found.there += out;
        else found.back += out;
        if (!told.has(container)) {
            if (forward) found.back += into;
            else found.there += into;
        }
        return;
    }
    const broker = role === "route-container";
    const name = broker ? container || text(row["host"]) : groupName(row);
    const id = broker ? `broker:${name}` : `clients:${router.id}:${name}`;
    const found = node(graph, id, broker ? "broker" : "clients", name, broker ? null : router.id);
    found.connections.push({ router: router.id, row });
    found.rate += into + out;
    const line = edge(graph, id, router.id);
    line.there += into;
    line.back += out;
}

function node(graph: Graph, id: string, kind: Kind, label: string, at: string | null): Node {
    let found = graph.nodes.get(id);
    if (found === undefined) {
        found = { id, kind, label, at, connections: [], rate: 0, silent: false, gone: false };
        graph.nodes.set(id, found);
    }
    return found;
}

function edge(graph: Graph, one: string, other: string): Edge {
    const [from, to] = one < other || one.includes(":") ? [one, other] : [other, one];
    const id = `${from}\n${to}`;
    let found = graph.edges.get(id);
    if (found === undefined) {
        found = { id, from, to, cost: null, there: 0, back: 0 };
        graph.edges.set(id, found);
    }
    return found;
}

export interface Path { edges: Set<string>; nodes: Set<string> }

/** What messages to an address pass, by the answers of EXPLAIN: from each router with producers to those with consumers. */
export function pathOf(graph: Graph, answers: Map<string, Row>): Path {
    const path: Path = { edges: new Set(), nodes: new Set() };
    const lines = (one: string, other: string): void => {
        for (const id of [`${one}\n${other}`, `${other}\n${one}`]) if (graph.edges.has(id)) path.edges.add(id);
        path.nodes.add(one).add(other);
    };
    const records = (router: string): Row[] => list(answers.get(router)?.["records"]);
    for (const [router] of answers) {
        const users = records(router).flatMap((record) => [...list(record["consumers"]), ...list(record["producers"])]);
        const ids = new Set(users.map((each) => text(each["connection"])));
        for (const each of graph.nodes.values()) {
            if (each.connections.some((one) => one.router === router && ids.has(text(one.row["identity"])))) lines(each.id, router);
        }
        const consumes = records(router).some((record) => number(record["consumerCount"]) > 0);
        const produces = records(router).some((record) => number(record["producerCount"]) > 0);
        if (consumes || produces) path.nodes.add(router);
        if (!produces) continue;
        const goals = records(router).flatMap((record) => list(record["remotes"])).map((remote) => text(remote["router"]));
        for (const goal of new Set(goals)) {
            let at = router;
            const passed = new Set<string>();
            while (at !== goal && !passed.has(at)) {
                passed.add(at);
                const next = records(at).flatMap((record) => list(record["remotes"])).find((remote) => remote["router"] === goal);
                if (next === undefined || !next["nextHop"]) break;
                lines(at, text(next["nextHop"]));
                at = text(next["nextHop"]);
            }
        }
    }
    return path;
}

const list = (value: unknown): Row[] => (Array.isArray(value) ? value as Row[] : []);
