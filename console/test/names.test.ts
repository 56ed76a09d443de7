import assert from "node:assert/strict";
import { test } from "node:test";
import { cutMiddle, groupName, labelsOf } from "../src/data/names.ts";

const group = (container: string, user = "anonymous"): string => groupName({ container, user, host: "10.0.0.1:5000" });

test("clients that differ only in their numbers are a group", () => {
    assert.equal(group("shop-1"), group("shop-22"));
    assert.equal(group("web-3f2504e0-4f89-11d3-9a0c-0305e82c3301"), "web-*");
    assert.equal(group("3f2504e0-4f89-11d3-9a0c-0305e82c3301"), "clients from 10.0.0.1");
    assert.equal(group("", "alice"), "alice from 10.0.0.1");
    assert.equal(group("console-1x8zk2"), "console-*");
});

test("pods of a Deployment, a StatefulSet, a DaemonSet and a Job are a group each", () => {
    assert.equal(group("orders-7d9f8b6c5d-x7k2p"), "orders-*");
    assert.equal(group("orders-6c5bdfkqzt-bcdfg"), "orders-*");
    assert.equal(group("shop-orders-v2-7d9f8b6c5d-x7k2p"), "shop-orders-v*");
    assert.equal(group("ledger-0"), "ledger-*");
    assert.equal(group("collector-x7k2p"), "collector-*");
    assert.equal(group("nightly-28491840-4zq9w"), "nightly-*");
    assert.notEqual(group("orders-7d9f8b6c5d-x7k2p"), group("invoices-7d9f8b6c5d-x7k2p"));
    assert.equal(group("orders-mssql"), "orders-mssql", "a word without vowels is no suffix");
    assert.equal(group("cafe-feedback"), "cafe-feedback", "a word of hexadecimal letters is no number");
});

test("clients of the router's own library are a group for each machine", () => {
    assert.equal(group("vm-4711-f3a9cee1"), "vm-*");
    assert.equal(group("vm-12-00af33e8"), "vm-*");
    assert.equal(group("web-7d9f8b6c5d-x7k2p-1-9f3a2bc4"), "web-*");
});

test("random container ids of other libraries are grouped by host", () => {
    assert.equal(group("W9hFqkT2vYxPz0aLmN3cRb7uJ5eQ1sKd8gOiHtVf"), "clients from 10.0.0.1");
    assert.equal(group("ID:9b2f4c1e-77aa-4f30-8a5b-5f0a3c1d9e11:1"), "clients from 10.0.0.1");
});

test("a long name is cut in its middle", () => {
    assert.equal(cutMiddle("short", 10), "short");
    assert.equal(cutMiddle("sensors/plant-07/line-3/temperature", 15), "sensors/…rature");
    assert.equal([...cutMiddle("地址".repeat(30), 12)].length, 12);
});

test("labels keep what differs between long names", () => {
    const stores = Array.from({ length: 12 }, (_, index) => `store-${String(index).padStart(3, "0")}.edge.example-retail.com`);
    const labels = labelsOf([...stores, "frankfurt-1", "artemis-eu"], 20);
    assert.equal(labels.get(stores[7]!), "store-007");
    assert.equal(labels.get("frankfurt-1"), "frankfurt-1");
});

test("labels of names that differ in their middle, or in their domain, differ", () => {
    for (const names of [
        Array.from({ length: 9 }, (_, index) => `production-cluster-europe-west-${index}-router-of-the-messaging-team`),
        Array.from({ length: 9 }, (_, index) => `router.site-${index}.corp.example.com`),
        ["a".repeat(60), `${"a".repeat(60)}b`],
    ]) {
        const labels = [...labelsOf(names, 20).values()];
        assert.equal(new Set(labels).size, names.length, labels.join());
        assert.ok(labels.every((label) => [...label].length <= 20), labels.join());
    }
});
