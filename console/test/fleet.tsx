// The console at a network of 21 routers with names that are long, hostile or foreign, and with all that can be wrong.
// Tests and pictures use it in place of a router. `fleet` in the page loses the connection and routers.
import { App } from "../src/app.ts";
import { RequestError } from "../src/amqp/answer.ts";
import type { Answer } from "../src/amqp/answer.ts";
import type { Row, Value } from "../src/data/management.ts";
import { show } from "../src/ui/root.tsx";
import { okAnswer, shortType, tableAnswer } from "./answers.ts";
import { CITIES, STORES, connections, linkState } from "./retail.ts";

const HOSTILE = "<img src=x onerror=document.title='broken'>\u202Etxt.exe\u2066 地址 🛰️ 'quoted' \"twice\"";
const LONG = "sensors/plant-0042/building-7/line-13/machine-0815/temperature/celsius/average-of-the-last-minute";
const ADDRESSES = ["orders", "invoices", "letters", "shipping.labels", LONG, LONG.replace("0815", "0816"), HOSTILE, "مرحبا/بالعالم", "tills/prices", "events/all"];
const began = performance.now();
const silent = new Set<string>();

const moved = (speed: number): number => Math.floor(5000 + (performance.now() - began) / 1000 * speed);
const seed = (text: string): number => [...text].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)!) % 9973, 7);

function routerRow(id: string): Row {
    const store = STORES.includes(id);
    return {
        id, name: id, identity: "1", mode: store ? "edge" : "interior", version: "0.2.0", workerThreads: 4, memoryUsage: 130e6 + seed(id) * 1e4,
        connectionCount: connections(id).length, linkCount: 40 + seed(id) % 60, addrCount: 60, uptimeSeconds: 86_400 * 3 + seed(id),
        deliveriesIngress: moved(seed(id) % 900), deliveriesEgress: moved(seed(id) % 800), deliveriesTransit: moved(seed(id) % 300), deliveriesIngressEdge: moved(2),
        linksBlocked: id === "sydney-1" ? 2 : id === "dublin-1" ? 1 : 0, deliveriesStuck: id === "sydney-1" ? 34 : 0, droppedPresettledDeliveries: id === "oregon-1" ? 17 : 0,
    };
}

function links(id: string): Row[] {
    const clients = connections(id).filter((row) => row["role"] === "normal");
    return clients.flatMap((row, index): Row[] => ["in", "out"].map((linkDir, side): Row => {
        const address = ADDRESSES[(index + seed(id)) % ADDRESSES.length]!;
        const blocked = id === "sydney-1" && index === 2;
        return {
            identity: String(10 * index + side), linkName: `${String(row["container"])}/${address}`, linkType: "endpoint", linkDir, owningAddr: `M0${blocked ? "shipping.labels" : address}`,
            connectionId: row["identity"]!, operStatus: "up", deliveryCount: moved(index % 97), undeliveredCount: blocked && side ? 34 : 0, unsettledCount: blocked && side ? 34 : index % 3,
            creditAvailable: blocked ? 0 : 250, zeroCreditSeconds: blocked ? 754 : id === "dublin-1" && !side ? 5400 : 0, deliveriesStuck: blocked ? 34 : 0,
            ...(blocked ? { stall: "unsettled", stallSeconds: 754, stallText: "34 deliveries are unsettled, the oldest for 754 s" } : {}),
        };
    }));
}

const log = (id: string): Value[] => Array.from({ length: 400 }, (_, index): Value => {
    const level = index % 40 === 39 ? "error" : index % 13 === 12 ? "warning" : index % 3 ? "info" : "notice";
    const text = [
        `[C${index}] Connection Opened: dir=in host=10.0.0.${index % 250}:5${index} encrypted=TLSv1.3 auth=SCRAM-SHA-256 user=alice container_id=till-${index}`,
        `Link attached: ${HOSTILE}`, `Connection to broker-a.eu.example.com:5671 failed: Connection refused`, `Accepted connection for ${LONG}`,
    ][index % 4]!;
    return [["ROUTER_CORE", "SERVER", "ROUTER", "CONN_MGR"][index % 4]!, level, `${text} at ${id}`, "supervisor/x.py", index, 1_795_000_000 - (400 - index) * 397.137];
});

