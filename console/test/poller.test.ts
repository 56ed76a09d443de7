import assert from "node:assert/strict";
import { test } from "node:test";
import { HIDDEN_INTERVAL, MOST_AT_ONCE, PAUSE_PER_COST, Poller } from "../src/data/poller.ts";

/** A clock that a test turns; calls are made in order of time. */
class Turned {
    time = 0;
    away = false;
    private timers: { at: number; call: () => void }[] = [];
    now = (): number => this.time;
    hidden = (): boolean => this.away;
    after = (ms: number, call: () => void): unknown => {
        const timer = { at: this.time + ms, call };
        this.timers.push(timer);
        return timer;
    };
    cancel = (timer: unknown): void => { this.timers = this.timers.filter((each) => each !== timer); };

    async turn(ms: number): Promise<void> {
        const until = this.time + ms;
        for (;;) {
            await settle();
            const next = this.timers.filter((each) => each.at <= until).sort((one, other) => one.at - other.at)[0];
            if (next === undefined) break;
            this.cancel(next);
            this.time = Math.max(this.time, next.at);
            next.call();
        }
        this.time = until;
        await settle();
    }
}

const settle = async (): Promise<void> => { for (let turn = 0; turn < 20; turn += 1) await Promise.resolve(); };
const nothing = (): void => undefined;

function counted(clock: Turned, cost = 0): { fetch: () => Promise<number>; calls: () => number } {
    let calls = 0;
    return {
        calls: () => calls,
        fetch: () => {
            calls += 1;
            if (cost === 0) return Promise.resolve(calls);
            return new Promise((done) => clock.after(cost, () => done(calls)));
        },
    };
}

test("two pages that show the same ask once", async () => {
    const clock = new Turned();
    const poller = new Poller(clock);
    const { fetch, calls } = counted(clock);
    poller.watch("a", fetch, 1000, nothing);
    poller.watch("a", fetch, 1000, nothing);
    poller.start();
    await clock.turn(100);
    assert.equal(calls(), 1);
    await clock.turn(1000);
    assert.equal(calls(), 2);
    assert.equal(poller.get("a").value, 2);
});

test("nobody looks: nothing is asked", async () => {
    const clock = new Turned();
    const poller = new Poller(clock);
    const { fetch, calls } = counted(clock);
    const end = poller.watch("a", fetch, 1000, nothing);
    poller.start();
    await clock.turn(100);
    end();
    await clock.turn(60_000);
    assert.equal(calls(), 1);
});

test("an answer that takes long is asked for seldom", async () => {
    const clock = new Turned();
    const poller = new Poller(clock);
    const { fetch, calls } = counted(clock, 200);
    poller.watch("a", fetch, 1000, nothing);
    poller.start();
    await clock.turn(200 * PAUSE_PER_COST * 3 + 1000);
    assert.equal(calls(), 4);
});

test("a tab that nobody sees asks seldom", async () => {
    const clock = new Turned();
    const poller = new Poller(clock);
    const { fetch, calls } = counted(clock);
    clock.away = true;
    poller.watch("a", fetch, 1000, nothing);
    poller.start();
    await clock.turn(HIDDEN_INTERVAL * 2 + 500);
    assert.equal(calls(), 3);
});

test("few requests are under way, and never two of a feed", async () => {
    const clock = new Turned();
    const poller = new Poller(clock);
    const open: (() => void)[] = [];
    for (let feed = 0; feed < 10; feed += 1) {
        poller.watch(`feed ${feed}`, () => new Promise<void>((done) => open.push(done)), 1000, nothing);
    }
    poller.start();
    await clock.turn(5000);
    assert.equal(open.length, MOST_AT_ONCE);
    open[0]!();
    await clock.turn(1);
    assert.equal(open.length, MOST_AT_ONCE + 1);
});

test("an error is told, and the value before it stays", async () => {
    const clock = new Turned();
    const poller = new Poller(clock);
    let fails = false;
    poller.watch("a", () => (fails ? Promise.reject(new Error("no answer")) : Promise.resolve("old")), 1000, nothing);
    poller.start();
    await clock.turn(100);
    fails = true;
    await clock.turn(1000);
    assert.equal(poller.get("a").value, "old");
    assert.equal(poller.get("a").error, "no answer");
});

test("without a connection nothing is asked", async () => {
    const clock = new Turned();
    const poller = new Poller(clock);
    const { fetch, calls } = counted(clock);
    poller.watch("a", fetch, 1000, nothing);
    await clock.turn(5000);
    assert.equal(calls(), 0);
    poller.start();
    await clock.turn(1);
    poller.stop();
    await clock.turn(5000);
    assert.equal(calls(), 1);
});

test("values outlive the connection and their page, without an error, until there is a connection again", async () => {
    const clock = new Turned();
    const poller = new Poller(clock);
    let fail: (error: Error) => void = nothing;
    let calls = 0;
    const fetch = (): Promise<number> => {
        calls += 1;
        return calls === 1 ? Promise.resolve(1) : new Promise((_, failed) => { fail = failed; });
    };
    const leave = poller.watch("a", fetch, 1000, nothing);
    poller.start();
    await clock.turn(1500);
    poller.stop();
    fail(new Error("The connection was lost"));
    leave();
    await clock.turn(60_000);
    assert.deepEqual([poller.get("a").value, poller.get("a").error, calls], [1, null, 2]);
    poller.start();
    assert.equal(poller.get("a").value, undefined);
});
