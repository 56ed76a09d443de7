// The network as a picture that lives: who is connected to whom, and what passes.
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Network, Source } from "../app.ts";
import { isCounter } from "../data/charts.ts";
import { duration, plural, rate } from "../data/format.ts";
import { fold } from "../data/fold.ts";
import type { Filter, Folded, View } from "../data/fold.ts";
import { build } from "../data/graph.ts";
import type { Edge, Graph, Node, RouterData } from "../data/graph.ts";
import { Layout } from "../data/layout.ts";
import { text } from "../data/management.ts";
import type { Row, Target } from "../data/management.ts";
import { foldPath, pathOf } from "../data/path.ts";
import type { Table } from "../data/rates.ts";
import { Drawing } from "../ui/drawing.ts";
import { store, stored, useApp, useFeed, useFeeds, useRoute, useStale, useStored } from "../ui/hooks.ts";
import { Attributes, Badge, Head, Panel, Trouble } from "../ui/parts.tsx";
import { amend, link, readRoute } from "../ui/route.ts";

const MOST_EXPLAINED = 60; // routers that are asked for the path of an address

declare global {
    interface HTMLCanvasElement { drawing?: Drawing }
}

export function Topology(): JSX.Element {
    const app = useApp();
    const { query } = useRoute();
    const stale = useStale();
    const network = useFeed(app.network());
    const targets = network.value?.targets ?? [];
    const feeds = useFeeds(targets.map((target) => app.connections(target)));
    const tables = feeds.map((feed) => feed.value);
    const errors = feeds.map((feed) => feed.error);
    const whole = useMemo(() => graphOf(network.value, tables, errors), [network.value, ...tables, ...errors]);
    const [hidden, setHidden] = useStored("hidden", "standby");
    const open = query.get("open") ?? "";
    const folded = useMemo(() => fold(whole, viewOf(open, hidden)), [whole, open, hidden]);
    const address = query.get("path") ?? "";
    const answers = usePath(address, targets);
    const canvas = useRef<HTMLCanvasElement>(null);
    const drawing = useRef<Drawing | null>(null);
    const [wanted, setWanted] = useState("");
    const selected = query.get("select") ?? "";
    const matching = useMemo(() => matches(whole, wanted), [whole, wanted]);

    useEffect(() => {
        const layout = new Layout(places());
        const made = new Drawing(canvas.current!, layout);
        made.onChoose = ({ node, edge }) => amend({ select: node ?? edge ?? "" });
        made.onOpen = toggle;
        made.onMoved = () => store("places", JSON.stringify(layout.kept()));
        drawing.current = made;
        canvas.current!.drawing = made;
        return () => made.stop();
    }, []);
    useEffect(() => { drawing.current!.take(folded.graph, namesOf(whole)); }, [folded]);
    useEffect(() => {
        const made = drawing.current!;
        made.path = address && answers !== undefined ? foldPath(folded, pathOf(whole, answers)) : null;
        made.chosen = folded.graph.edges.has(selected) ? { edge: selected } : { node: folded.shown.get(selected) ?? selected };
        made.found = wanted ? new Set([...matching].flatMap((id) => folded.shown.get(id) ?? [])) : null;
        made.stale = stale;
        made.redraw();
    });

    const find = (event: Event): void => {
        event.preventDefault();
        const [first] = matching;
        if (first === undefined) return;
        const shown = folded.shown.get(first);
        amend({ select: first });
        if (shown !== undefined) drawing.current!.show(shown);
    };
    return (
        <div class="beside">
            <div class="main">
                <Head title="Topology" about={about(whole)}>
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
                        aria-label={`${about(whole)}. Arrows look around, + and - come nearer or go back, n and p choose a router, Enter opens a group, 0 shows all.`}
                    />
                    <div class="zoom">
                        <button type="button" aria-label="Nearer" onClick={() => drawing.current!.zoom(1.3)}>+</button>
                        <button type="button" aria-label="Further" onClick={() => drawing.current!.zoom(0.77)}>−</button>
                        <button type="button" onClick={() => drawing.current!.fit()}>All</button>
                        <button type="button" title="Forget where routers were moved to" onClick={() => { store("places", "{}"); location.reload(); }}>Anew</button>
                    </div>
                    <Legend whole={whole} hidden={hidden} onHidden={setHidden} />
                </div>
            </div>
            <Selected whole={whole} folded={folded} selected={selected} network={network.value} />
        </div>
    );
}

function viewOf(open: string, hidden: string): View {
    return { open: new Set(open.split("\n").filter(Boolean)), hidden: new Set(hidden.split(",").filter(Boolean) as Filter[]) };
}

/** Open a group of nodes in the picture, or fold it. */
function toggle(id: string): void {
    const before = (readRoute().query.get("open") ?? "").split("\n").filter(Boolean);
    amend({ open: (before.includes(id) ? before.filter((each) => each !== id) : [...before, id]).join("\n") });
}

const namesOf = (graph: Graph): string[] => [...graph.nodes.values()].filter((node) => node.kind !== "clients").map((node) => node.label);

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
    const clients = [...graph.nodes.values()].filter((node) => node.kind === "clients");
    const connected = clients.reduce((sum, node) => sum + node.connections.length, 0);
    parts.push(`${plural(connected, "client")} in ${plural(clients.length, "group")}`);
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

