// The workers of a router: how busy each is, and what passes between them.
import type { JSX } from "preact";
import { milliseconds, octets, rate } from "../data/format.ts";
import { quantile } from "../data/latency.ts";
import { number, text } from "../data/management.ts";
import type { Row, Value } from "../data/management.ts";
import { useApp } from "../ui/hooks.ts";
import { Attributes, Badge, Bar } from "../ui/parts.tsx";
import { Rows, perSecond } from "../ui/rows.tsx";
import type { Item } from "../ui/rows.tsx";
import type { Column } from "../ui/table.tsx";

const rings = (row: Row): Row[] => (Array.isArray(row["rings"]) ? row["rings"] as Row[] : []);
const fill = (row: Row): number => Math.max(0, ...rings(row).map((ring) => number(ring["usedOctets"]) / Math.max(1, number(ring["sizeOctets"]))));

const recent = ({ table, row }: Item, share: number): number | null => quantile(table.added(row, "latencyHistogram") ?? [], share);
const seconds = (value: Value): string => (typeof value === "number" ? milliseconds(value) : "–");
const SHARES = [[0.5, "50 of 100 within", "latencyP50Seconds"], [0.9, "90 of 100 within", "latencyP90Seconds"], [0.99, "99 of 100 within", "latencyP99Seconds"]] as const;

const percent = (share: number): string => `${(share * 100).toFixed(0)} %`;

const COLUMNS: Column<Item>[] = [
    { key: "worker", title: "Worker", value: ({ row }) => number(row["worker"]) },
    { key: "state", title: "State", letters: 8, value: ({ row }) => text(row["state"]), show: ({ row }) => <Badge kind={row["state"] === "ready" ? "good" : "plain"}>{text(row["state"])}</Badge> },
    {
        key: "load", title: "Load", letters: 16, word: true, hint: "processor time", value: (item) => perSecond(item, "cpuSeconds"),
        show: (item) => { const load = perSecond(item, "cpuSeconds"); return load === null ? "–" : <Bar share={load} label={percent(load)} />; },
    },
    { key: "memory", title: "Memory", letters: 9, rank: 2, value: ({ row }) => number(row["residentOctets"]), show: ({ row }) => octets(number(row["residentOctets"])) },
    { key: "connections", title: "Connections", rank: 2, value: ({ row }) => number(row["connections"]) },
    { key: "links", title: "Links", rank: 3, value: ({ row }) => number(row["links"]) },
    { key: "in", title: "In", letters: 8, value: (item) => perSecond(item, "deliveriesIngress"), show: (item) => rate(perSecond(item, "deliveriesIngress")) },
    { key: "out", title: "Out", letters: 8, value: (item) => perSecond(item, "deliveriesEgress"), show: (item) => rate(perSecond(item, "deliveriesEgress")) },
    { key: "p99", title: "Latency p99", letters: 7, rank: 2, hint: "of the deliveries of the last seconds, 99 of 100 were settled within", value: (item) => recent(item, 0.99), show: (item) => seconds(recent(item, 0.99)) },
    { key: "rings", title: "Fullest ring", letters: 16, rank: 3, word: true, hint: "of those to other workers", value: ({ row }) => fill(row), show: ({ row }) => <Bar share={fill(row)} label={percent(fill(row))} /> },
    { key: "buffered", title: "Buffered", letters: 9, rank: 3, value: ({ row }) => number(row["bufferedOctets"]), show: ({ row }) => octets(number(row["bufferedOctets"])) },
];

export function Workers(): JSX.Element {
    const app = useApp();
    return (
        <Rows
            title="Workers" about="The processes that move messages, one a core; what crosses between them goes through rings."
            source={(target) => app.workers(target)} columns={COLUMNS} sort="worker" empty="There are no workers."
            panelTitle={({ target, row }) => `${target.id}, worker ${text(row["worker"])}`}
            panel={(item) => {
                const { row } = item;
                const hidden = ["rings", "latencyHistogram", "identity", ...SHARES.map(([, , name]) => name)];
                const all = row["rings"];
                const rest = Object.fromEntries(Object.entries(row).filter(([name]) => !hidden.includes(name)));
                return (
                    <>
                        <table class="plain">
                            <thead><tr><th>Latency</th><th class="number">the last seconds</th><th class="number">since its start</th></tr></thead>
                            <tbody>
                                {SHARES.map(([share, title, name]) => (
                                    <tr key={name}><td>{title}</td><td class="number">{seconds(recent(item, share))}</td><td class="number">{seconds(row[name])}</td></tr>
                                ))}
                            </tbody>
                        </table>
                        {Array.isArray(all) && all.length > 0 && (
                            <table class="plain">
                                <caption>Waiting for other workers</caption>
                                <tbody>
                                    {rings(row).map((ring) => (
                                        <tr key={text(ring["to"])}>
                                            <td>to {text(ring["to"])}</td>
                                            <td><Bar share={number(ring["usedOctets"]) / Math.max(1, number(ring["sizeOctets"]))} label={octets(number(ring["usedOctets"]))} /></td>
                                        </tr>
                                    ))}
                                </tbody>
                            </table>
                        )}
                        <Attributes row={rest} />
                    </>
                );
            }}
        />
    );
}
