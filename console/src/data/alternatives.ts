// Consoles of other routers of the network, for a reader whose router is gone.
import { text } from "./management.ts";
import type { Row } from "./management.ts";

export interface Alternative { router: string; url: string }

export const LISTENER_COLUMNS = ["name", "host", "port", "http", "websockets", "httpRootDir", "requireSsl"];

const isLoopback = (host: string): boolean => /^(localhost|127\..*|\[?::1\]?)$/.test(host);
const isWildcard = (host: string): boolean => ["", "0.0.0.0", "::", "[::]", "*"].includes(host);

/** Return the host of `host:port`; addresses of IPv6 keep their brackets. */
export function hostOf(address: string): string {
    const host = /^(\[.*\]|[^:]*)(:\d+)?$/.exec(address)?.[1];
    return host ?? (address.includes("::") ? `[${address}]` : "");
}

/**
 * Return where a browser finds the console of a router; null: nowhere that is known.
 *
 * hosts: those from which, or at which, other routers are connected to it. here: the host of this page, since a name for
 * this machine leads to the router only if the browser is on that machine as well.
 */
export function consoleOf(router: string, listeners: Row[], hosts: string[], here: string): Alternative | null {
    const reachable = (host: string): boolean => host !== "" && (isLoopback(here) || !isLoopback(host));
    for (const row of listeners) {
        if (row["http"] !== true || row["websockets"] === false || row["httpRootDir"]) continue;
        const port = Number(text(row["port"]));
        const own = text(row["host"]);
        const host = (isWildcard(own) ? hosts : [own.includes(":") && !own.startsWith("[") ? `[${own}]` : own]).find(reachable);
        if (host !== undefined && port > 0) return { router, url: `${row["requireSsl"] === true ? "https" : "http"}://${host}:${port}/` };
    }
    return null;
}
