// What needs somebody's attention, in plain words, the worst first.
import { addressText, isInternal } from "./address.ts";
import { count, duration, plural, some } from "./format.ts";
import { number, text } from "./management.ts";
import type { Row, Target } from "./management.ts";

export interface Finding {
    /** 3: something does not work. 2: something will not, or does in part. 1: good to know. */
    weight: number;
    title: string;
    text: string;
    href: string;
    router: string;
    actions: Action[];
    /** Of links that keep others from working. */
    blocks?: boolean;
}

/** What may solve a finding: a page, or the end of a connection. */
export type Action = { title: string; href: string } | { title: string; close: { router: string; connection: Row } };

export interface Watched {
    router: Row;
    connectors: Row[];
    profiles: Row[];
    autoLinks: Row[];
    vhosts: Row[];
    policies: Row[];
    links: Row[];
    /** Connections of the links; empty if they were not needed. */
    connections: Row[];
}

export interface Asked { target: Target; watched: Watched | undefined; error: string | null }

const BLOCKED_AFTER = 10; // seconds without credit
const EXPIRES_SOON = 30; // days

/** denials: of each router when the page first saw it; filled here. */
export function attend(
    all: Asked[], gone: Map<string, number>, denials: Map<string, number>, now: number,
): Finding[] {
    const found: Finding[] = [];
    for (const [id, at] of gone) {
        found.push({
            weight: 3, router: id, href: "#/topology", actions: [], title: `Router ${id} has vanished`,
            text: `It was last seen ${duration((now - at) / 1000)} ago. Addresses that only it has cannot be reached.`,
        });
    }
    for (const { target, watched, error } of all) {
        const router = watched === undefined ? target.id : text(watched.router["id"]);
        if (error !== null) {
            found.push({
                weight: 3, router, href: `#/topology?select=${encodeURIComponent(router)}`, actions: [],
                title: `Router ${router} does not answer`, text: error,
            });
        }
        // The last findings about a router that no longer answers stay: they may be why.
        if (watched !== undefined) found.push(...ofRouter(router, watched, denials).map((each) => (error === null ? each : old(each))));
    }
    found.push(...blocked(all.flatMap(({ watched }) => (watched === undefined ? [] : [{ router: text(watched.router["id"]), links: watched.links, connections: watched.connections }]))));
    return found.sort((one, other) => other.weight - one.weight);
}

const old = (finding: Finding): Finding => ({ ...finding, text: `Before it stopped answering: ${finding.text}` });

function ofRouter(router: string, watched: Watched, denials: Map<string, number>): Finding[] {
    return [
        ...connectors(router, watched.connectors),
        ...certificates(router, watched.profiles),
        ...autoLinks(router, watched.autoLinks),
        ...refusals(router, [...watched.vhosts, ...watched.policies.map(ofUnknownVhosts)], denials),
        ...lost(router, watched.router),
    ];
}

const at = (router: string): string => `router=${encodeURIComponent(router)}`;

/** connection: null if it is not known. */
interface Troubled { router: string; link: Row; connection: Row | null }

const BETWEEN = ["inter-router", "edge", "inter-edge"];
const MOST_CLOSED = 3; // connections that a finding offers to close

/** Addresses whose consumers withhold credit, or whose deliveries nobody settles: one finding each, whatever routers. */
function blocked(all: { router: string; links: Row[]; connections: Row[] }[]): Finding[] {
    const byAddress = new Map<string, Troubled[]>();
    for (const { router, links, connections } of all) {
        const known = new Map(connections.map((row) => [text(row["identity"]), row]));
        for (const link of links) {
            const key = text(link["owningAddr"]);
            const connection = known.get(text(link["connectionId"])) ?? null;
            const troubled = waits(link) > BLOCKED_AFTER || number(link["deliveriesStuck"]) > 0;
            // A link to another router waits for clients of that router: the finding is theirs.
            if (!key || isInternal(key) || !troubled || BETWEEN.includes(text(connection?.["role"] ?? null))) continue;
            const address = addressText(key);
            byAddress.set(address, [...(byAddress.get(address) ?? []), { router, link, connection }]);
        }
    }
    return [...byAddress].map(([address, troubled]) => ofAddress(address, troubled)).filter((each) => each !== null);
}

const waits = (link: Row): number => number(link["zeroCreditSeconds"]);