const SCHEMA = {
    entityTypes: {
        listener: {
            description: "Listens for connections of clients.", operations: ["CREATE", "DELETE", "READ"],
            attributes: { name: { type: "string", description: "Unique name" }, host: { type: "string", required: true, description: "Address to listen on" }, port: { type: "string", required: true, description: "Port" }, role: { type: ["normal", "inter-router", "edge"], default: "normal", description: "Role of the connections" } },
        },
        connector: {
            description: "Opens connections.", operations: ["CREATE", "DELETE", "READ", "UPDATE"],
            attributes: { name: { type: "string", description: "Unique name" }, host: { type: "string", required: true, description: "Where to connect" }, port: { type: "string", required: true, description: "Port" }, connectionStatus: { type: "string", description: "State" } },
        },
        "router.config.address": { description: "How an address distributes its messages.", operations: ["CREATE", "DELETE", "READ"], attributes: { prefix: { type: "string", description: "Addresses that begin with it" }, distribution: { type: ["balanced", "closest", "multicast"], description: "To whom" } } },
    },
};

function rows(id: string, type: string): Row[] {
    switch (type) {
        case "router": return [routerRow(id)];
        case "router.node": return linkState.map((row, index): Row => ({
            ...row, cost: row["id"] === id ? null : 1 + index, nextHop: row["id"] === id ? "(self)" : CITIES[1]!,
        }));
        case "connection": return connections(id).map((row): Row => ({
            ...row, deliveriesIn: moved(Number(row["deliveriesIn"]) * 9), deliveriesOut: moved(Number(row["deliveriesOut"]) * 7), sasl: "SCRAM-SHA-256", isEncrypted: true, sslProto: "TLSv1.3", user: row["role"] === "normal" ? "alice@example-retail.com" : "", uptimeSeconds: 7200, lastDlvSeconds: 3,
            ...(row["container"] === "dashboard-0" ? { container: HOSTILE, user: HOSTILE } : {}),
        }));
        case "router.link": return links(id);
        case "router.address": return ADDRESSES.map((address, index): Row => ({
            name: `M0${address}`, distribution: ["balanced", "closest", "multicast"][index % 3]!, inProcess: 0, subscriberCount: index % 4, remoteCount: index % 3, containerCount: 0, deliveriesIngress: moved(index * 40), deliveriesEgress: moved(index * 38), deliveriesTransit: moved(index),
        }));
        case "connector": return id === "frankfurt-1" ? [
            { identity: "1", name: "broker", host: "broker-a.eu.example.com", port: "5671", role: "route-container", connectionStatus: "FAILED", connectionMsg: "[C12] Connection to broker-a.eu.example.com:5671 failed: Connection refused" },
            { identity: "2", name: HOSTILE, host: LONG, port: "5671", role: "normal", connectionStatus: "SUCCESS", connectionMsg: "" },
        ] : [];
        case "sslProfile": return id === "oregon-1" ? [{ identity: "1", name: "server", expiresInDays: 5 }] : [];
        case "router.config.autoLink": return id === "frankfurt-1" ? [
            { identity: "1", name: "autoLink/0", address: "orders", direction: "in", phase: 1, operStatus: "failed", lastError: "amqp:not-found: no queue 'orders' in vhost '/'", containerId: "artemis-eu", connection: "broker" },
            { identity: "2", name: "autoLink/1", address: LONG, direction: "out", phase: 0, operStatus: "active", lastError: null, containerId: "artemis-eu", connection: "broker" },
        ] : [];
        case "router.config.linkRoute": return id === "frankfurt-1" ? [{ identity: "1", name: "linkRoute/0", prefix: "transactions", direction: "in", operStatus: "active", containerId: null, connection: "broker", distribution: "linkBalanced" }] : [];
        case "vhostStats": return id === "dublin-1" ? [
            { hostname: "shop.example-retail.com", connectionsCurrent: 12, connectionsApproved: 455, connectionsDenied: 3, sessionDenied: 0, senderDenied: 2, receiverDenied: 1, maxMessageSizeDenied: 0, linksCurrent: 40, addressesCurrent: 12, messages: 9, bufferedOctets: 12_000, creditHeldBack: 0 },
            { hostname: HOSTILE, connectionsCurrent: 1, connectionsApproved: 2, connectionsDenied: 0, sessionDenied: 0, senderDenied: 0, receiverDenied: 0, maxMessageSizeDenied: 0, linksCurrent: 2, addressesCurrent: 1, messages: 0, bufferedOctets: 0, creditHeldBack: 0 },
        ] : [];
        case "policy": return [{ identity: "1", connectionsDenied: id === "dublin-1" ? 5 : 0 }];
        case "listener": return CITIES.includes(id) ? [{ identity: "1", name: "web", host: "0.0.0.0", port: "8672", role: "normal", http: true, websockets: true, requireSsl: false }] : [];
        default: return [];
    }
}

