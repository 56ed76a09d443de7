// The history that routers keep themselves (GET-HISTORY): figures of past periods, and events.
import { number, text } from "./management.ts";
import type { Row, Value } from "./management.ts";
import { unitOf } from "./charts.ts";
import type { Series } from "./history.ts";

export interface PastEvent { router: string; time: number; kind: string; text: string; count: number; last: number }

/** Kinds of events that are no good news. */
const BAD = new Set(["worker", "router lost", "connector down", "processor", "reload refused", "stop"]);
export const isBad = (event: PastEvent): boolean => BAD.has(event.kind);

/** History of one router in periods of one length, put together from answers. */
export class Past {
    readonly router: string;
    readonly step: number;
    readonly most: number; // periods kept
    times: number[] = [];
    readonly values = new Map<string, (number | null)[]>();
    events: PastEvent[] = [];

    constructor(router: string, step: number, seconds: number) {
        this.router = router;
        this.step = step;
        this.most = Math.ceil(seconds / step);
    }

    /** Time up to which everything is known; 0: nothing is. */
    get since(): number {
        return this.times.at(-1) ?? 0;
    }

    add(answer: Row): void {
        const figures = (answer["figures"] ?? {}) as Record<string, Value>;
        const first = number(answer["first"]);
        const lengths = Object.values(figures).map((column) => (Array.isArray(column) ? column.length : 0));
        const length = Math.max(0, ...lengths);
        const times = Array.from({ length }, (_, index) => first + index * this.step);
        const kept = this.times.length;
        // A router whose clock was set back answers with periods that are known already.
        const again = kept && length && first <= this.since ? this.times.findIndex((time) => time >= first) : kept;
        this.times = [...this.times.slice(0, again), ...times].slice(-this.most);
        for (const [name, column] of Object.entries(figures)) {
            const before = (this.values.get(name) ?? new Array<null>(kept).fill(null)).slice(0, again);
            const added = (column as Value[]).map((value) => (typeof value === "number" ? value : null));
            this.values.set(name, [...before, ...added].slice(-this.most));
        }
        const events = (Array.isArray(answer["events"]) ? answer["events"] : []).map((each) => this.event(each as Row));
        const repeated = new Set(events.map((each) => `${each.time} ${each.text}`));
        const first_shown = (this.times[0] ?? 0) - this.step;
        this.events = [...this.events.filter((each) => !repeated.has(`${each.time} ${each.text}`)), ...events]
            .filter((each) => each.last >= first_shown);
    }

    private event(row: Row): PastEvent {
        return {
            router: this.router, time: number(row["time"]), kind: text(row["kind"]), text: text(row["text"]),
            count: number(row["count"]), last: number(row["last"]),
        };
    }

    series(name: string): Series | undefined {
        const values = this.values.get(name);
        return values && { title: this.router, unit: unitOf(name), times: this.times, values };
    }
}

export const MOST_LINES = 8; // of a chart, other than the total

/** What a chart draws of many series: their total, the largest ones, and the others together. */
export function condense(all: Series[], sum: boolean, step: number): { lines: Series[]; omitted: number } {
    if (all.length < 2) return { lines: all, omitted: 0 };
    const total = sum ? [{ ...added(all, step), title: "all routers", total: true }] : [];
    if (all.length <= MOST_LINES) return { lines: [...total, ...all], omitted: 0 };
    const size = (each: Series): number => each.values.reduce<number>((most, value) => most + Math.abs(value ?? 0), 0);
    const sizes = new Map(all.map((each) => [each, size(each)]));
    const largest = new Set([...all].sort((one, other) => sizes.get(other)! - sizes.get(one)!).slice(0, MOST_LINES - 1));
    const others = all.filter((each) => !largest.has(each));
    const rest = sum ? [{ ...added(others, step), title: `${others.length} others` }] : [];
    return { lines: [...total, ...all.filter((each) => largest.has(each)), ...rest], omitted: sum ? 0 : others.length };
}

const LATE = 4; // periods by which the answers of two routers may begin or end apart

/** The sum of series at all times that every router's answer has: one that begins or ends a little later is no dip. */
function added(all: Series[], step: number): Series {
    const ends = all.map((each) => each.times.at(-1) ?? 0);
    const newest = Math.max(...ends);
    const known = Math.min(...ends.filter((end) => end >= newest - LATE * step));
    const begins = all.map((each) => each.times[0] ?? Infinity);
    const oldest = Math.min(...begins);
    const begin = Math.max(...begins.filter((each) => each <= oldest + LATE * step));
    const sums = new Map<number, number | null>();
    for (const { times, values } of all) {
        times.forEach((time, index) => {
            if (time < begin || time > known) return;
            const value = values[index] ?? null;
            const before = sums.get(time) ?? null;
            sums.set(time, value === null ? before : (before ?? 0) + value);
        });
    }
    const times = [...sums.keys()].sort((one, other) => one - other);
    return { title: "", unit: all[0]!.unit, times, values: times.map((time) => sums.get(time)!) };
}
