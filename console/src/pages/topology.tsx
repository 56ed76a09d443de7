// The network as a picture that lives: who is connected to whom, and what passes.
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Network, Source } from "../app.ts";
import { isCounter } from "../data/charts.ts";
import { duration, plural, rate } from "../data/format.ts";
import { build, pathOf } from "../data/graph.ts";
import type { Edge, Graph, Node, RouterData } from "../data/graph.ts";
import { Layout } from "../data/layout.ts";
import { text } from "../data/management.ts";
import type { Row, Target } from "../data/management.ts";
import type { Table } from "../data/rates.ts";
import { Drawing } from "../ui/drawing.ts";
import { store, stored, useApp, useFeed, useFeeds, useRoute } from "../ui/hooks.ts";
import { Attributes, Badge, Head, Panel, Trouble } from "../ui/parts.tsx";
import { amend, link } from "../ui/route.ts";

const MOST_EXPLAINED = 60; // routers that are asked for the path of an address

declare global {
    interface HTMLCanvasElement { drawing?: Drawing }
}

export function Topology(): JSX.Element {
    const app = useApp();
    const { query } = useRoute();
    const network = useFeed(app.network());
    const targets = network.value?.targets ?? [];
    const feeds = useFeeds(targets.map((target) => app.connections(target)));
    const tables = feeds.map((feed) => feed.value);
    const errors = feeds.map((feed) => feed.error);
    const graph = useMemo(() => graphOf(network.value, tables, errors), [network.value, ...tables, ...errors]);
    const address = query.get("path") ?? "";
    const answers = usePath(address, targets);
    const canvas = useRef<HTMLCanvasElement>(null);
    const drawing = useRef<Drawing | null>(null);
    const [wanted, setWanted] = useState("");
    const selected = query.get("select") ?? "";
    const matching = useMemo(() => matches(graph, wanted), [graph, wanted]);

    useEffect(() => {
        const layout = new Layout(places());
        const made = new Drawing(canvas.current!, layout);
        made.onChoose = ({ node, edge }) => amend({ select: node ?? edge ?? "" });
        made.onMoved = () => store("places", JSON.stringify(layout.kept()));
        drawing.current = made;
        canvas.current!.drawing = made;
        return () => made.stop();
    }, []);
    useEffect(() => { drawing.current!.take(graph); }, [graph]);
    useEffect(() => {
        const made = drawing.current!;
        made.path = address && answers !== undefined ? pathOf(graph, answers) : null;
        made.chosen = graph.edges.has(selected) ? { edge: selected } : { node: selected };
        made.found = wanted ? matching : null;
        made.redraw();
    });

    const find = (event: Event): void => {
        event.preventDefault();
        const [first] = matching;
        if (first !== undefined) {
            drawing.current!.choose({ node: first });
            drawing.current!.show(first);
        }
    };
    return (
        <div class="beside">
            <div class="main">
                <Head title="Topology" about={about(graph)}>
                    <form class="actions" onSubmit={find}>
                        <input
                            class="filter" type="search" placeholder="Find a router or client" aria-label="Find" value={wanted}
                            onInput={(event) => setWanted(event.currentTarget.value)}
                        />
                        {wanted && <span class="about" role="status">{plural(matching.size, "match", "matches")}</span>}
                    </form>
                    <Path key={address} address={address} />
                </Head>
                <Trouble error={network.error} />
                <div class="canvas">
                    <canvas
                        ref={canvas} tabIndex={0} role="img"
                        aria-label={`${about(graph)}. Arrows look around, + and - come nearer or go back, n and p choose a router, 0 shows all.`}
                    />
                    <div class="zoom">
                        <button type="button" aria-label="Nearer" onClick={() => drawing.current!.zoom(1.3)}>+</button>
                        <button type="button" aria-label="Further" onClick={() => drawing.current!.zoom(0.77)}>−</button>
                        <button type="button" onClick={() => drawing.current!.fit()}>All</button>
                        <button type="button" title="Forget where routers were moved to" onClick={() => { store("places", "{}"); location.reload(); }}>Anew</button>
                    </div>
                    <Legend />
                </div>
            </div>
            <Selected graph={graph} selected={selected} network={network.value} />
        </div>
    );
}

