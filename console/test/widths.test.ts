import assert from "node:assert/strict";
import { test } from "node:test";
import { chooseColumns, usualLength, widthsOf as widthsOfLetters } from "../src/data/widths.ts";

const LETTER = 7.3;
const widthsOf = (columns: Parameters<typeof widthsOfLetters>[0], space: number): number[] => widthsOfLetters(columns, space, LETTER);
const text = (title: string, letters: number) => ({ title: title.length, text: letters, numeric: false });
const digits = (title: string, letters: number) => ({ title: title.length, text: letters, numeric: true });
const sum = (widths: number[]): number => widths.reduce((one, other) => one + other, 0);

test("the column of long names gets what numbers do not need", () => {
    const numbers = ["Rate", "Deliveries", "Unsettled", "Waiting", "Credit", "Stuck"].map((title) => digits(title, 7));
    const [address, kind, ...rest] = widthsOf([text("Address", 95), text("Kind", 8), ...numbers], 1000);
    assert.ok(address! > 330, `${address} px`);
    assert.ok(kind! < 110 && rest.every((width) => width < 110), rest.join());
});

test("heads are never cut, and the widths fill the space", () => {
    const columns = [text("Vhost", 20), digits("Receivers refused", 1), digits("Senders refused", 1)];
    const widths = widthsOf(columns, 900);
    assert.ok(widths[1]! > 17 * 7 && Math.abs(sum(widths) - 900) < 4, widths.join());
    assert.ok(sum(widthsOf(columns, 200)) > 200, "they scroll where there is no room");
});

test("two long names share the space by their lengths, and a chosen width stays", () => {
    const [one, other] = widthsOf([text("Container", 120), text("Host", 30)], 500);
    assert.ok(one! > other! && other! >= 150);
    assert.deepEqual(widthsOf([{ ...text("Container", 120), fixed: 210 }, text("Host", 30)], 500)[0], 210);
});

test("columns of high rank are left out before a long name becomes unreadable, unless the reader chose them", () => {
    const columns = [
        { ...text("Address", 95), rank: 1 }, { ...digits("Rate", 7), rank: 1 }, { ...digits("Deliveries", 7), rank: 2 },
        { ...digits("Unsettled", 7), rank: 3 }, { ...text("Name", 40), rank: 3 },
    ];
    assert.deepEqual(chooseColumns(columns, 1000, LETTER), [0, 1, 2, 3, 4]);
    assert.deepEqual(chooseColumns(columns, 550, LETTER), [0, 1, 2, 3]);
    assert.deepEqual(chooseColumns(columns, 350, LETTER), [0, 1]);
    assert.deepEqual(chooseColumns(columns.map((each, index) => ({ ...each, chosen: index === 4 ? true : index === 1 ? false : undefined })), 350, LETTER), [0, 4]);
});

test("a few long texts among many do not widen their column", () => {
    assert.equal(usualLength([...Array<number>(40).fill(8), 90]), 8);
    assert.equal(usualLength([3, 90, 5]), 90);
    assert.equal(usualLength([]), 0);
});
