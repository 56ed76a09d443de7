// Pages that are a table of one type, of one router or all: the rows, and a panel with the chosen one.
import type { ComponentChildren, JSX } from "preact";
import { useMemo } from "preact/hooks";
import { text } from "../data/management.ts";
import type { Row, Target } from "../data/management.ts";
import type { Table } from "../data/rates.ts";
import type { Source } from "../app.ts";
import { useFeeds, useRoute, useScope } from "./hooks.ts";
import { Head, Panel, ScopeChoice, Trouble } from "./parts.tsx";
import { amend } from "./route.ts";
import { DataTable } from "./table.tsx";
import type { Column } from "./table.tsx";

export interface Item { target: Target; row: Row; table: Table }

interface Props {
    title: string;
    about: string;
    source: (target: Target) => Source<Table>;
    columns: Column<Item>[];
    keyOf?: string;
    sort: string;
    empty: string;
    /** Rows to show. */
    wanted?: (row: Row) => boolean;
    /** Of these, those that most people look for; the routers' own are shown when somebody asks for them. */
    common?: (row: Row) => boolean;
    actions?: ComponentChildren;
    panelTitle: (item: Item) => string;
    panel: (item: Item) => ComponentChildren;
}

export const perSecond = (item: Item, column: string): number | null => item.table.rate(item.row, column);

export function Rows({ keyOf = "identity", common, ...props }: Props): JSX.Element {
    const { targets, chosen } = useScope();
    const feeds = useFeeds(targets.map(props.source));
    const { query } = useRoute();
    const selected = query.get("select") ?? "";
    const all = query.get("all") === "yes";
    const wanted = common === undefined || all ? props.wanted : common;
    const id = (item: Item): string => `${item.target.id}/${text(item.row[keyOf])}`;
    const tables = feeds.map((feed) => feed.value);
    const items = useMemo(() => targets.flatMap((target, index) => {
        const table = tables[index];
        if (table === undefined) return [];
        return table.rows.filter((row) => wanted === undefined || wanted(row)).map((row) => ({ target, row, table }));
    }), [...tables, wanted, targets.map((each) => each.id).join("\n")]);
    const many = chosen === "*";
    const columns = many
        ? [{ key: "router", title: "Router", value: (item: Item) => item.target.id }, ...props.columns] : props.columns;
    const found = selected === "" ? undefined : items.find((item) => id(item) === selected || text(item.row[keyOf]) === selected);
    const errors = [...new Set(feeds.map((feed, index) => feed.error && `${targets[index]!.id}: ${feed.error}`).filter(Boolean))];
    return (
        <div class="beside">
            <div class="main">
                <Head title={props.title} about={props.about}>{props.actions}<ScopeChoice /></Head>
                <Trouble error={errors.join("; ")} />
                <DataTable
                    name={props.title} columns={columns} items={items} id={id} sort={props.sort} loading={tables.some((each) => each === undefined) && !errors.length}
                    empty={props.empty} selected={found === undefined ? "" : id(found)} tools={common !== undefined && <Own all={all} />}
                    onSelect={(item) => amend({ select: selected === id(item) ? "" : id(item) })}
                />
            </div>
            {found !== undefined && (
                <Panel key={id(found)} title={props.panelTitle(found)} onClose={() => amend({ select: "" })}>{props.panel(found)}</Panel>
            )}
        </div>
    );
}

function Own({ all }: { all: boolean }): JSX.Element {
    return (
        <label class="check">
            <input type="checkbox" checked={all} onChange={(event) => amend({ all: event.currentTarget.checked ? "yes" : "" })} />
            the routers' own, too
        </label>
    );
}
