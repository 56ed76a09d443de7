// Pages that are a plain table of one type: link routes, auto links, vhosts.
import type { JSX } from "preact";
import { number, text } from "../data/management.ts";
import { Full } from "../ui/full.tsx";
import { useApp } from "../ui/hooks.ts";
import { Badge } from "../ui/parts.tsx";
import { link } from "../ui/route.ts";
import { Rows } from "../ui/rows.tsx";
import type { Item } from "../ui/rows.tsx";
import type { Column } from "../ui/table.tsx";

const column = (key: string, title: string, rank: 1 | 2 | 3 = 1): Column<Item> => ({
    key, title, rank, value: ({ row }) => (typeof row[key] === "number" ? row[key] : text(row[key])),
});

const status: Column<Item> = {
    key: "operStatus", title: "Status", value: ({ row }) => text(row["operStatus"]),
    letters: 9,
    show: ({ row }) => {
        const found = text(row["operStatus"]);
        return <Badge kind={found === "active" ? "good" : found === "failed" ? "bad" : "warn"}>{found || "unknown"}</Badge>;
    },
};

interface Kind { type: string; title: string; about: string; empty: string; columns: Column<Item>[]; entity: string }

function Table({ kind }: { kind: Kind }): JSX.Element {
    const app = useApp();
    return (
        <Rows
            title={kind.title} about={kind.about} empty={kind.empty} columns={kind.columns} sort={kind.columns[0]!.key}
            source={(target) => app.table(target, kind.type, [], true)}
            actions={<a class="button" href={link("entities", {}, kind.entity)}>Create, delete</a>}
            panelTitle={({ row }) => text(row["name"]) || text(row["identity"])}
            panel={({ target, row, table }) => <Full target={target} type={kind.type} row={row} table={table} />}
        />
    );
}

const LINK_ROUTES: Kind = {
    type: "router.config.linkRoute", entity: "linkRoute", title: "Link routes",
    about: "Addresses whose links go through to a broker, end to end.", empty: "No link routes are configured.",
    columns: [
        { key: "of", title: "Prefix or pattern", value: ({ row }) => text(row["prefix"] ?? row["pattern"]) },
        column("direction", "Direction"), status, column("containerId", "Container", 2), column("connection", "Connection", 3),
        column("distribution", "Distribution", 3), column("name", "Name", 3),
    ],
};

const AUTO_LINKS: Kind = {
    type: "router.config.autoLink", entity: "autoLink", title: "Auto links",
    about: "Links that the router attaches by itself when a broker is connected.", empty: "No auto links are configured.",
    columns: [
        column("address", "Address"), column("direction", "Direction"), status, column("phase", "Phase", 3),
        column("containerId", "Container", 2), column("connection", "Connection", 3), column("lastError", "Last error", 2),
    ],
};

function denied(name: string, title: string): Column<Item> {
    return {
        key: name, title, rank: 3, value: ({ row }) => number(row[name]),
        show: ({ row }) => (number(row[name]) ? <Badge kind="warn">{number(row[name]).toLocaleString("en-GB")}</Badge> : <>0</>),
    };
}

const VHOSTS: Kind = {
    type: "vhostStats", entity: "vhost", title: "Vhosts",
    about: "Policy: who was let in, and what was refused.", empty: "No vhost has had connections, or policy is off.",
    columns: [
        { key: "hostname", title: "Vhost", value: ({ row }) => text(row["hostname"] ?? row["id"]) },
        column("connectionsCurrent", "Connected"), column("connectionsApproved", "Let in", 2),
        { ...denied("connectionsDenied", "Refused"), rank: 1 },
        denied("sessionDenied", "Sessions refused"), denied("senderDenied", "Senders refused"),
        denied("receiverDenied", "Receivers refused"), denied("maxMessageSizeDenied", "Too large"),
        column("linksCurrent", "Links", 2), column("addressesCurrent", "Addresses", 3),
        column("messages", "Messages", 3), column("bufferedOctets", "Buffered", 3),
        denied("creditHeldBack", "Credit held back"),
    ],
};

export const LinkRoutes = (): JSX.Element => <Table kind={LINK_ROUTES} />;
export const AutoLinks = (): JSX.Element => <Table kind={AUTO_LINKS} />;
export const Vhosts = (): JSX.Element => <Table kind={VHOSTS} />;
