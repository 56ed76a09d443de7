// How long deliveries stay in the router, by counts by powers of two of a microsecond.

const MICROSECOND = 1e-6; // seconds; the first count ends here, each next at twice the time

/** Seconds within which `share` (0 to 1) of the deliveries were settled: the end of a step. null: there were none. */
export function quantile(counts: number[], share: number): number | null {
    const wanted = share * counts.reduce((sum, count) => sum + count, 0);
    let seen = 0;
    for (const [step, count] of counts.entries()) {
        seen += count;
        if (count && seen >= wanted) return MICROSECOND * 2 ** step;
    }
    return null;
}