const FILTERS: { kind: Filter; title: string; sign: string; there: (graph: Graph) => boolean }[] = [
    { kind: "edge", title: "edge routers", sign: "edge", there: (graph) => has(graph, "edge") },
    { kind: "broker", title: "brokers", sign: "broker", there: (graph) => has(graph, "broker") },
    { kind: "clients", title: "clients", sign: "clients", there: (graph) => has(graph, "clients") },
    { kind: "standby", title: "standby links", sign: "standby", there: (graph) => [...graph.edges.values()].some((edge) => edge.standby) },
];

const has = (graph: Graph, kind: string): boolean => [...graph.nodes.values()].some((node) => node.kind === kind);

/** The signs of the picture, which are switches as well: kinds that are off are left out. */
function Legend({ whole, hidden, onHidden }: { whole: Graph; hidden: string; onHidden: (hidden: string) => void }): JSX.Element {
    const off = new Set(hidden.split(",").filter(Boolean));
    const change = (kind: Filter, shown: boolean): void => {
        if (shown) off.delete(kind);
        else off.add(kind);
        onHidden([...off].join(","));
    };
    return (
        <fieldset class="legend" aria-label="Shown in the picture">
            <span><i class="router" />routers</span>
            {FILTERS.filter(({ there }) => there(whole)).map(({ kind, title, sign }) => (
                <label key={kind} class={off.has(kind) ? "off" : ""}>
                    <input type="checkbox" checked={!off.has(kind)} onChange={(event) => change(kind, event.currentTarget.checked)} />
                    <i class={sign} />{title}
                </label>
            ))}
        </fieldset>
    );
}

function Selected({ whole, folded, selected, network }: { whole: Graph; folded: Folded; selected: string; network: Network | undefined }): JSX.Element | null {
    const node = folded.graph.nodes.get(selected) ?? whole.nodes.get(selected);
    const edge = folded.graph.edges.get(selected);
    const close = (): void => amend({ select: "" });
    if (node?.gone) return <OfGone node={node} network={network} onClose={close} />;
    if (node !== undefined && (node.kind === "router" || node.kind === "edge")) return <OfRouter key={node.id} node={node} network={network} onClose={close} />;
    if (node !== undefined && node.members.length) return <OfFolded node={node} whole={whole} onClose={close} />;
    if (node !== undefined) return <OfGroup node={node} onClose={close} />;
    return edge === undefined ? null : <OfEdge edge={edge} graph={folded.graph} onClose={close} />;
}

/** Edge routers or groups of clients that one node stands for. */
function OfFolded({ node, whole, onClose }: { node: Node; whole: Graph; onClose: () => void }): JSX.Element {
    const edges = node.kind === "edges";
    const members = node.members.map((id) => whole.nodes.get(id)).filter((each) => each !== undefined);
    const clients = (member: Node): number => (edges
        ? [...whole.nodes.values()].filter((each) => each.kind === "clients" && each.at === member.id).reduce((sum, each) => sum + each.connections.length, 0)
        : member.connections.length);
    const sorted = members.map((member) => ({ member, count: clients(member) })).sort((one, other) => other.count - one.count || (one.member.label < other.member.label ? -1 : 1));
    return (
        <Panel title={`${edges ? "Edge routers" : "Clients"} at ${node.at ?? ""}`} onClose={onClose}>
            <p class="buttons"><button type="button" aria-pressed={node.open} onClick={() => toggle(node.id)}>{node.open ? "Fold" : "Show each in the picture"}</button></p>
            <p>{edges ? plural(members.length, "edge router") : `${plural(node.connections.length, "connection")} in ${plural(members.length, "group")}, ${rate(node.rate)}`}</p>
            <table class="plain">
                <thead><tr><th>{edges ? "Edge router" : "Group"}</th><th class="number">Clients</th></tr></thead>
                <tbody>
                    {sorted.map(({ member, count }) => (
                        <tr key={member.id}>
                            <td><a href={link("topology", { ...Object.fromEntries(readRoute().query), select: member.id })}>{member.label}</a> {member.silent && <Badge kind="bad">silent</Badge>}</td>
                            <td class="number">{count}</td>
                        </tr>
                    ))}
                </tbody>
            </table>
        </Panel>
    );
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
    const name = (id: string): string => {
        const node = graph.nodes.get(id);
        return node === undefined ? id : node.members.length ? `${node.label} of ${node.at ?? ""}` : node.label;
    };
    return (
        <Panel title={`${name(edge.from)} – ${name(edge.to)}`} onClose={onClose}>
            <table class="plain">
                <tbody>
                    <tr><td>{name(edge.from)} → {name(edge.to)}</td><td class="number">{rate(edge.there)}</td></tr>
                    <tr><td>{name(edge.to)} → {name(edge.from)}</td><td class="number">{rate(edge.back)}</td></tr>
                    {edge.standby && <tr><td>Standby</td><td>connected, not used</td></tr>}
                    {edge.cost !== null && <tr><td>Cost</td><td class="number">{edge.cost}</td></tr>}
                </tbody>
            </table>
        </Panel>
    );
}
