// The network at a glance: what needs attention, and each router with what passes through it.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { stuckMessages } from "../data/attention.ts";
import type { Action, Finding } from "../data/attention.ts";
import { duration, octets, plural, rate } from "../data/format.ts";
import { number, text } from "../data/management.ts";
import type { Row, Target } from "../data/management.ts";
import type { Table } from "../data/rates.ts";
import { useApp, useFeed, useFeeds, useStale } from "../ui/hooks.ts";
import { CloseConnection } from "../ui/close.tsx";
import { Badge, Head, Trouble } from "../ui/parts.tsx";
import { link } from "../ui/route.ts";
import { DataTable } from "../ui/table.tsx";
import type { Column } from "../ui/table.tsx";

/** worst: weight of the worst finding; null: not known. */
interface Item { target: Target; row: Row; table: Table | undefined; error: string | null; worst: number | null; stale: boolean }

const FIRST = 5;

export function Overview(): JSX.Element {
    const app = useApp();
    const feed = useFeed(app.network());
    const network = feed.value;
    const targets = network?.targets ?? [];
    const summaries = useFeeds(targets.map((target) => app.summary(target)));
    const stale = useStale();
    const details = useFeeds(app.watchedTargets(network).map((target) => app.watched(target))).map((each) => each.value);
    const watched = details.filter((each) => each !== undefined);
    const findings = app.findings(network);
    const items: Item[] = targets.map((target, index) => {
        const { value, error } = summaries[index]!;
        const weights = findings.filter((each) => each.router === target.id).map((each) => each.weight);
        // Routers beyond those that are looked at in detail have no findings.
        const known = weights.length > 0 || index >= details.length || details[index] !== undefined;
        return { target, row: value?.rows[0] ?? { id: target.id }, table: value, error, worst: known ? Math.max(0, ...weights) : null, stale };
    });
    const sum = (column: string): number | null => {
        const known = items.map(({ row, table }) => table?.rate(row, column) ?? null).filter((each) => each !== null);
        return known.length ? known.reduce((one, other) => one + other, 0) : null;
    };
    // What crosses a connection between an edge router and another router comes in, and goes out, at both.
    const once = (column: string): number | null => {
        const all = sum(column);
        return all === null ? null : Math.max(0, all - (sum("deliveriesIngressEdge") ?? 0));
    };
    // A total is whole only when each router that answers has told it, and rates need two answers.
    const answering = items.filter(({ error }) => error === null);
    const counted = answering.filter(({ table }) => table !== undefined).length;
    const rated = answering.filter(({ row, table }) => (table?.rate(row, "deliveriesIngress") ?? null) !== null).length;
    const of = (number: number): string => (network === undefined || number === targets.length ? "" : `${number} of ${targets.length} routers`);
    const total = (column: string): number => items.reduce((all, { row }) => all + number(row[column]), 0);
    const stuck = total("deliveriesStuck") > 0 ? stuckMessages(watched) : 0;
    return (
        <>
            <Head title="Overview" about={network === undefined ? "" : describe(targets)} />
            <Trouble error={feed.error} />
            <section class="tiles" aria-label="Totals">
                <Tile title="Messages in" value={rate(once("deliveriesIngress"))} part={of(rated)} href="#/charts" />
                <Tile title="Messages out" value={rate(once("deliveriesEgress"))} part={of(rated)} href="#/charts" />
                <Tile title="Connections" value={total("connectionCount").toLocaleString("en-GB")} part={of(counted)} href={link("connections", { router: "*" })} />
                <Tile title="Links" value={total("linkCount").toLocaleString("en-GB")} part={of(counted)} href={link("links", { router: "*" })} />
                <Tile title="Blocked links" value={total("linksBlocked").toLocaleString("en-GB")} href={link("links", { router: "*", sort: "-blocked" })} bad={findings.some((each) => each.blocks === true && each.weight >= 3)} />
                <Tile title="Stuck messages" value={stuck.toLocaleString("en-GB")} href={link("links", { router: "*", sort: "-stuck" })} bad={stuck > 0} />
            </section>
            <Attention findings={findings} ready={network !== undefined && details.every((each) => each !== undefined)} stale={stale} />
            <section class="fill" aria-label="Routers">
                <h2>Routers</h2>
                <DataTable
                    name="Routers" columns={COLUMNS} items={items} id={(item) => item.target.id} sort="id" loading={network === undefined}
                    empty="There is no router." onSelect={(item) => { location.hash = link("workers", { router: item.target.id }); }}
                />
            </section>
        </>
    );
}

function describe(targets: Target[]): string {
    const edges = targets.filter((each) => each.kind === "edge").length;
    const routers = plural(targets.length - edges, "router");
    return edges ? `${routers}, ${plural(edges, "edge router")}` : routers;
}

