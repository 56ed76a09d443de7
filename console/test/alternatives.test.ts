import assert from "node:assert/strict";
import { test } from "node:test";
import { consoleOf, hostOf } from "../src/data/alternatives.ts";

const web = { http: true, websockets: true, httpRootDir: null, host: "0.0.0.0", port: "8672", requireSsl: true };

test("a console is at the host where other routers reach the router", () => {
    assert.deepEqual(consoleOf("B", [{ http: false, port: "5672" }, web], ["10.0.0.5"], "10.0.0.4"), { router: "B", url: "https://10.0.0.5:8672/" });
    assert.deepEqual(consoleOf("B", [{ ...web, host: "fd00::5", requireSsl: false }], [], "10.0.0.4"), { router: "B", url: "http://[fd00::5]:8672/" });
});

test("listeners without a console, or that no browser reaches, are not offered", () => {
    for (const row of [{ ...web, http: false }, { ...web, websockets: false }, { ...web, httpRootDir: "/srv" }, { ...web, port: "http" }, { ...web, host: "localhost" }]) {
        assert.equal(consoleOf("B", [row], ["10.0.0.5"], "10.0.0.4"), null);
    }
    assert.equal(consoleOf("B", [web], ["127.0.0.1"], "10.0.0.4"), null);
    assert.equal(consoleOf("B", [web], ["127.0.0.1"], "localhost")?.url, "https://127.0.0.1:8672/");
});

test("the host of an address is without its port", () => {
    assert.deepEqual(["10.0.0.1:5000", "[fd00::1]:5000", "broker.example:5672", "fd00::1"].map(hostOf), ["10.0.0.1", "[fd00::1]", "broker.example", "[fd00::1]"]);
});
