import assert from "node:assert/strict";
import { test } from "node:test";
import { App } from "../src/app.ts";
import type { Network } from "../src/app.ts";
import type { Value } from "../src/data/management.ts";

Object.assign(globalThis, { document: { visibilityState: "visible", addEventListener: () => undefined } });

/** Router A, which the page is connected to, B, and edge router E at B. */
class World {
    time = 0;
    there = true; // B is
    answers = true; // B does
    asked: string[] = [];
    readonly app = new App("ws://127.0.0.1:1/", (address, properties) => this.answer(address, String(properties["entityType"]).split(".").slice(4).join(".")));

    private async answer(address: string, type: string): Promise<{ status: number; description: string; body: unknown }> {
        const at = address.includes("/B/") ? "B" : "A";
        this.asked.push(`${at} ${type}`);
        if (at === "B" && !this.answers) throw new Error("There was no answer");
        const rows: Record<string, Record<string, Value>[]> = {
            "A router": [{ id: "A", mode: "interior" }],
            "A router.node": [{ id: "A", nextHop: "(self)" }, { id: "B", nextHop: null, cost: this.there ? 1 : null }],
            "B connection": [{ identity: "1", container: "E", role: "edge", dir: "in", opened: true }],
        };
        const found = rows[`${at} ${type}`] ?? [];
        const attributeNames = [...new Set(found.flatMap((row) => Object.keys(row)))];
        return { status: 200, description: "", body: { attributeNames, results: found.map((row) => attributeNames.map((name) => row[name] ?? null)) } };
    }

    async look(): Promise<[string[], string[]]> {
        performance.now = () => this.time;
        const network: Network = await this.app.network().fetch();
        return [network.targets.map((each) => each.id), network.lost.map((each) => each.id)];
    }
}

test("which edge routers there are is asked for now and then, and they go only with their router", async () => {
    const world = new World();
    const whole: [string[], string[]] = [["A", "B", "E"], []];
    assert.deepEqual(await world.look(), whole);
    world.time += 5_000;
    assert.deepEqual(await world.look(), whole);
    assert.deepEqual(world.asked.filter((each) => each === "B connection").length, 1);
    world.time += 16_000;
    world.answers = false;
    assert.deepEqual(await world.look(), whole);
    assert.deepEqual(world.asked.filter((each) => each === "B connection").length, 2);
    world.there = false;
    assert.deepEqual(await world.look(), [["A"], ["B", "E"]]);
});
