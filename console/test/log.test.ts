import assert from "node:assert/strict";
import { test } from "node:test";
import { isAsBad, readLog, timeOf, toFile, withoutConsoles } from "../src/data/log.ts";

const at = new Date(2026, 10, 25, 23, 13, 45, 123).getTime();
const lines = readLog([
    ["SERVER", "info", "[C7] Connection Opened: dir=in host=h container_id=console-1x8zk2 ", "f", 1, at / 1000],
    ["SERVER", "info", "[C7][L9] Link attached", "f", 2, at / 1000],
    ["SERVER", "info", "[C70] Connection Opened: dir=in host=h container_id=shop-1", "f", 1, at / 1000],
    ["ROUTER", "error", "Something broke", "f", 3, at / 1000 + 1],
]);

test("a line of the log has its time with milliseconds", () => {
    assert.equal(timeOf(lines[0]!.at), "23:13:45.123");
});

test("a level takes its lines and worse ones", () => {
    assert.deepEqual(lines.filter((each) => isAsBad(each, "warning")).map((each) => each.text), ["Something broke"]);
    assert.equal(lines.filter((each) => isAsBad(each, "")).length, 4);
});

test("lines about connections of consoles can be left out", () => {
    assert.deepEqual(withoutConsoles(lines).map((each) => each.number), [2, 3]);
});

test("the file has all lines, the oldest first", () => {
    assert.equal(toFile([lines[3]!, lines[2]!]).split("\n")[1], "2026-11-25 23:13:46.123 ROUTER (error) Something broke");
});
