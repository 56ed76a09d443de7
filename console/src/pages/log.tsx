// The last lines of a router's log.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Source } from "../app.ts";
import { text } from "../data/management.ts";
import type { Value } from "../data/management.ts";
import { useApp, useFeed, useScope } from "../ui/hooks.ts";
import { Badge, Head, ScopeChoice, Trouble } from "../ui/parts.tsx";
import { DataTable } from "../ui/table.tsx";
import type { Column } from "../ui/table.tsx";

type Entry = { module: string; level: string; text: string; at: string; number: number };

const COLUMNS: Column<Entry>[] = [
    { key: "number", title: "Time", width: 1.6, rank: 2, word: true, value: (entry) => entry.number, show: (entry) => entry.at },
    { key: "level", title: "Level", width: 0.7, value: (entry) => entry.level, show: (entry) => <Badge kind={/error|critical/.test(entry.level) ? "bad" : entry.level === "warning" ? "warn" : "plain"}>{entry.level}</Badge> },
    { key: "module", title: "Module", rank: 2, width: 1.2, value: (entry) => entry.module },
    { key: "text", title: "Text", width: 7, value: (entry) => entry.text },
];

export function LogPage(): JSX.Element {
    const app = useApp();
    const { targets } = useScope();
    const [chosen, setChosen] = useState<Entry | null>(null);
    const target = targets[0] ?? { id: "", kind: "own" as const };
    const source: Source<Value> = {
        key: `log/${target.kind}/${target.id}`, interval: 5000,
        fetch: () => app.management.call(target, "GET-LOG", { limit: 1000 }),
    };
    const feed = useFeed(source);
    const entries = ((feed.value ?? []) as Value[][]).map((each, number) => ({
        module: text(each[0]), level: text(each[1]), text: text(each[2]), at: new Date(Number(each[5]) * 1000).toISOString().slice(0, 19).replace("T", " "), number,
    }));
    return (
        <>
            <Head title="Log" about="The last lines that the router wrote, the latest first."><ScopeChoice all={false} /></Head>
            <Trouble error={feed.error} />
            <DataTable
                name="Log" columns={COLUMNS} items={entries} id={(entry) => String(entry.number)} sort="-number" loading={feed.value === undefined}
                empty="The log is empty." onSelect={setChosen}
            />
            {chosen !== null && <p class="card line" role="status"><code>{chosen.module} ({chosen.level}) {chosen.text}</code></p>}
        </>
    );
}