function nameOf({ router, link, connection }: Troubled): string {
    const container = text(connection?.["container"] ?? null);
    return `${container ? `${container}, ` : ""}connection ${text(link["connectionId"])} of ${router}`;
}

const whom = (all: Troubled[]): string => some([...new Set(all.map(nameOf))]);

/** Offers to close the connections of links. */
function closing(all: Troubled[]): Action[] {
    const one = new Map(all.map((each) => [nameOf(each), each]));
    return [...one.values()].slice(0, MOST_CLOSED).map((each) => ({
        title: `Close connection ${text(each.link["connectionId"])} of ${each.router} …`,
        close: { router: each.router, connection: each.connection ?? { identity: each.link["connectionId"]! } },
    }));
}

function ofAddress(address: string, all: Troubled[]): Finding | null {
    const consumers = all.filter(({ link }) => link["linkDir"] === "out" && waits(link) > BLOCKED_AFTER);
    const producers = all.filter(({ link }) => link["linkDir"] === "in" && waits(link) > BLOCKED_AFTER);
    const holders = all.filter(({ link }) => link["linkDir"] === "out" && number(link["deliveriesStuck"]) > 0);
    const waiting = consumers.reduce((sum, { link }) => sum + number(link["undeliveredCount"]), 0);
    const longest = (these: Troubled[]): string => duration(Math.max(...these.map(({ link }) => waits(link))));
    const router = (consumers[0] ?? holders[0] ?? producers[0])?.router ?? "";
    const href = `#/explain?address=${encodeURIComponent(address)}&${at(router)}`;
    const found = { router, href, blocks: true, actions: [{ title: "Explain", href }] };
    const behind = producers.length ? ` ${plural(producers.length, "producer waits", "producers wait")}.` : "";
    if (consumers.length && (waiting > 0 || producers.length)) {
        const messages = waiting ? ` ${plural(waiting, "message waits", "messages wait")}.` : "";
        const who = `${plural(consumers.length, "consumer grants", "consumers grant")} no credit, for ${longest(consumers)}`;
        return {
            ...found, weight: 3, title: `${address} is blocked`, text: `${who}: ${whom(consumers)}.${messages}${behind}`,
            actions: [...found.actions, ...closing(consumers)],
        };
    }
    if (holders.length) {
        const stuck = holders.reduce((sum, { link }) => sum + number(link["deliveriesStuck"]), 0);
        return {
            ...found, weight: 3, title: `${plural(stuck, "delivery is", "deliveries are")} stuck at ${address}`,
            text: `Consumers have got them and do not settle them: ${whom(holders)}.${behind}`,
            actions: [...found.actions, ...closing(holders)],
        };
    }
    if (!producers.length) return null;
    const who = plural(producers.length, "producer has", "producers have");
    // Producers that never sent may just be early: no consumer is there yet, and nothing is lost.
    const sent = producers.some(({ link }) => number(link["deliveryCount"]) > 0);
    return {
        ...found, blocks: false, weight: sent ? 2 : 1, title: `Producers to ${address} wait`,
        text: `${who} no credit, for ${longest(producers)}: no consumer takes its messages.`,
    };
}

function connectors(router: string, rows: Row[]): Finding[] {
    return rows.filter((row) => row["connectionStatus"] && row["connectionStatus"] !== "SUCCESS").map((row) => ({
        weight: row["connectionStatus"] === "FAILED" ? 3 : 2, router, href: `#/entities/connector?${at(router)}`,
        actions: [
            { title: "Change the connector", href: `#/entities/connector?${at(router)}&select=${encodeURIComponent(text(row["identity"]) || text(row["name"]))}` },
            { title: "Log", href: `#/log?${at(router)}&q=${encodeURIComponent(text(row["host"]))}` },
        ],
        title: `${router} is not connected to ${text(row["host"])}:${text(row["port"])}`,
        text: `Connector ${text(row["name"])} (${text(row["role"])}): ${reason(row)}`,
    }));
}

