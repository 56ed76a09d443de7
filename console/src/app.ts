// What the pages share: the connection, the feeds, the network as it is known, and where the reader is.
import { Client } from "./amqp/client.ts";
import { LISTENER_COLUMNS, consoleOf, hostOf } from "./data/alternatives.ts";
import type { Alternative } from "./data/alternatives.ts";
import { attend } from "./data/attention.ts";
import type { Finding, Watched } from "./data/attention.ts";
import { History } from "./data/history.ts";
import { Management, number, text } from "./data/management.ts";
import type { Ask, Row, Target, Value } from "./data/management.ts";
import { Past } from "./data/past.ts";
import { Poller, browserClock } from "./data/poller.ts";
import type { Feed } from "./data/poller.ts";
import { Rates } from "./data/rates.ts";
import type { Table } from "./data/rates.ts";
import { CONNECTION_COLUMNS, LINK_COLUMNS_OF_ATTENTION, ROUTER_COLUMNS, VHOST_COLUMNS_OF_ATTENTION } from "./data/columns.ts";

export interface Source<V> { key: string; fetch: () => Promise<V>; interval: number }

/** The routers that answer, the connected one first, and what router.node says of the network. */
export interface Network {
    own: string;
    mode: string;
    targets: Target[];
    nodes: Row[];
    /** Routers that were there a while ago and are not, and when they were last there. */
    gone: Map<string, number>;
    lost: Target[];
}

const FAST = 3_000; // ms between looks at what moves
const SLOW = 15_000; // at what seldom changes
const RECENT = 20_000; // ms that an answer serves others, too
const MOST_WATCHED = 60; // routers that the overview looks at in detail
const MOST_OFFERED = 6; // other routers that are asked where their console is

export class App {
    readonly client: Client;
    readonly management: Management;
    readonly poller = new Poller(browserClock);
    readonly history = new History();
    private readonly listeners = new Set<() => void>();
    private readonly rates = new Map<string, Rates>();
    private readonly seen = new Map<string, { target: Target; at: number }>();
    private user: string | null = null;
    private generation = 0;
    /** When the connection was lost, ms since 1970; null: it is there. */
    lostAt: number | null = null;
    /** Hosts of the other ends of connections between routers, by router. */
    private readonly hosts = new Map<string, Set<string>>();

    /** ask: instead of a connection; tests have networks that no machine could run. */
    constructor(url: string, ask?: Ask) {
        this.client = new Client(url, () => this.connectionChanged());
        this.management = new Management(ask ?? ((address, properties, body, follows) =>
            this.client.request(address, properties, body, follows)));
        document.addEventListener("visibilitychange", () => {
            if (document.visibilityState === "visible" && this.client.state === "open") this.poller.refresh();
        });
    }

    /** Start or stop the feeds, and redraw: the state of the connection is another. */
    connectionChanged(): void {
        if (this.client.state === "lost") this.lostAt ??= Date.now();
        if (this.client.state === "open") {
            this.lostAt = null;
            if (this.client.user !== this.user) this.poller.clear();
            this.user = this.client.user;
            if (this.client.generation !== this.generation) {
                this.rates.clear();
                this.pasts.clear();
                this.neighbours.clear();
            }
            this.generation = this.client.generation;
            this.poller.start();
        } else {
            this.poller.stop();
        }
        for (const changed of [...this.listeners]) changed();
    }

    onConnection(changed: () => void): () => void {
        this.listeners.add(changed);
        return () => this.listeners.delete(changed);
    }

    // Sources of feeds

    private pace(base: number): number {
        const network = this.poller.get<Network>("network").value;
        return Math.max(base, (network?.targets.length ?? 1) * base / 20);
    }

    table(target: Target, type: string, attributes: string[], slow = false, keyOf = "identity"): Source<Table> {
        const key = `${type}/${target.kind}/${target.id}/${attributes.join()}`;
        return {
            key,
            interval: this.pace(slow ? SLOW : FAST),
            fetch: async () => {
                const rows = await this.management.query(target, type, attributes);
                return this.ratesOf(key, keyOf).table(rows, performance.now());
            },
        };
    }

    private ratesOf(key: string, column: string): Rates {
        let found = this.rates.get(key);
        if (found === undefined) {
            found = new Rates((row) => text(row[column]));
            this.rates.set(key, found);
        }
        return found;
    }

    summary(target: Target): Source<Table> {
        return this.table(target, "router", ROUTER_COLUMNS);
    }

