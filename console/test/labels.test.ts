import assert from "node:assert/strict";
import { test } from "node:test";
import { Room, along, around, boxOf, settle } from "../src/data/labels.ts";
import type { Box, Place } from "../src/data/labels.ts";

const WIDTH = 70; // of a name
const RADIUS = 20;
const disc = ({ x, y }: Place): Box => ({ left: x - RADIUS, top: y - RADIUS, right: x + RADIUS, bottom: y + RADIUS });
const meet = (one: Box, other: Box): boolean =>
    one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;

function named(nodes: Place[]): Place[] {
    const room = new Room();
    for (const node of nodes) room.take(disc(node));
    return nodes.map((node) => settle(room, around(node, RADIUS, WIDTH), WIDTH, true)!);
}

test("a name is below its node where there is room", () => {
    const [place] = named([{ x: 100, y: 100 }]);
    assert.ok(place!.x === 100 && place!.y > 120 && place!.y < 140);
});

test("names of ten routers that are near each other cover nobody", () => {
    // Nodes right below each other, and side by side nearer than a name is wide.
    const nodes = Array.from({ length: 10 }, (_, index) => ({ x: 200 + (index % 4) * 62, y: 100 + Math.floor(index / 4) * 60 }));
    const boxes = named(nodes).map((place) => boxOf(place, WIDTH));
    for (const [index, box] of boxes.entries()) {
        assert.ok(nodes.every((node) => !meet(box, disc(node))), `name ${index} covers a node`);
        assert.ok(boxes.every((other, at) => at === index || !meet(box, other)), `name ${index} covers a name`);
    }
    assert.deepEqual(named(nodes), named(nodes));
});

test("a text without room is left out, unless it has to be there", () => {
    const room = new Room();
    room.take({ left: 0, top: 0, right: 1000, bottom: 1000 });
    const places = along({ x: 100, y: 100 }, { x: 300, y: 300 });
    assert.equal(settle(room, places, WIDTH, false), null);
    assert.ok(settle(room, places, WIDTH, true) !== null);
});

test("the text of a line goes beside what is in its middle", () => {
    const room = new Room();
    room.take(disc({ x: 200, y: 100 }));
    const found = settle(room, along({ x: 0, y: 100 }, { x: 400, y: 100 }), WIDTH, false);
    assert.ok(found !== null && !meet(boxOf(found, WIDTH), disc({ x: 200, y: 100 })));
});