/** part: the routers whose numbers the value has, if it has not those of all. */
function Tile({ title, value, href, part = "", bad = false }: { title: string; value: string; href: string; part?: string; bad?: boolean }): JSX.Element {
    return <a class={`tile${bad ? " bad" : ""}`} href={href}><span>{title}</span><b>{value}</b>{part && <i>{part}</i>}</a>;
}

function Attention({ findings, ready, stale }: { findings: Finding[]; ready: boolean; stale: boolean }): JSX.Element {
    const [all, setAll] = useState(false);
    const shown = all ? findings : findings.slice(0, FIRST);
    return (
        <section class="attention" aria-label="Needs attention" aria-live="polite">
            <h2>Needs attention</h2>
            {findings.length === 0 && <p class="calm">{stale ? "Nothing that was known when the connection was lost." : ready ? "Nothing. All routers answer, and nobody waits for credit." : "Looking …"}</p>}
            <ul>
                {shown.map((each) => (
                    <li key={each.title + each.router}>
                        <Badge kind={each.weight >= 3 ? "bad" : each.weight >= 2 ? "warn" : "plain"}>
                            {each.weight >= 3 ? "broken" : each.weight >= 2 ? "warning" : "note"}
                        </Badge>
                        <a href={each.href}>{each.title}</a>
                        <span class="why">{each.text}</span>
                        <span class="do">{each.actions.map((action) => <Do key={action.title} action={action} disabled={stale} />)}</span>
                    </li>
                ))}
            </ul>
            {findings.length > FIRST && (
                <button type="button" onClick={() => setAll(!all)}>{all ? "Show the first five" : `Show all ${findings.length}`}</button>
            )}
        </section>
    );
}

/** What may solve a finding. */
function Do({ action, disabled }: { action: Action; disabled: boolean }): JSX.Element {
    const app = useApp();
    const [asking, setAsking] = useState(false);
    if ("href" in action) return <a class="button small" href={action.href}>{action.title}</a>;
    const { router, connection } = action.close;
    return (
        <>
            <button type="button" class="small danger" disabled={disabled} onClick={() => setAsking(true)}>{action.title}</button>
            {asking && <CloseConnection target={app.targetOf(router)} row={connection} onClose={() => setAsking(false)} />}
        </>
    );
}

function Health({ item }: { item: Item }): JSX.Element {
    if (item.stale) return <Badge kind="plain">{item.worst === null ? "unknown" : item.worst >= 2 ? "trouble before" : "good before"}</Badge>;
    if (item.error !== null) return <Badge kind="bad">silent</Badge>;
    if (item.table === undefined || item.worst === null) return <Badge kind="plain">asked</Badge>;
    return item.worst >= 3 ? <Badge kind="bad">trouble</Badge> : item.worst >= 2 ? <Badge kind="warn">attention</Badge> : <Badge kind="good">good</Badge>;
}

const perSecond = (item: Item, column: string): number | null => item.table?.rate(item.row, column) ?? null;

const countOf = (item: Item, column: string): number | null => (item.table === undefined ? null : number(item.row[column]));

const COLUMNS: Column<Item>[] = [
    { key: "id", title: "Router", value: (item) => text(item.row["id"]) },
    { key: "health", title: "Health", letters: 13, word: true, value: (item) => (item.error ? 9 : item.worst ?? 0), show: (item) => <Health item={item} /> },
    { key: "mode", title: "Mode", rank: 2, value: (item) => text(item.row["mode"]) },
    { key: "version", title: "Version", rank: 3, value: (item) => text(item.row["version"]) },
    { key: "in", title: "In", letters: 8, value: (item) => perSecond(item, "deliveriesIngress"), show: (item) => rate(perSecond(item, "deliveriesIngress")) },
    { key: "out", title: "Out", letters: 8, value: (item) => perSecond(item, "deliveriesEgress"), show: (item) => rate(perSecond(item, "deliveriesEgress")) },
    { key: "transit", title: "Through", letters: 8, rank: 3, hint: "from one router to another", value: (item) => perSecond(item, "deliveriesTransit"), show: (item) => rate(perSecond(item, "deliveriesTransit")) },
    { key: "connections", title: "Connections", rank: 2, value: (item) => countOf(item, "connectionCount") },
    { key: "links", title: "Links", rank: 2, value: (item) => countOf(item, "linkCount") },
    { key: "memory", title: "Memory", letters: 9, rank: 3, value: (item) => number(item.row["memoryUsage"]), show: (item) => (item.row["memoryUsage"] ? octets(number(item.row["memoryUsage"])) : "") },
    { key: "up", title: "Up", letters: 11, rank: 3, value: (item) => number(item.row["uptimeSeconds"]), show: (item) => (item.table ? duration(number(item.row["uptimeSeconds"])) : "") },
];
