import type { JSX } from "preact";
import { addressClass, addressPhase, addressText, isInternal } from "../data/address.ts";
import { ADDRESS_COLUMNS } from "../data/columns.ts";
import { rate } from "../data/format.ts";
import { number, text } from "../data/management.ts";
import type { Row } from "../data/management.ts";
import { Full } from "../ui/full.tsx";
import { useApp } from "../ui/hooks.ts";
import { link } from "../ui/route.ts";
import { Rows, perSecond } from "../ui/rows.tsx";
import type { Item } from "../ui/rows.tsx";
import type { Column } from "../ui/table.tsx";

const key = (row: Row): string => text(row["name"]);

const COLUMNS: Column<Item>[] = [
    { key: "address", title: "Address", value: ({ row }) => addressText(key(row)) },
    { key: "class", title: "Class", rank: 3, value: ({ row }) => addressClass(key(row)) },
    { key: "phase", title: "Phase", rank: 3, hint: "before or after a waypoint", value: ({ row }) => addressPhase(key(row)) },
    { key: "distribution", title: "Distribution", rank: 2, value: ({ row }) => text(row["distribution"]) },
    { key: "consumers", title: "Consumers", value: ({ row }) => number(row["subscriberCount"]) + number(row["inProcess"]) + number(row["containerCount"]) },
    { key: "remote", title: "Routers", rank: 2, hint: "other routers that have consumers", value: ({ row }) => number(row["remoteCount"]) },
    { key: "in", title: "In", letters: 8, value: (item) => perSecond(item, "deliveriesIngress"), show: (item) => rate(perSecond(item, "deliveriesIngress")) },
    { key: "out", title: "Out", letters: 8, value: (item) => perSecond(item, "deliveriesEgress"), show: (item) => rate(perSecond(item, "deliveriesEgress")) },
    { key: "through", title: "Through", letters: 8, rank: 3, value: (item) => perSecond(item, "deliveriesTransit"), show: (item) => rate(perSecond(item, "deliveriesTransit")) },
    { key: "received", title: "In, in all", rank: 3, value: ({ row }) => number(row["deliveriesIngress"]) },
    { key: "sent", title: "Out, in all", rank: 3, value: ({ row }) => number(row["deliveriesEgress"]) },
];

const ofPeople = (row: Row): boolean => !isInternal(key(row));

export function Addresses(): JSX.Element {
    const app = useApp();
    return (
        <Rows
            title="Addresses" about="Where messages go, and how many."
            source={(target) => app.table(target, "router.address", ADDRESS_COLUMNS, false, "name")} keyOf="name"
            columns={COLUMNS} sort="-in" empty="No address is in use: nobody sends or receives."
            common={ofPeople}
            panelTitle={({ row }) => addressText(key(row))}
            panel={(item) => <Details item={item} />}
        />
    );
}

function Details({ item }: { item: Item }): JSX.Element {
    const { target, row, table } = item;
    const found = addressText(key(row));
    return (
        <>
            <p class="buttons">
                <a class="button primary" href={link("explain", { address: found, router: target.id })}>Explain</a>
                <a class="button" href={link("topology", { path: found })}>Path</a>
                <a class="button" href={link("links", { router: target.id, q: `address:${found}` })}>Links</a>
            </p>
            <Full target={target} type="router.address" row={row} table={table} />
        </>
    );
}