function matches(graph: Graph, wanted: string): Set<string> {
    const words = wanted.toLowerCase();
    return new Set([...graph.nodes.values()].filter((node) => words && node.label.toLowerCase().includes(words)).map((node) => node.id));
}

function places(): Record<string, [number, number]> {
    try {
        return JSON.parse(stored("places") ?? "{}") as Record<string, [number, number]>;
    } catch {
        return {};
    }
}

function graphOf(network: Network | undefined, tables: (Table | undefined)[], errors: (string | null)[]): Graph {
    const routers: RouterData[] = (network?.targets ?? []).map((target, index) => ({
        id: target.id, kind: target.kind === "edge" || (target.kind === "own" && network!.mode === "edge") ? "edge" : "router",
        connections: tables[index], silent: errors[index] !== null,
    }));
    const lost = (network?.lost ?? []).map(({ id, kind }): RouterData => ({
        id, kind: kind === "edge" ? "edge" : "router", connections: undefined, silent: true, gone: true,
    }));
    return build([...routers, ...lost], network?.nodes ?? []);
}

function usePath(address: string, targets: Target[]): Map<string, Row> | undefined {
    const app = useApp();
    const source: Source<Map<string, Row>> = {
        key: `path/${address}/${targets.length}`, interval: 5000,
        fetch: async () => {
            const found = new Map<string, Row>();
            if (!address) return found;
            for (const target of targets.slice(0, MOST_EXPLAINED)) {
                try {
                    const answer = (await app.management.call(target, "EXPLAIN", { address })) as Row;
                    found.set(text(answer["router"]), answer);
                } catch {
                    continue; // it is gone, or a router of 1.19: the path has a gap there
                }
            }
            return found;
        },
    };
    return useFeed(source).value;
}

function about(graph: Graph): string {
    const of = (kind: string): number => [...graph.nodes.values()].filter((node) => node.kind === kind && !node.gone).length;
    const gone = [...graph.nodes.values()].filter((node) => node.gone).length;
    const parts = [plural(of("router"), "router")];
    if (of("edge")) parts.push(plural(of("edge"), "edge router"));
    if (of("broker")) parts.push(plural(of("broker"), "broker"));
    parts.push(plural(of("clients"), "group of clients", "groups of clients"));
    if (gone) parts.push(`${gone} gone`);
    return parts.join(", ");
}

function Path({ address }: { address: string }): JSX.Element {
    const [wanted, setWanted] = useState(address);
    return (
        <form class="actions" onSubmit={(event) => { event.preventDefault(); amend({ path: wanted }); }}>
            <input placeholder="Path of an address" aria-label="Address whose path is shown" value={wanted} onInput={(event) => setWanted(event.currentTarget.value)} />
            <button type="submit">Show</button>
            {address && <button type="button" onClick={() => amend({ path: "" })}>Hide</button>}
        </form>
    );
}

function Legend(): JSX.Element {
    return (
        <ul class="legend">
            <li><i class="router" />router</li><li><i class="edge" />edge router</li><li><i class="broker" />broker</li><li><i class="clients" />clients, by name</li>
        </ul>
    );
}

function Selected({ graph, selected, network }: { graph: Graph; selected: string; network: Network | undefined }): JSX.Element | null {
    const node = graph.nodes.get(selected);
    const edge = graph.edges.get(selected);
    const close = (): void => amend({ select: "" });
    if (node?.gone) return <OfGone node={node} network={network} onClose={close} />;
    if (node !== undefined && (node.kind === "router" || node.kind === "edge")) return <OfRouter key={node.id} node={node} network={network} onClose={close} />;
    if (node !== undefined) return <OfGroup node={node} onClose={close} />;
    return edge === undefined ? null : <OfEdge edge={edge} graph={graph} onClose={close} />;
}

