// Why no delivery moves on a link, as a router of Sluice says it.
import { number, text } from "./management.ts";
import type { Row } from "./management.ts";

const REASONS = new Set([
    "credit", "window", "unread", "hop", "broker", "no-consumer", "unsettled", "memory", "quota", "ring", "supervisor",
]);

export interface Stall { reason: string; seconds: number; words: string }

/** The stall of a link; undefined: nothing is in the way, or the router does not say. Of rows of links and of EXPLAIN. */
export function stallOf(row: Row): Stall | undefined {
    const reason = text(row["stall"]);
    // Dispatch 1.19 answers with values of other attributes.
    if (!REASONS.has(reason)) return undefined;
    return { reason, seconds: number(row["stallSeconds"]), words: text(row["stallText"]) };
}