    connections(target: Target): Source<Table> {
        return this.table(target, "connection", CONNECTION_COLUMNS);
    }

    workers(target: Target): Source<Table> {
        const key = `workers/${target.kind}/${target.id}`;
        return {
            key,
            interval: this.pace(FAST),
            fetch: async () => {
                const rows = (await this.management.call(target, "GET-WORKERS")) as Row[];
                for (const row of rows) row["identity"] = `${text(row["worker"])}.${text(row["generation"])}`;
                return this.ratesOf(key, "identity").table(rows, performance.now());
            },
        };
    }

    private readonly pasts = new Map<string, Past>();

    /** Figures and events that a router has kept, in periods of `step` seconds; null: it keeps none, as 1.19. */
    past(target: Target, names: string[], step: number, seconds: number): Source<Past | null> {
        const key = `past/${target.kind}/${target.id}/${step}/${seconds}/${names.join()}`;
        return {
            key,
            interval: this.pace(step === 5 ? 5_000 : SLOW),
            fetch: async () => {
                const known = this.pasts.get(key) ?? new Past(target.id, step, seconds);
                const since = known.since || Math.floor(Date.now() / 1000 - seconds);
                try {
                    known.add((await this.management.call(target, "GET-HISTORY", { step, since, names: names.join() })) as Row);
                } catch (error) {
                    if ((error as { status?: number }).status) return null;
                    throw error;
                }
                this.pasts.set(key, known);
                return known;
            },
        };
    }

    network(): Source<Network> {
        return { key: "network", interval: 5_000, fetch: () => this.discover() };
    }

    private async discover(): Promise<Network> {
        const own = (await this.management.query({ id: "", kind: "own" }, "router"))[0] ?? {};
        const id = text(own["id"]);
        const mode = text(own["mode"]);
        const me: Target = { id, kind: "own" };
        const targets: Target[] = [me];
        let nodes: Row[] = [];
        if (mode === "interior") {
            nodes = await this.nodes(me);
        } else if (mode === "edge") {
            const rows = await this.connectionRows(me);
            const uplink = rows.find((row) => row["role"] === "edge" && row["dir"] === "out" && row["active"] !== false);
            if (uplink !== undefined) nodes = await this.nodes({ id: text(uplink["container"]), kind: "router" });
        }
        for (const node of nodes) {
            const other = text(node["id"]);
            // A router that was lost stays a row without a way to it for a while.
            const reachable = typeof node["cost"] === "number" || node["nextHop"] === "(self)";
            if (other !== id && reachable) targets.push({ id: other, kind: "router" });
        }
        for (const target of [...targets]) {
            if (target.kind === "own" && mode !== "interior") continue;
            for (const row of await this.connectionRows(target)) {
                const container = text(row["container"]);
                if (row["role"] === "inter-router" || row["role"] === "edge") this.addHost(container, text(row["host"]));
                const edge = row["role"] === "edge" && row["dir"] === "in" && row["opened"] !== false;
                if (edge && container !== id && !targets.some((each) => each.id === container)) {
                    targets.push({ id: container, kind: "edge" });
                }
            }
        }
        for (const id of this.neighbours.keys()) if (!targets.some((each) => each.id === id)) this.neighbours.delete(id);
        const gone = this.remember(targets);
        return { own: id, mode, targets, nodes, gone, lost: [...gone.keys()].map((each) => this.seen.get(each)!.target) };
    }

    private addHost(router: string, address: string): void {
        this.hosts.set(router, (this.hosts.get(router) ?? new Set()).add(hostOf(address)));
    }

    /** Consoles of other routers, to be offered when this router is gone. */
    alternatives(network: Network | undefined): Source<Alternative[]> {
        const others = network?.targets.filter((each) => each.kind !== "own").slice(0, MOST_OFFERED) ?? [];
        return {
            key: `alternatives/${others.map((each) => each.id).join("/")}`, interval: 60_000,
            fetch: async () => {
                const found: Alternative[] = [];
                for (const target of others) {
                    try {
                        const listeners = await this.management.query(target, "listener", LISTENER_COLUMNS);
                        const one = consoleOf(target.id, listeners, [...this.hosts.get(target.id) ?? []], location.hostname);
                        if (one !== null) found.push(one);
                    } catch (error) {
                        if ((error as { status?: number }).status === undefined) throw error; // else it does not answer
                    }
                }
                return found;
            },
        };
    }