function OfGone({ node, network, onClose }: { node: Node; network: Network | undefined; onClose: () => void }): JSX.Element {
    const at = network?.gone.get(node.id);
    return (
        <Panel title={node.label} onClose={onClose}>
            <p><Badge kind="bad">gone</Badge> {at === undefined ? "" : `It was last seen ${duration((Date.now() - at) / 1000)} ago.`}</p>
            <p>No router of the network has a way to it. It stays in the picture for a quarter of an hour.</p>
        </Panel>
    );
}

function OfRouter({ node, network, onClose }: { node: Node; network: Network | undefined; onClose: () => void }): JSX.Element {
    const app = useApp();
    const feed = useFeed(app.summary(app.targetOf(node.id)));
    const row = feed.value?.rows[0] ?? {};
    const hop = network?.nodes.find((each) => each["id"] === node.id);
    const of = (title: string, page: string): JSX.Element => <a class="button" href={link(page, { router: node.id })}>{title}</a>;
    return (
        <Panel title={node.label} onClose={onClose}>
            <p class="buttons">{of("Connections", "connections")}{of("Links", "links")}{of("Addresses", "addresses")}{of("Workers", "workers")}</p>
            <Trouble error={feed.error} />
            {hop !== undefined && typeof hop["cost"] === "number" && <p>Cost from {network!.own}: {hop["cost"]}{hop["nextHop"] ? `, by ${text(hop["nextHop"])}` : ""}</p>}
            <Attributes row={{ ...row, type: null, identity: null, name: null, area: null }} extra={(name, value) => {
                const found = isCounter(name) ? feed.value?.rate(row, name) ?? null : null;
                return typeof value === "number" && found !== null && found > 0 ? <>{value.toLocaleString("en-GB")}<span class="rate">{rate(found)}</span></> : undefined;
            }} />
        </Panel>
    );
}

function OfGroup({ node, onClose }: { node: Node; onClose: () => void }): JSX.Element {
    const shown = node.connections.slice(0, 200);
    return (
        <Panel title={node.label} onClose={onClose}>
            <p>{plural(node.connections.length, "connection")}{node.at === null ? "" : ` at ${node.at}`}, {rate(node.rate)} <Badge kind="plain">{node.kind === "broker" ? "broker" : "clients"}</Badge></p>
            <table class="plain">
                <thead><tr><th>Connection</th><th>Host</th><th>User</th></tr></thead>
                <tbody>
                    {shown.map(({ router, row }) => (
                        <tr key={router + text(row["identity"])}>
                            <td><a href={link("connections", { router, select: text(row["identity"]) })}>{text(row["container"]) || text(row["identity"])}</a></td>
                            <td>{text(row["host"])}</td>
                            <td>{text(row["user"])}</td>
                        </tr>
                    ))}
                </tbody>
            </table>
            {shown.length < node.connections.length && <p class="about">and {node.connections.length - shown.length} more</p>}
        </Panel>
    );
}

function OfEdge({ edge, graph, onClose }: { edge: Edge; graph: Graph; onClose: () => void }): JSX.Element {
    const name = (id: string): string => graph.nodes.get(id)?.label ?? id;
    return (
        <Panel title={`${name(edge.from)} – ${name(edge.to)}`} onClose={onClose}>
            <table class="plain">
                <tbody>
                    <tr><td>{name(edge.from)} → {name(edge.to)}</td><td class="number">{rate(edge.there)}</td></tr>
                    <tr><td>{name(edge.to)} → {name(edge.from)}</td><td class="number">{rate(edge.back)}</td></tr>
                    {edge.cost !== null && <tr><td>Cost</td><td class="number">{edge.cost}</td></tr>}
                </tbody>
            </table>
        </Panel>
    );
}
