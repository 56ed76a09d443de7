import assert from "node:assert/strict";
import { test } from "node:test";
import { scramMechanisms } from "../src/amqp/scram.ts";
import { SESSION_MS, Sessions } from "../src/amqp/session.ts";

const KEYS = { user: "alice", hash: "SHA-256", salt: "c2FsdA==", rounds: 4096, clientKey: "a", serverKey: "b" };

/** A tab whose time a test sets. */
class Tab {
    time = 0;
    readonly kept = new Map<string, string>();
    readonly sessions = new Sessions(
        () => ({ getItem: (key) => this.kept.get(key) ?? null, setItem: (key, value) => { this.kept.set(key, value); }, removeItem: (key) => { this.kept.delete(key); } }),
        () => this.time,
    );
}

test("a session ends when its time is up, however often the page is loaded", () => {
    const tab = new Tab();
    tab.sessions.keep(KEYS);
    tab.time = SESSION_MS - 1;
    assert.equal(tab.sessions.read()?.user, "alice");
    tab.sessions.keep(KEYS);
    tab.time = SESSION_MS;
    assert.equal(tab.sessions.read(), null);
    assert.equal(tab.kept.size, 0);
});

test("a login with another password begins a session anew", () => {
    const tab = new Tab();
    tab.sessions.keep(KEYS);
    tab.time = SESSION_MS - 1;
    tab.sessions.keep({ ...KEYS, clientKey: "c" });
    tab.time = SESSION_MS + 1;
    assert.equal(tab.sessions.read()?.clientKey, "c");
});

test("a session that is no session, or lasts too long, is dropped", () => {
    for (const text of ["{", "{}", "7", JSON.stringify({ ...KEYS, until: 1e18 })]) {
        const tab = new Tab();
        tab.kept.set("sluice.session", text);
        assert.equal(tab.sessions.read(), null, text);
    }
});

test("a browser that keeps nothing has no session", () => {
    const sessions = new Sessions(() => { throw new Error("denied"); });
    sessions.keep(KEYS);
    assert.equal(sessions.read(), null);
});

test("a session logs in by the mechanism of its keys only, never by PLAIN", () => {
    const session = { ...KEYS, until: 1 };
    assert.deepEqual(Object.keys(scramMechanisms({ user: "alice", session }, () => undefined)), ["SCRAM-SHA-256"]);
});
