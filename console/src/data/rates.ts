// Rows with the ones before them, so that counters become rates.
import type { Row } from "./management.ts";

export interface Table {
    rows: Row[];
    /** Events a second of a counter; null: not known yet. */
    rate(row: Row, column: string): number | null;
    /** What was added to a list of counts since the sample before; null: not known yet. */
    added(row: Row, column: string): number[] | null;
    at: number;
}

const LEAST = 900; // ms between two samples that a rate is made of

/** Makes tables of the rows of one feed. key: what names a row. */
export class Rates {
    private before: Map<string, Row> | null = null;
    private beforeAt = 0;
    private last: Map<string, Row> | null = null;
    private lastAt = 0;
    private readonly key: (row: Row) => string;

    constructor(key: (row: Row) => string) {
        this.key = key;
    }

    table(rows: Row[], at: number): Table {
        if (this.last !== null && at - this.lastAt >= LEAST) {
            this.before = this.last;
            this.beforeAt = this.lastAt;
        }
        if (this.last === null || at - this.lastAt >= LEAST) {
            this.last = new Map(rows.map((row) => [this.key(row), row]));
            this.lastAt = at;
        }
        const { before, beforeAt, key } = this;
        const seconds = (at - beforeAt) / 1000;
        return {
            rows,
            at,
            added(row, column) {
                const now = row[column];
                const then = before?.get(key(row))?.[column];
                if (!Array.isArray(now) || !Array.isArray(then)) return null;
                const counts = now.map((count, index) => Number(count) - Number(then[index] ?? 0));
                return counts.some((count) => count < 0) ? null : counts;
            },
            rate(row, column) {
                const now = row[column];
                if (before === null || typeof now !== "number") return null;
                const then = before.get(key(row))?.[column] ?? 0;
                // A counter that went back belongs to a router that has started again.
                return typeof then !== "number" || now < then ? null : (now - then) / seconds;
            },
        };
    }
}
