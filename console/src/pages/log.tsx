// The last lines of a router's log.
import type { JSX } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import type { Source } from "../app.ts";
import { day } from "../data/format.ts";
import { LEVELS, isAsBad, readLog, timeOf, toFile, withoutConsoles } from "../data/log.ts";
import type { LogEntry } from "../data/log.ts";
import type { Value } from "../data/management.ts";
import { useApp, useFeed, useRoute, useScope } from "../ui/hooks.ts";
import { Badge, Head, ScopeChoice, Trouble } from "../ui/parts.tsx";
import { amend } from "../ui/route.ts";
import { DataTable } from "../ui/table.tsx";
import type { Column } from "../ui/table.tsx";

const NEWEST = 1000; // lines that the router is asked for
const SHOWN_LEVELS = LEVELS.slice(1, 5); // critical lines are part of errors

const COLUMNS: Column<LogEntry>[] = [
    { key: "number", title: "Time", letters: 12, word: true, value: (entry) => entry.number, show: (entry) => <time title={`${day(entry.at)} ${timeOf(entry.at)}`}>{timeOf(entry.at)}</time> },
    { key: "date", title: "Date", rank: 3, value: (entry) => day(entry.at) },
    { key: "level", title: "Level", letters: 9, value: (entry) => entry.level, show: (entry) => <Badge kind={/error|critical/.test(entry.level) ? "bad" : entry.level === "warning" ? "warn" : "plain"}>{entry.level}</Badge> },
    { key: "module", title: "Module", rank: 2, value: (entry) => entry.module },
    { key: "text", title: "Text", value: (entry) => entry.text, show: (entry) => entry.text },
];

export function LogPage(): JSX.Element {
    const app = useApp();
    const { query } = useRoute();
    const { targets } = useScope();
    const [chosen, setChosen] = useState<LogEntry | null>(null);
    const [paused, setPaused] = useState(false);
    const target = targets[0] ?? { id: "", kind: "own" as const };
    const source: Source<Value> = {
        key: `log/${target.kind}/${target.id}`, interval: 5000,
        fetch: () => app.management.call(target, "GET-LOG", { limit: NEWEST }),
    };
    const feed = useFeed(source);
    const held = useRef<{ router: string; value: Value | undefined }>({ router: "", value: undefined });
    if (!paused || held.current.router !== target.id) held.current = { router: target.id, value: feed.value };
    const { value } = held.current;
    const level = query.get("level") ?? "";
    const all = query.get("consoles") === "yes";
    const entries = useMemo(() => {
        const read = readLog(value);
        return (all ? read : withoutConsoles(read)).filter((entry) => isAsBad(entry, level));
    }, [value, level, all]);
    const first = entries[0];
    const last = entries.at(-1);
    const span = first === undefined || last === undefined ? "" : ` From ${day(first.at)} ${timeOf(first.at)} to ${day(first.at) === day(last.at) ? "" : `${day(last.at)} `}${timeOf(last.at)}.`;
    return (
        <>
            <Head title="Log" about={`The last lines that the router wrote, the latest first.${span}`}>
                <label class="scope">
                    <span>Level</span>
                    <select value={level} onChange={(event) => amend({ level: event.currentTarget.value })}>
                        <option value="">all</option>
                        {SHOWN_LEVELS.map((each) => <option key={each} value={each}>{each} and worse</option>)}
                    </select>
                </label>
                <button type="button" aria-pressed={paused} onClick={() => setPaused(!paused)}>{paused ? "Go on" : "Pause"}</button>
                <button type="button" disabled={entries.length === 0} onClick={() => save(`${target.id}.log`, toFile(entries))}>Download</button>
                <ScopeChoice all={false} />
            </Head>
            <Trouble error={feed.error} />
            {paused && <p class="about" role="status">Paused: new lines come when you go on.</p>}
            <DataTable
                name="Log" columns={COLUMNS} items={entries} id={(entry) => `${entry.at}/${entry.number}`} sort="-number" loading={value === undefined}
                empty={level || !all ? "No line of this kind." : "The log is empty."} onSelect={setChosen} selected={chosen === null ? "" : `${chosen.at}/${chosen.number}`}
                tools={(
                    <label class="check" title="Lines about the connections of consoles, this one included">
                        <input type="checkbox" checked={all} onChange={(event) => amend({ consoles: event.currentTarget.checked ? "yes" : "" })} />
                        consoles' connections, too
                    </label>
                )}
            />
            {chosen !== null && <p class="card line" role="status"><code>{day(chosen.at)} {timeOf(chosen.at)} {chosen.module} ({chosen.level}) {chosen.text}</code></p>}
        </>
    );
}

/** Give the reader a text as a file. */
function save(name: string, content: string): void {
    const url = URL.createObjectURL(new Blob([content], { type: "text/plain" }));
    const anchor = document.createElement("a");
    anchor.href = url;
    anchor.download = name.replace(/[^\w.-]/g, "_");
    anchor.click();
    URL.revokeObjectURL(url);
}
