// What pages show, asked for again and again: once for all pages that show it, never two requests of a feed at a time,
// and the slower the more the answers cost. A tab that nobody sees asks seldom.

export interface Clock {
    now(): number;
    after(ms: number, call: () => void): unknown;
    cancel(timer: unknown): void;
    hidden(): boolean;
}

export interface Feed<Value> {
    value: Value | undefined;
    error: string | null;
    /** When the value came, ms. */
    at: number;
}

interface Entry extends Feed<unknown> {
    key: string;
    fetch: () => Promise<unknown>;
    interval: number;
    listeners: Set<() => void>;
    due: number;
    cost: number;
    running: boolean;
    left: unknown; // timer after which an entry without listeners is forgotten
}

/** An answer that took 100 ms is asked for every 5 s at most: a console never takes more than 2 % of a router's time. */
export const PAUSE_PER_COST = 50;
export const HIDDEN_INTERVAL = 15_000; // ms
export const MOST_AT_ONCE = 3;
const KEPT = 10_000; // ms that a feed outlives its last page, so that going back shows it at once

export class Poller {
    private readonly entries = new Map<string, Entry>();
    private readonly clock: Clock;
    private running = 0;
    private timer: unknown = null;
    private stopped = true;

    constructor(clock: Clock) {
        this.clock = clock;
    }

    /** Ask while there is a connection. */
    start(): void {
        this.stopped = false;
        for (const [key, entry] of this.entries) if (!entry.listeners.size) this.entries.delete(key);
        for (const entry of this.entries.values()) entry.due = this.clock.now();
        this.plan();
    }

    stop(): void {
        this.stopped = true;
        this.clock.cancel(this.timer);
    }

    /** Forget everything: another user has logged in. */
    clear(): void {
        for (const [key, entry] of this.entries) {
            if (entry.listeners.size) Object.assign(entry, { value: undefined, error: null });
            else this.entries.delete(key);
        }
    }

    /** Keep a feed going; the returned function ends that. changed: called with each new value or error. */
    watch(key: string, fetch: () => Promise<unknown>, interval: number, changed: () => void): () => void {
        let entry = this.entries.get(key);
        if (entry === undefined) {
            entry = {
                key, fetch, interval, listeners: new Set(), due: this.clock.now(), cost: 0, running: false,
                value: undefined, error: null, at: 0, left: null,
            };
            this.entries.set(key, entry);
        } else {
            entry.fetch = fetch;
            entry.interval = Math.min(entry.listeners.size ? entry.interval : Infinity, interval);
        }
        const mine = entry;
        mine.listeners.add(changed);
        this.plan();
        return () => {
            mine.listeners.delete(changed);
            if (mine.listeners.size === 0) {
                this.clock.after(KEPT, () => {
                    // Without a connection the last value is all that there is: start() forgets it.
                    if (mine.listeners.size === 0 && !this.stopped && this.entries.get(key) === mine) this.entries.delete(key);
                });
            }
        };
    }

    get<Value>(key: string): Feed<Value> {
        const entry = this.entries.get(key);
        return entry === undefined ? NOTHING as Feed<Value> : entry as Feed<unknown> as Feed<Value>;
    }

    /** Ask now: somebody has changed something, or has come back. */
    refresh(part = ""): void {
        for (const entry of this.entries.values()) if (entry.key.includes(part)) entry.due = this.clock.now();
        this.plan();
    }

    private plan(): void {
        this.clock.cancel(this.timer);
        if (this.stopped) return;
        const now = this.clock.now();
        const waiting = [...this.entries.values()].filter((each) => !each.running && each.listeners.size);
        waiting.sort((one, other) => one.due - other.due);
        for (const entry of waiting) {
            if (entry.due > now || this.running >= MOST_AT_ONCE) break;
            void this.run(entry);
        }
        const next = waiting.find((each) => !each.running);
        if (next !== undefined && this.running < MOST_AT_ONCE) {
            this.timer = this.clock.after(Math.max(0, next.due - now), () => this.plan());
        }
    }

    private async run(entry: Entry): Promise<void> {
        const began = this.clock.now();
        entry.running = true;
        this.running += 1;
        try {
            entry.value = await entry.fetch();
            entry.error = null;
            entry.at = this.clock.now();
        } catch (error) {
            // A request that ended with the connection says nothing about the router that was asked.
            if (!this.stopped) entry.error = error instanceof Error ? error.message : String(error);
        }
        entry.cost = this.clock.now() - began;
        entry.running = false;
        this.running -= 1;
        entry.due = began + this.pause(entry);
        for (const changed of [...entry.listeners]) changed();
        this.plan();
    }

    private pause(entry: Entry): number {
        const wanted = this.clock.hidden() ? Math.max(entry.interval * 3, HIDDEN_INTERVAL) : entry.interval;
        // A request that nobody answers is no cost for the router.
        const cost = entry.error === null ? entry.cost * PAUSE_PER_COST : 0;
        return Math.min(Math.max(wanted, cost), 120_000);
    }
}

const NOTHING: Feed<unknown> = { value: undefined, error: null, at: 0 };

export const browserClock: Clock = {
    now: () => performance.now(),
    after: (ms, call) => setTimeout(call, ms),
    cancel: (timer) => clearTimeout(timer as number),
    hidden: () => document.visibilityState === "hidden",
};