function explained(id: string, address: string): Row {
    const user = (row: Row, extra: Row): Row => ({ identity: "1", connection: row["identity"]!, container: row["container"]!, host: row["host"]!, user: "alice", credit: 0, capacity: 250, undelivered: 34, unsettled: 34, stuck: 34, deliveries: moved(10), ...extra });
    const clients = connections(id).filter((row) => row["role"] === "normal");
    const [store, end] = [id === STORES[0], id === "sydney-1"];
    const record: Row = {
        key: `M0${address}`, treatment: "balanced", deliveriesIngress: moved(4), deliveriesEgress: moved(4), deliveriesWaiting: 34,
        consumerCount: end ? 1 : 0, producerCount: store ? 1 : 0, consumersAble: end ? 0 : 0, deliveriesStuck: end ? 34 : 0,
        consumers: end ? [user(clients[2]!, { stall: "unsettled", stallSeconds: 754, stallText: "34 deliveries are unsettled" })] : [],
        producers: store ? [user(clients[0]!, { stuck: 0, withoutCreditSeconds: 754 })] : [],
        remotes: end || store ? [] : [{ router: "sydney-1", nextHop: ["frankfurt-1"].includes(id) ? "singapore-1" : "sydney-1" }],
    };
    return {
        router: id, address, class: "mobile", reachable: !end, verdict: end ? "34 deliveries are stuck at 1 consumer" : "reachable", findings: [end ? "1 consumer has 34 deliveries and settles none of them" : "the consumers are at sydney-1"],
        setting: { pattern: null, distribution: "balanced", ingressPhase: 0, egressPhase: 0, fallback: false }, records: [record],
    };
}

const PATH = [STORES[0]!, "frankfurt-1", "singapore-1", "sydney-1"];

function call(id: string, operation: string, properties: Record<string, unknown>): unknown {
    switch (operation) {
        case "GET-WORKERS": return Array.from({ length: 4 }, (_, worker): Row => ({
            worker, generation: 1, state: "ready", cpuSeconds: moved(1) / 10 * (worker + 1), residentOctets: 31e6, connections: 7, links: 31, deliveriesIngress: moved(300), deliveriesEgress: moved(250), bufferedOctets: 12_345,
            latencyP50Seconds: 0.0002, latencyP90Seconds: 0.0008, latencyP99Seconds: 0.004, latencyHistogram: Array.from({ length: 20 }, (_each, step) => moved(step)), rings: [0, 1, 2, 3].filter((to) => to !== worker).map((to): Row => ({ to, usedOctets: 4096 * to, sizeOctets: 65_536 })),
        }));
        case "GET-LOG": return log(id);
        case "GET-JSON-SCHEMA": return JSON.stringify(SCHEMA);
        case "RELOAD": return { changes: [{ kind: "create", title: `address ${HOSTILE}`, effect: "live", attributes: { prefix: { old: null, new: LONG } } }, { kind: "update", title: "listener web", effect: "reconnect", attributes: { idleTimeoutSeconds: { old: 16, new: 30 } } }] };
        case "EXPLAIN": {
            const address = String(properties["address"]);
            if (properties["path"] !== true) return explained(id, address);
            return { routers: PATH.map((router) => explained(router, address)), ways: [PATH] };
        }
        default: return {};
    }
}

async function ask(address: string, properties: Record<string, unknown>, body: unknown, follows?: (subject: string, body: unknown) => void): Promise<Answer> {
    const id = /^_(?:topo\/0|edge)\/(.*)\/\$management$/.exec(address)?.[1] ?? CITIES[0]!;
    if (app.client.state !== "open") throw new RequestError(0, "There is no connection to the router");
    if (silent.has(id)) throw new RequestError(0, "There was no answer");
    const operation = String(properties["operation"]);
    if (operation === "QUERY") return tableAnswer(rows(id, shortType(properties)), properties, body);
    if (operation === "READ") return okAnswer(rows(id, shortType(properties)).find((row) => row["identity"] === properties["identity"] || row["name"] === properties["identity"]) ?? {});
    if (operation === "UPDATE" && (body as Row)["adminStatus"] === "deleted") fleet.closed.push(`${id}/${String(properties["identity"])}`);
    if (operation === "TRACE") setInterval(() => follows?.("trace", [[Date.now() / 1000, `-> transfer (1) [handle=0, delivery-id=${moved(3)}] ${HOSTILE} ${LONG}`]]), 50);
    return okAnswer(call(id, operation, properties));
}

const app = new App("ws://127.0.0.1:1/", ask);
app.client.request = ask;
Object.assign(app.client, { state: "open", generation: 1, router: CITIES[0]!, user: "alice" });
app.poller.start();
show(app);

/** Changes of the network that tests make. */
const fleet = {
    /** End the connection to the router. */
    lose(): void {
        Object.assign(app.client, { state: "lost", reason: "connection refused" });
        app.connectionChanged();
    },
    /** Connections that the page has closed, as router/identity. */
    closed: [] as string[],
    silence: (id: string): void => { silent.add(id); },
};
Object.assign(globalThis, { fleet });
