// The last 15 minutes of what the page itself records: attributes that somebody has chosen, and routers that keep no
// history.

export const KEPT_SECONDS = 900;

/** total: of all other series of the chart. */
export interface Series { title: string; unit: string; times: number[]; values: (number | null)[]; total?: boolean }

export class History {
    private readonly series = new Map<string, Series>();

    /** time: seconds since 1970. */
    add(key: string, title: string, unit: string, time: number, value: number | null): void {
        let found = this.series.get(key);
        if (found === undefined) {
            found = { title, unit, times: [], values: [] };
            this.series.set(key, found);
        }
        const last = found.times.at(-1);
        if (last !== undefined && time - last < 0.9) return;
        found.times.push(time);
        found.values.push(value);
        let old = 0;
        while (found.times[old]! < time - KEPT_SECONDS) old += 1;
        if (old) {
            found.times.splice(0, old);
            found.values.splice(0, old);
        }
    }

    private readonly counters = new Map<string, { time: number; value: number }>();

    /** The rate of a counter since it was last told; null the first time, and when it went back. */
    rate(key: string, time: number, value: number): number | null {
        const before = this.counters.get(key);
        if (before !== undefined && time - before.time < 0.9) return null;
        this.counters.set(key, { time, value });
        return before === undefined || value < before.value ? null : (value - before.value) / (time - before.time);
    }

    get(key: string): Series | undefined {
        return this.series.get(key);
    }
}

/** The values of several series over all their times, as charts want them. A series that is silent has a gap. */
export function align(all: Series[]): [number[], ...(number | null)[][]] {
    const times = [...new Set(all.flatMap((each) => each.times.map((time) => Math.round(time))))].sort((a, b) => a - b);
    const at = new Map(times.map((time, index) => [time, index]));
    const columns = all.map((each) => {
        // undefined: another series has a value here, and the line goes on.
        const column = new Array<number | null | undefined>(times.length).fill(undefined);
        each.times.forEach((time, index) => { column[at.get(Math.round(time))!] = each.values[index]!; });
        return column as (number | null)[];
    });
    return [times, ...columns];
}
