// The console at a network of 300 routers with 3,000 groups of clients, and 10,000 links at one of them.
import { App } from "../src/app.ts";
import type { Answer } from "../src/amqp/answer.ts";
import type { Value } from "../src/data/management.ts";
import { show } from "../src/ui/root.tsx";
import { shortType, tableAnswer } from "./answers.ts";

const ROUTERS = 300;
const GROUPS = 10; // of clients at each router
const LINKS = 10_000; // of each router
const began = performance.now();

const id = (index: number): string => `router-${String(index).padStart(3, "0")}`;
const neighbours = (index: number): number[] => [(index + 1) % ROUTERS, (index + ROUTERS - 1) % ROUTERS, (index * 7 + 3) % ROUTERS].filter((each) => each !== index);
const moved = (speed: number): number => Math.floor((performance.now() - began) / 1000 * speed);

type Item = Record<string, Value>;

function rows(router: number, type: string): Item[] {
    switch (type) {
        case "router":
            return [{ id: id(router), mode: "interior", version: "0", connectionCount: 13, linkCount: LINKS, deliveriesIngress: moved(1000) }];
        case "router.node":
            return Array.from({ length: ROUTERS }, (_, index) => ({
                id: id(index), cost: index === router ? null : 1 + index % 5, nextHop: index === router ? "(self)" : id((index + 1) % ROUTERS),
                linkState: neighbours(index).map(id),
            }));
        case "connection":
            return [
                ...neighbours(router).map((other, index) => ({
                    identity: String(index), role: "inter-router", container: id(other), opened: true, deliveriesIn: moved(router), deliveriesOut: moved(other), cost: 1 + other % 3,
                })),
                ...Array.from({ length: GROUPS }, (_, index) => ({
                    identity: String(10 + index), role: "normal", container: `${"abcdefghij".charAt(index)}-service-${index}`, host: `10.0.0.${index}:5`, opened: true, deliveriesIn: moved(index), deliveriesOut: moved(5),
                })),
            ];
        case "router.link":
            return Array.from({ length: LINKS }, (_, index) => ({
                identity: String(index), linkName: `link ${index}`, linkType: "endpoint", linkDir: index % 2 ? "in" : "out", owningAddr: `M0address/${index % 700}`,
                connectionId: String(10 + index % GROUPS), deliveryCount: moved(index % 97), creditAvailable: 250, zeroCreditSeconds: 0,
            }));
        default:
            return [];
    }
}

const tables = new Map<string, Item[]>(); // a table is made once for all its pages

function ask(address: string, properties: Record<string, unknown>, body: unknown): Promise<Answer> {
    const router = Number(/router-(\d+)/.exec(address)?.[1] ?? 0);
    const type = shortType(properties);
    const key = `${router}/${type}`;
    if (Number(properties["offset"]) === 0) tables.set(key, rows(router, type));
    return Promise.resolve(tableAnswer(tables.get(key)!, properties, body));
}

const app = new App("ws://127.0.0.1:1/", ask);
Object.assign(app.client, { state: "open", generation: 1, router: id(0) });
app.poller.start();
show(app);