function certificates(router: string, rows: Row[]): Finding[] {
    const found: Finding[] = [];
    for (const row of rows) {
        const days = row["expiresInDays"];
        if (typeof days !== "number" || days > EXPIRES_SOON) continue;
        found.push({
            weight: days < 0 ? 3 : days < 7 ? 2.5 : 2, router, href: `#/entities/sslProfile?${at(router)}`,
            actions: [{ title: "Show the sslProfile", href: `#/entities/sslProfile?${at(router)}` }],
            title: days < 0 ? `A certificate of ${router} has expired` : `A certificate of ${router} expires in ${plural(days, "day")}`,
            text: `sslProfile ${text(row["name"])}. Replace its files; the router takes them without a restart.`,
        });
    }
    return found;
}

function autoLinks(router: string, rows: Row[]): Finding[] {
    return rows.filter((row) => row["operStatus"] === "failed" || row["lastError"]).map((row) => ({
        weight: 2, router, href: `#/autolinks?${at(router)}`,
        actions: [{ title: "Auto links", href: `#/autolinks?${at(router)}` }, { title: "Connectors", href: `#/entities/connector?${at(router)}` }], title: `The auto link of ${text(row["address"])} does not work`,
        text: text(row["lastError"]) || `${text(row["name"])} is ${text(row["operStatus"])}`,
    }));
}

const REFUSED = ["connectionsDenied", "sessionDenied", "senderDenied", "receiverDenied", "maxMessageSizeDenied"];

/** Connections for which there is no vhost, as if it were one. Dispatch 1.19 does not count them. */
const ofUnknownVhosts = (policy: Row): Row => ({ hostname: null, connectionsDenied: policy["unknownVhostsDenied"] ?? 0 });

/** By vhosts: the policy's own counters have no connections that a vhost refused. */
function refusals(router: string, vhosts: Row[], denials: Map<string, number>): Finding[] {
    const sum = (row: Row, names: string[]): number => names.reduce((all, name) => all + number(row[name]), 0);
    const refusing = vhosts.filter((row) => sum(row, REFUSED) > 0).sort((one, other) => sum(other, REFUSED) - sum(one, REFUSED));
    const total = refusing.reduce((all, row) => all + sum(row, REFUSED), 0);
    const before = denials.get(router);
    if (before === undefined || before > total) denials.set(router, total);
    if (total === 0) return [];
    const now = total - (before ?? total);
    const each = refusing.map((row) => {
        const parts = [
            [sum(row, ["connectionsDenied"]), "connection"], [sum(row, ["sessionDenied"]), "session"],
            [sum(row, ["senderDenied", "receiverDenied"]), "link"], [sum(row, ["maxMessageSizeDenied"]), "message"],
        ] as const;
        const name = row["hostname"] === null ? "unknown vhosts" : `vhost ${text(row["hostname"])}`;
        return `${name} ${parts.filter(([value]) => value > 0).map(([value, what]) => plural(value, what)).join(", ")}`;
    });
    return [{
        weight: now > 0 ? 2.5 : 1, router, href: `#/vhosts?${at(router)}`,
        actions: [{ title: "Log of refusals", href: `#/log?${at(router)}&q=denied` }],
        title: now > 0 ? `${router} refuses clients: ${count(now)} since this page was opened` : `${router} has refused clients`,
        text: `By policy, since its start: ${some(each)}. The log says whom, and why.`,
    }];
}

/** Why a connector does not connect, without what the title has. */
function reason(row: Row): string {
    const message = text(row["connectionMsg"]).replace(/^\[C\d+\] Connection to \S+ failed: /, "").replace(/^proton:io /, "");
    return message.replace(/ - disconnected \S+$/, "") || "it is connecting";
}

/** Messages that are stuck, each counted once: where its producer is. Routers on its way count it, too. */
export function stuckMessages(all: Watched[]): number {
    const links = all.flatMap((each) => each.links).filter((link) => link["linkDir"] === "in" && link["linkType"] === "endpoint");
    return links.reduce((sum, link) => sum + number(link["deliveriesStuck"]), 0);
}

function lost(router: string, row: Row): Finding[] {
    const dropped = number(row["droppedPresettledDeliveries"]);
    return dropped === 0 ? [] : [{
        weight: 1, router, href: `#/links?${at(router)}`, actions: [{ title: "Slowest links", href: `#/links?${at(router)}&sort=-undelivered` }], title: `${router} has dropped ${plural(dropped, "presettled delivery", "presettled deliveries")}`,
        text: "Their consumers were slower than their producers, and presettled deliveries do not wait.",
    }];
}
