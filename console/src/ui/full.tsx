// All attributes of one row: those that the table has, which are new, and those that it lacks, read once.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { addressText } from "../data/address.ts";
import { isCounter } from "../data/charts.ts";
import { heading, rate } from "../data/format.ts";
import { addressOf, longName, text } from "../data/management.ts";
import type { Row, Target, Value } from "../data/management.ts";
import type { Table } from "../data/rates.ts";
import { useApp } from "./hooks.ts";
import { Attributes, ChartSign } from "./parts.tsx";
import { link } from "./route.ts";

interface Props { target: Target; type: string; row: Row; table?: Table }

export function Full({ target, type, row, table }: Props): JSX.Element {
    const app = useApp();
    const [more, setMore] = useState<Row>({});
    const identity = text(row["identity"] ?? row["name"]);
    useEffect(() => {
        let there = true;
        const address = addressOf(target);
        app.client.request(address, { operation: "READ", type: longName(type), identity }).then(
            ({ body }) => { if (there) setMore(body as Row); },
            () => { if (there) setMore({}); }, // it is gone, and leaves the table with the next look
        );
        return () => { there = false; };
    }, [target.id, type, identity]);
    const all: Row = { ...more, ...row };
    const shown = (name: string, value: Value): JSX.Element | undefined => {
        const perSecond = isCounter(name) ? table?.rate(row, name) ?? null : null;
        if (name === "owningAddr" && value) {
            return <a href={link("explain", { address: addressText(text(value)), router: target.id })}>{text(value)}</a>;
        }
        if (name === "connectionId") {
            return <a href={link("connections", { router: target.id, select: text(value) })}>{text(value)}</a>;
        }
        if (typeof value !== "number") return undefined;
        const charted = name in more; // a chart reads the entity
        return (
            <>
                {value.toLocaleString("en-GB")}
                {perSecond !== null && perSecond > 0 && <span class="rate">{rate(perSecond)}</span>}
                {charted && (
                    <a
                        class="chart" title={`Chart ${heading(name)}`} aria-label={`Chart ${heading(name)}`}
                        href={link("charts", { add: [target.id, type, identity, name].map(encodeURIComponent).join("/") })}
                    >
                        <ChartSign />
                    </a>
                )}
            </>
        );
    };
    return <Attributes row={all} order={Object.keys(row)} extra={shown} />;
}
