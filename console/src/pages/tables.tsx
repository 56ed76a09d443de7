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

const column = (key: string, title: string, width = 1, rank: 1 | 2 | 3 = 1): Column<Item> => ({
    key, title, width, rank, value: ({ row }) => (typeof row[key] === "number" ? row[key] : text(row[key])),
});

const status: Column<Item> = {
    key: "operStatus", title: "Status", value: ({ row }) => text(row["operStatus"]),
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
        { key: "of", title: "Prefix or pattern", width: 2, value: ({ row }) => text(row["prefix"] ?? row["pattern"]) },
        column("direction", "Direction", 0.7), status, column("containerId", "Container", 1.3, 2), column("connection", "Connection", 1.3, 3),
        column("distribution", "Distribution", 1, 3), column("name", "Name", 1.5, 3),
    ],
};

const AUTO_LINKS: Kind = {
    type: "router.config.autoLink", entity: "autoLink", title: "Auto links",
    about: "Links that the router attaches by itself when a broker is connected.", empty: "No auto links are configured.",
    columns: [
        column("address", "Address", 2), column("direction", "Direction", 0.7), status, column("phase", "Phase", 0.6, 3),
        column("containerId", "Container", 1.3, 2), column("connection", "Connection", 1.3, 3), column("lastError", "Last error", 1.6, 2),
    ],
};

function denied(name: string, title: string, width: number): Column<Item> {
    return {
        key: name, title, width, rank: 3, value: ({ row }) => number(row[name]),
        show: ({ row }) => (number(row[name]) ? <Badge kind="warn">{number(row[name]).toLocaleString("en-GB")}</Badge> : <>0</>),
    };
}

const VHOSTS: Kind = {
    type: "vhostStats", entity: "vhost", title: "Vhosts",
    about: "Policy: who was let in, and what was refused.", empty: "No vhost has had connections, or policy is off.",
    columns: [
        { key: "hostname", title: "Vhost", width: 2, value: ({ row }) => text(row["hostname"] ?? row["id"]) },
        column("connectionsCurrent", "Connected"), column("connectionsApproved", "Let in", 1, 2),
        { ...denied("connectionsDenied", "Refused", 1), rank: 1 },
        denied("sessionDenied", "Sessions refused", 1.2), denied("senderDenied", "Senders refused", 1.2),
        denied("receiverDenied", "Receivers refused", 1.2), denied("maxMessageSizeDenied", "Too large", 1),
        column("linksCurrent", "Links", 1, 2), column("addressesCurrent", "Addresses", 1, 3),
        column("messages", "Messages", 1, 3), column("bufferedOctets", "Buffered", 1, 3),
        denied("creditHeldBack", "Credit held back", 1.2),
    ],
};

export const LinkRoutes = (): JSX.Element => <Table kind={LINK_ROUTES} />;
export const AutoLinks = (): JSX.Element => <Table kind={AUTO_LINKS} />;
export const Vhosts = (): JSX.Element => <Table kind={VHOSTS} />;
