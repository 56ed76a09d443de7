import type { JSX } from "preact";
import { addressText, isInternal } from "../data/address.ts";
import { duration, rate } from "../data/format.ts";
import { number, text } from "../data/management.ts";
import type { Row } from "../data/management.ts";
import { LINK_COLUMNS } from "../data/columns.ts";
import { stallOf } from "../data/stall.ts";
import { Full } from "../ui/full.tsx";
import { useApp } from "../ui/hooks.ts";
import { Badge } from "../ui/parts.tsx";
import { link } from "../ui/route.ts";
import { Rows, perSecond } from "../ui/rows.tsx";
import type { Item } from "../ui/rows.tsx";
import type { Column } from "../ui/table.tsx";

const BLOCKED_AFTER = 10; // seconds

function address(row: Row): string {
    return addressText(text(row["owningAddr"])) || (row["linkType"] === "endpoint" ? "(each message names its own)" : "");
}

const COLUMNS: Column<Item>[] = [
    { key: "id", title: "Id", rank: 3, value: ({ row }) => Number(text(row["identity"])), show: ({ row }) => text(row["identity"]) },
    { key: "address", title: "Address", value: ({ row }) => address(row) },
    { key: "kind", title: "Kind", rank: 2, hint: "producer: messages come in; consumer: they go out", value: ({ row }) => kind(row) },
    { key: "connection", title: "Connection", rank: 2, value: ({ row }) => text(row["connectionId"]) },
    { key: "rate", title: "Rate", letters: 8, value: (item) => perSecond(item, "deliveryCount"), show: (item) => rate(perSecond(item, "deliveryCount")) },
    { key: "deliveries", title: "Deliveries", rank: 2, value: ({ row }) => number(row["deliveryCount"]) },
    { key: "unsettled", title: "Unsettled", rank: 3, hint: "sent, and not settled yet", value: ({ row }) => number(row["unsettledCount"]) },
    { key: "undelivered", title: "Waiting", rank: 3, hint: "messages that wait for credit", value: ({ row }) => number(row["undeliveredCount"]) },
    { key: "credit", title: "Credit", rank: 3, hint: "messages that may be sent now", value: ({ row }) => number(row["creditAvailable"]) },
    {
        key: "blocked", title: "No credit for", rank: 2, letters: 13, value: ({ row }) => number(row["zeroCreditSeconds"]),
        show: ({ row }) => {
            const seconds = number(row["zeroCreditSeconds"]);
            return seconds ? seconds > BLOCKED_AFTER && keepsWaiting(row) ? <Badge kind="warn">{duration(seconds)}</Badge> : duration(seconds) : "";
        },
    },
    {
        key: "stall", title: "Stalled by", letters: 24, hint: "why no delivery moves, and for how long",
        value: ({ row }) => stallOf(row)?.reason ?? "",
        show: ({ row }) => {
            const stall = stallOf(row);
            if (stall === undefined) return "";
            const words = `${stall.reason}, ${duration(stall.seconds)}`;
            return <span title={stall.words}>{stall.seconds > BLOCKED_AFTER && keepsWaiting(row) ? <Badge kind="warn">{words}</Badge> : words}</span>;
        },
    },
    { key: "stuck", title: "Stuck", rank: 3, hint: "unsettled for long", value: ({ row }) => number(row["deliveriesStuck"]), show: ({ row }) => (number(row["deliveriesStuck"]) ? <Badge kind="bad">{number(row["deliveriesStuck"])}</Badge> : "") },
    { key: "name", title: "Name", rank: 3, value: ({ row }) => text(row["linkName"]) },
];

/** Whether a link without credit keeps a message waiting. A producer that never sent, and a consumer without messages, are normal. */
function keepsWaiting(row: Row): boolean {
    if (typeof row["stallSeconds"] !== "number") return true; // a router of 1.19 does not say
    const stall = stallOf(row);
    return stall !== undefined && (stall.reason !== "no-consumer" || number(row["deliveryCount"]) > 0);
}

function kind(row: Row): string {
    const type = text(row["linkType"]);
    const side = row["linkDir"] === "in" ? "producer" : "consumer";
    return type === "endpoint" ? side : `${type} ${text(row["linkDir"])}`;
}

const ofPeople = (row: Row): boolean => {
    const key = text(row["owningAddr"]);
    // An edge router and its interior router have links without an address between them.
    if (!key && text(row["linkName"]).startsWith("qdlink.")) return false;
    return row["linkType"] !== "inter-router" && row["linkType"] !== "router-control" && !(key && isInternal(key));
};

export function Links(): JSX.Element {
    const app = useApp();
    return (
        <Rows
            title="Links" about="Producers and consumers: what they have moved, and who waits for credit."
            source={(target) => app.table(target, "router.link", LINK_COLUMNS)} columns={COLUMNS} sort="-rate" empty="Nobody has attached a link."
            common={ofPeople}
            panelTitle={({ row }) => `${kind(row)} ${address(row)}`}
            panel={(item) => <Details item={item} />}
        />
    );
}

function Details({ item }: { item: Item }): JSX.Element {
    const { target, row, table } = item;
    const found = addressText(text(row["owningAddr"]));
    return (
        <>
            <p class="buttons">
                {found && <a class="button" href={link("explain", { address: found, router: target.id })}>Explain {found}</a>}
                <a class="button" href={link("connections", { router: target.id, select: text(row["connectionId"]) })}>Its connection</a>
            </p>
            <Full target={target} type="router.link" row={row} table={table} />
        </>
    );
}
