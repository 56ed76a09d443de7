// A network of 21 routers as data: 8 interior routers, 13 edge routers with long names, two uplinks each, and clients.
import type { RouterData } from "../src/data/graph.ts";
import type { Row } from "../src/data/management.ts";

export const table = (rows: Row[]): RouterData["connections"] => ({
    rows, at: 0, added: () => null, rate: (row, column) => (typeof row[column] === "number" ? row[column] : null),
});

export const CITIES = ["frankfurt-1", "frankfurt-2", "dublin-1", "virginia-1", "oregon-1", "sydney-1", "singapore-1", "sao-paulo-1"];
export const STORES = Array.from({ length: 13 }, (_, index) => `store-${String(index).padStart(3, "0")}.edge.example-retail.com`);
const LINES: [number, number, number][] = [[0, 1, 1], [0, 2, 1], [1, 2, 3], [2, 3, 5], [3, 4, 1], [4, 5, 8], [5, 6, 2], [0, 6, 9], [3, 7, 2], [0, 3, 10]];

/** The edge routers use three of the interior routers; the other uplink is standby. */
const UPLINKS = (store: number): [number, number] => (store < 9 ? [0, 1] : store < 12 ? [5, 6] : [3, 4]);

export const linkState: Row[] = CITIES.map((id, index) => ({
    id, linkState: LINES.flatMap(([one, other]) => (one === index ? [CITIES[other]!] : other === index ? [CITIES[one]!] : [])),
}));

/** The rows of the connections of a router. */
export function connections(id: string): Row[] {
    const rows: Row[] = [];
    const add = (row: Row): void => { rows.push({ identity: String(rows.length + 1), opened: true, host: `10.0.0.${rows.length + 1}:50000`, deliveriesIn: 3, deliveriesOut: 4, ...row }); };
    const city = CITIES.indexOf(id);
    const store = STORES.indexOf(id);
    for (const [one, other, cost] of LINES) {
        if (one === city || other === city) add({ role: "inter-router", dir: one === city ? "out" : "in", container: CITIES[one === city ? other : one]!, cost });
    }
    if (city >= 0) STORES.forEach((name, index) => { if (UPLINKS(index).includes(city)) add({ role: "edge", dir: "in", container: name }); });
    if (store >= 0) {
        add({ role: "edge", dir: "out", container: CITIES[UPLINKS(store)[0]]!, active: true });
        add({ role: "edge", dir: "out", container: CITIES[UPLINKS(store)[1]]!, active: false, deliveriesIn: 0, deliveriesOut: 0 });
        add({ role: "normal", container: `till-${store}-1` });
        if (store % 2) add({ role: "normal", container: `scanner-${store}` });
    }
    if (city === 0) add({ role: "route-container", container: "artemis-eu" });
    if (city === 0 || city === 5) {
        for (let pod = 0; pod < 6; pod += 1) add({ role: "normal", container: `orders-7d9f8b6c5d-x7k2${"bcdfgh".charAt(pod)}` });
        for (let client = 0; client < 20; client += 1) add({ role: "normal", container: `vm-${1200 + client}-${(0xf3a9cee1 + client).toString(16)}` });
    }
    if (city >= 0 && city !== 6) add({ role: "normal", container: `dashboard-${city}` });
    return rows;
}

export const routers = (): RouterData[] => [
    ...CITIES.map((id): RouterData => ({ id, kind: "router", connections: table(connections(id)), silent: false })),
    ...STORES.map((id): RouterData => ({ id, kind: "edge", connections: table(connections(id)), silent: false })),
];
