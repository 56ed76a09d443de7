// What can be charted: attributes of entities, as they are or as rates, and which of them the reader has chosen.
import { text } from "./management.ts";

export interface Charted { router: string; type: string; identity: string; name: string }

export const keyOf = ({ router, type, identity, name }: Charted): string => [router, type, identity, name].join("\n");

const COUNTERS = /^(deliveries(?!Stuck)\w*|\w*Deliveries|(delivery|accepted|rejected|released|modified|presettled|droppedPresettled|received|dropped|forwarded|diverted|matched|trace|debug|info|notice|warning|error|critical)Count|connections(Processed|Denied|Approved|Accepted)|loginsFailed|policyDenials|\w*Denied|totalDenials|cpuSeconds|supervisorCpuSeconds|wakes)$/;

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

/** Charts of each router. sum: values of several routers add up. Names are those of GET-HISTORY. */
export const ROUTER_CHARTS: { name: string; title: string; sum: boolean }[] = [
    { name: "deliveriesIngress", title: "Messages in", sum: true },
    { name: "deliveriesEgress", title: "Messages out", sum: true },
    { name: "deliveriesTransit", title: "Messages through, to other routers", sum: true },
    { name: "acceptedDeliveries", title: "Accepted", sum: true },
    { name: "rejectedDeliveries", title: "Rejected", sum: true },
    { name: "releasedDeliveries", title: "Released", sum: true },
    { name: "modifiedDeliveries", title: "Modified", sum: true },
    { name: "droppedPresettledDeliveries", title: "Presettled dropped", sum: true },
    { name: "latencyP50Seconds", title: "Latency, 50 of 100 within", sum: false },
    { name: "latencyP90Seconds", title: "Latency, 90 of 100 within", sum: false },
    { name: "latencyP99Seconds", title: "Latency, 99 of 100 within", sum: false },
    { name: "deliveriesDelayed1Sec", title: "Delayed for more than 1 s", sum: true },
    { name: "deliveriesStuck", title: "Stuck deliveries", sum: true },
    { name: "linksBlocked", title: "Blocked links", sum: true },
    { name: "connectionCount", title: "Connections", sum: true },
    { name: "linkCount", title: "Links", sum: true },
    { name: "addrCount", title: "Addresses", sum: false },
    { name: "connectionsAccepted", title: "New connections", sum: true },
    { name: "loginsFailed", title: "Failed logins", sum: true },
    { name: "policyDenials", title: "Refused by policy", sum: true },
    { name: "cpuSeconds", title: "Load of workers", sum: true },
    { name: "busiestWorkerLoad", title: "Load of the busiest worker", sum: false },
    { name: "supervisorCpuSeconds", title: "Load of the supervisor", sum: false },
    { name: "bufferedOctets", title: "Buffered by workers", sum: true },
    { name: "memoryUsage", title: "Memory", sum: true },
];

/** Ranges of the time axis, and the periods of the history that they show, both in seconds. */
export const RANGES: { name: string; seconds: number; step: number }[] = [
    { name: "15 minutes", seconds: 900, step: 5 },
    { name: "1 hour", seconds: 3600, step: 5 },
    { name: "1 day", seconds: 86_400, step: 60 },
    { name: "30 days", seconds: 2_592_000, step: 3600 },
];

export function unitOf(name: string): string {
    if (/^cpuSeconds$|CpuSeconds$|Load$/.test(name)) return "load";
    if (isCounter(name)) return "/s";
    if (/Octets$|^memoryUsage$/.test(name)) return "octets";
    return /Seconds$/.test(name) ? "s" : "";
}

export const label = (charted: Charted): string =>
    charted.type === "router" ? charted.router : `${charted.router} ${text(charted.type)} ${charted.identity}`;
