import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { duration } from "../data/format.ts";
import { number, text } from "../data/management.ts";
import { useApp } from "../ui/hooks.ts";
import { CloseConnection } from "../ui/close.tsx";
import { Badge } from "../ui/parts.tsx";
import { link } from "../ui/route.ts";
import { Rows } from "../ui/rows.tsx";
import type { Item } from "../ui/rows.tsx";
import type { Column } from "../ui/table.tsx";
import { Full } from "../ui/full.tsx";

export const NAMES: Record<string, string> = {
    "normal": "client", "inter-router": "router", "route-container": "broker", "edge": "edge", "inter-edge": "edge",
};

const COLUMNS: Column<Item>[] = [
    { key: "id", title: "Id", rank: 2, value: ({ row }) => Number(text(row["identity"])), show: ({ row }) => text(row["identity"]) },
    { key: "container", title: "Container", value: ({ row }) => text(row["container"]) },
    { key: "role", title: "Role", value: ({ row }) => NAMES[text(row["role"])] ?? text(row["role"]) },
    { key: "host", title: "Host", value: ({ row }) => text(row["host"]) },
    { key: "dir", title: "Dir", rank: 3, value: ({ row }) => text(row["dir"]) },
    { key: "user", title: "User", rank: 2, value: ({ row }) => text(row["user"]) },
    { key: "security", title: "Security", rank: 3, value: ({ row }) => [row["isEncrypted"] ? text(row["sslProto"]) || "TLS" : "", text(row["sasl"])].filter(Boolean).join(" · ") },
    { key: "tenant", title: "Tenant", rank: 3, value: ({ row }) => text(row["tenant"]) },
    { key: "last", title: "Last message", letters: 15, rank: 3, hint: "how long ago", value: ({ row }) => (typeof row["lastDlvSeconds"] === "number" ? row["lastDlvSeconds"] : null), show: ({ row }) => (typeof row["lastDlvSeconds"] === "number" ? `${duration(row["lastDlvSeconds"])} ago` : "never") },
    { key: "up", title: "Up", letters: 11, rank: 2, value: ({ row }) => number(row["uptimeSeconds"]), show: ({ row }) => duration(number(row["uptimeSeconds"])) },
];

export function Connections(): JSX.Element {
    const app = useApp();
    return (
        <Rows
            title="Connections" about="Clients, brokers and routers that are connected now."
            source={(target) => app.connections(target)} columns={COLUMNS} sort="id" empty="Nobody is connected."
            panelTitle={({ row }) => text(row["container"]) || `connection ${text(row["identity"])}`}
            panel={(item) => <Details item={item} />}
        />
    );
}

function Details({ item }: { item: Item }): JSX.Element {
    const app = useApp();
    const { target, row } = item;
    const identity = text(row["identity"]);
    const [closing, setClosing] = useState(false);
    const [fault, setFault] = useState("");
    const traced = row["enableProtocolTrace"] === true;
    const between = ["inter-router", "edge", "inter-edge"].includes(text(row["role"]));
    const trace = (): void => {
        setFault("");
        app.management.update(target, "connection", identity, { enableProtocolTrace: !traced })
            .then(() => app.poller.refresh("connection/"), (error: Error) => setFault(error.message));
    };
    return (
        <>
            <p class="buttons">
                <a class="button" href={link("links", { router: target.id, q: `connection:${identity}` })}>Links</a>
                <a class="button" href={link("trace", { router: target.id }, identity)}>Frames, live</a>
                <button type="button" onClick={trace} title="Writes each frame of this connection to the router's log">{traced ? "Stop logging frames" : "Log frames"}</button>
                {!between && <button type="button" class="danger" onClick={() => setClosing(true)}>Close …</button>}
            </p>
            {fault && <p class="trouble" role="alert">{fault}</p>}
            {traced && <p><Badge kind="warn">frames are logged</Badge></p>}
            <Full target={target} type="connection" row={row} />
            {closing && <CloseConnection target={target} row={row} onClose={() => setClosing(false)} />}
        </>
    );
}
