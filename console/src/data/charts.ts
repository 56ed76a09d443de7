// What can be charted: attributes of entities, as they are or as rates, and which of them the reader has chosen.
import { text } from "./management.ts";

export interface Charted { router: string; type: string; identity: string; name: string }

export const keyOf = ({ router, type, identity, name }: Charted): string => [router, type, identity, name].join("\n");

const COUNTERS = /^(deliveries(?!Stuck)\w*|\w*Deliveries|(delivery|accepted|rejected|released|modified|presettled|droppedPresettled|received|dropped|forwarded|diverted|matched|trace|debug|info|notice|warning|error|critical)Count|connections(Processed|Denied|Approved)|\w*Denied|totalDenials|cpuSeconds|wakes)$/;

/** Whether an attribute only grows, so that its rate is of interest. */
export function isCounter(name: string): boolean {
    return COUNTERS.test(name);
}

export function parseCharted(written: string): Charted | null {
    const parts = written.split("/").map((each) => {
        try {
            return decodeURIComponent(each);
        } catch {
            return each;
        }
    });
    const [router, type, identity, name] = parts;
    return parts.length === 4 && name ? { router: router!, type: type!, identity: identity!, name } : null;
}

/** The chosen ones as they are kept in the browser. */
export function readCharted(kept: string): Charted[] {
    try {
        const found = JSON.parse(kept) as unknown;
        if (!Array.isArray(found)) return [];
        return found.filter((each: Partial<Charted>) => [each.router, each.type, each.identity, each.name].every((one) => typeof one === "string")) as Charted[];
    } catch {
        return [];
    }
}

/** What is recorded of each router, and of the workers of the connected one, without being asked to. */
export const ROUTER_CHARTS: { name: string; title: string }[] = [
    { name: "deliveriesIngress", title: "Messages in" },
    { name: "deliveriesEgress", title: "Messages out" },
    { name: "deliveriesTransit", title: "Messages through, to other routers" },
    { name: "acceptedDeliveries", title: "Accepted" },
    { name: "rejectedDeliveries", title: "Rejected" },
    { name: "releasedDeliveries", title: "Released" },
    { name: "modifiedDeliveries", title: "Modified" },
    { name: "droppedPresettledDeliveries", title: "Presettled dropped" },
    { name: "deliveriesDelayed1Sec", title: "Delayed for more than 1 s" },
    { name: "deliveriesStuck", title: "Stuck deliveries" },
    { name: "linksBlocked", title: "Blocked links" },
    { name: "connectionCount", title: "Connections" },
    { name: "linkCount", title: "Links" },
    { name: "addrCount", title: "Addresses" },
    { name: "memoryUsage", title: "Memory" },
];
/** share: of the deliveries since the look before, which were settled within what is charted. */
export const WORKER_CHARTS: { name: string; title: string; share?: number }[] = [
    { name: "cpuSeconds", title: "Load of workers" },
    { name: "latencyP50Seconds", title: "Latency, 50 of 100 within", share: 0.5 },
    { name: "latencyP90Seconds", title: "Latency, 90 of 100 within", share: 0.9 },
    { name: "latencyP99Seconds", title: "Latency, 99 of 100 within", share: 0.99 },
    { name: "bufferedOctets", title: "Buffered by workers" },
];

export function unitOf(name: string): string {
    if (name === "cpuSeconds") return "load";
    if (isCounter(name)) return "/s";
    if (/Octets$|^memoryUsage$/.test(name)) return "octets";
    return /Seconds$/.test(name) ? "s" : "";
}

export const label = (charted: Charted): string =>
    charted.type === "router" ? charted.router : `${charted.router} ${text(charted.type)} ${charted.identity}`;
