// The dialog that ends a client's connection.
import type { JSX } from "preact";
import { text } from "../data/management.ts";
import type { Row, Target } from "../data/management.ts";
import { useApp } from "./hooks.ts";
import { Attributes, Confirm } from "./parts.tsx";

export function CloseConnection({ target, row, onClose }: { target: Target; row: Row; onClose: () => void }): JSX.Element {
    const app = useApp();
    const run = async (): Promise<void> => {
        await app.management.update(target, "connection", text(row["identity"]), { adminStatus: "deleted" });
        app.poller.refresh("connection/");
    };
    return (
        <Confirm title="Close this connection?" action="Close the connection" danger run={run} onClose={onClose}>
            <p>The router ends it with <code>amqp:connection:forced</code>. Most clients connect again by themselves.</p>
            <Attributes row={{ container: row["container"], host: row["host"], user: row["user"] }} />
        </Confirm>
    );
}

