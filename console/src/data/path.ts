// The path of an address over the graph, by the answers of EXPLAIN.
import { list } from "./explain.ts";
import type { Folded } from "./fold.ts";
import { connectionKey } from "./graph.ts";
import type { Graph } from "./graph.ts";
import { number, text } from "./management.ts";
import type { Row } from "./management.ts";

export interface Path { edges: Set<string>; nodes: Set<string> }

/**
 * Return what messages to an address pass: clients, their routers, uplinks of edge routers, and the hops from each
 * router with producers to those with consumers. answers: by router.
 */
export function pathOf(graph: Graph, answers: Map<string, Row>): Path {
    const path: Path = { edges: new Set(), nodes: new Set() };
    const addLines = (one: string, other: string): void => {
        for (const id of [`${one}\n${other}`, `${other}\n${one}`]) if (graph.edges.has(id)) path.edges.add(id);
        path.nodes.add(one).add(other);
    };
    const records = (router: string): Row[] => list(answers.get(router)?.["records"]);
    const uses = (router: string, count: string): boolean => records(router).some((record) => number(record[count]) > 0);
    const users = [...answers.keys()].filter((router) => uses(router, "consumerCount") || uses(router, "producerCount"));
    for (const router of users) {
        path.nodes.add(router);
        const links = records(router).flatMap((record) => [...list(record["consumers"]), ...list(record["producers"])]);
        const ids = new Set(links.map((each) => text(each["connection"])));
        for (const each of graph.nodes.values()) {
            if (each.connections.some((one) => one.router === router && ids.has(text(one.row["identity"])))) addLines(each.id, router);
        }
        for (const id of ids) {
            const line = graph.edges.get(graph.between.get(connectionKey(router, id)) ?? "");
            if (line !== undefined && isUplink(graph, line.from, line.to)) addLines(line.from, line.to);
        }
    }
    // An edge router exchanges messages with others over its uplink. Links to it need not name the address.
    for (const router of users) {
        const node = graph.nodes.get(router);
        if (node?.kind === "edge" && node.at !== null && users.some((each) => each !== router)) addLines(router, node.at);
    }
    for (const router of answers.keys()) {
        const edges = users.some((each) => graph.nodes.get(each)?.at === router && uses(each, "producerCount"));
        if (!edges && !uses(router, "producerCount")) continue;
        const goals = records(router).flatMap((record) => list(record["remotes"])).map((remote) => text(remote["router"]));
        for (const goal of new Set(goals)) {
            let at = router;
            const passed = new Set<string>();
            while (at !== goal && !passed.has(at)) {
                passed.add(at);
                const next = records(at).flatMap((record) => list(record["remotes"])).find((remote) => remote["router"] === goal);
                if (next === undefined || !next["nextHop"]) break;
                addLines(at, text(next["nextHop"]));
                at = text(next["nextHop"]);
            }
        }
    }
    return path;
}

const isUplink = (graph: Graph, one: string, other: string): boolean =>
    [one, other].some((id) => graph.nodes.get(id)?.kind === "edge");

/** Return the path over the nodes and lines that stand for those of the whole graph. */
export function foldPath({ graph, shown, lines }: Folded, path: Path): Path {
    const nodes = new Set([...path.nodes].flatMap((id) => shown.get(id) ?? []));
    const edges = new Set([...path.edges].flatMap((id) => lines.get(id) ?? []));
    for (const id of edges) {
        const { from, to } = graph.edges.get(id)!;
        for (const end of [from, to]) if (graph.nodes.get(end)?.members.length) nodes.add(end);
    }
    return { nodes, edges };
}