    private async nodes(target: Target): Promise<Row[]> {
        return this.management.query(target, "router.node", ["id", "cost", "nextHop", "linkState", "routerLink"]);
    }

    /** Rows that another feed has got a moment ago. */
    private recent(source: Source<Table>): Row[] | undefined {
        const { value, at, error } = this.poller.get<Table>(source.key);
        return value !== undefined && error === null && performance.now() - at < RECENT ? value.rows : undefined;
    }

    private async routerRow(target: Target): Promise<Row> {
        return (this.recent(this.summary(target)) ?? await this.management.query(target, "router"))[0] ?? {};
    }

    private readonly neighbours = new Map<string, { rows: Row[]; at: number }>();

    /** Connections of a router: those of a feed if there is one, else asked for now and then, so that discovery costs
     * little. Of its own router a page asks each time: the uplink of an edge router is the way to all others. */
    private async connectionRows(target: Target): Promise<Row[]> {
        const rows = this.recent(this.connections(target));
        if (rows !== undefined) return rows;
        const known = this.neighbours.get(target.id);
        if (target.kind !== "own" && known !== undefined && performance.now() - known.at < SLOW) return known.rows;
        try {
            const found = await this.management.query(target, "connection", ["identity", "container", "role", "dir", "host", "opened", "active"]);
            this.neighbours.set(target.id, { rows: found, at: performance.now() });
            return found;
        } catch (error) {
            if (target.kind === "own") throw error;
            // Its own feeds say that it does not answer; its edge routers have not vanished for that.
            return known?.rows ?? [];
        }
    }

    /** Routers that were there and are not: id, and when they were last there. */
    private remember(targets: Target[]): Map<string, number> {
        const now = Date.now();
        for (const target of targets) this.seen.set(target.id, { target, at: now });
        const there = new Set(targets.map((target) => target.id));
        const gone = new Map<string, number>();
        for (const [id, { at }] of this.seen) {
            if (there.has(id)) continue;
            if (now - at < 15 * 60_000) gone.set(id, at);
            else this.seen.delete(id);
        }
        return gone;
    }

    targetOf(id: string): Target {
        const network = this.poller.get<Network>("network").value;
        const known = network?.targets.find((each) => each.id === id);
        return known ?? network?.targets[0] ?? { id: "", kind: "own" };
    }

    /** What the overview looks at beyond counters. */
    watched(target: Target): Source<Watched> {
        return {
            key: `watched/${target.kind}/${target.id}`,
            interval: this.pace(SLOW),
            fetch: async () => {
                const ask = async (type: string, attributes: string[]): Promise<Row[]> => {
                    try {
                        return await this.management.query(target, type, attributes);
                    } catch (error) {
                        // 1.19 has not all of these; a user may not be allowed to see some.
                        if ((error as { status?: number }).status) return [];
                        throw error;
                    }
                };
                const router = await this.routerRow(target);
                const troubled = number(router["linksBlocked"]) > 0 || number(router["deliveriesStuck"]) > 0;
                return {
                    router,
                    connectors: await ask("connector", ["identity", "name", "host", "port", "role", "connectionStatus", "connectionMsg"]),
                    profiles: await ask("sslProfile", ["name", "expiresInDays"]),
                    autoLinks: await ask("router.config.autoLink", ["name", "address", "operStatus", "lastError", "containerId", "connection"]),
                    vhosts: await ask("vhostStats", VHOST_COLUMNS_OF_ATTENTION),
                    policies: await ask("policy", []),
                    links: troubled ? await ask("router.link", LINK_COLUMNS_OF_ATTENTION) : [],
                    connections: troubled ? await ask("connection", ["identity", "container", "role", "host", "user"]) : [],
                };
            },
        };
    }

    /** Refusals of each router when the page first saw it, so that old ones are not news. */
    private readonly denials = new Map<string, number>();

    findings(network: Network | undefined): Finding[] {
        if (network === undefined) return [];
        const all = network.targets.slice(0, MOST_WATCHED).map((target) => {
            const feed: Feed<Watched> = this.poller.get(this.watched(target).key);
            return { target, watched: feed.value, error: feed.error };
        });
        return attend(all, network.gone, this.denials, Date.now());
    }

    watchedTargets(network: Network | undefined): Target[] {
        return network?.targets.slice(0, MOST_WATCHED) ?? [];
    }
}

export type { Value };
