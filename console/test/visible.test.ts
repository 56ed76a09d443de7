import assert from "node:assert/strict";
import { test } from "node:test";
import { visible } from "../src/ui/visible.ts";

test("characters that nobody sees, or that change how others are shown, are escapes", () => {
    assert.equal(visible("orders.\u202egnp.exe"), "orders.\\u202egnp.exe");
    assert.equal(visible("a\u2066b\u2069\u200f\u200b\ufeff\u00ad"), "a\\u2066b\\u2069\\u200f\\u200b\\ufeff\\xad");
    assert.equal(visible("\x1b[31m\x07\x9b\x00"), "\\x1b[31m\\x07\\x9b\\x00");
    assert.equal(visible("one\rtwo\u2028three\u2029"), "one\\rtwo\\u2028three\\u2029");
    assert.equal(visible("\ud800x\u{e0041}"), "\\ud800x\\U000e0041");
});

test("texts in any script, and the lines of a text, stay", () => {
    for (const text of ["orders/eu", "地址 🙂 العربية naïve", "one\n\ttwo", "3.2 ms · \u00a0", ""]) assert.equal(visible(text), text);
});
