// Charts of what routers have kept, before the page was opened and since, and of any other number.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Source } from "../app.ts";
import { RANGES, ROUTER_CHARTS, keyOf, label, parseCharted, readCharted } from "../data/charts.ts";
import { heading } from "../data/format.ts";
import type { Series } from "../data/history.ts";
import { condense, isBad } from "../data/past.ts";
import type { Past, PastEvent } from "../data/past.ts";
import { Chart, eventText } from "../ui/chart.tsx";
import { store, stored, useApp, useFeeds, useNetwork, useRoute, useStored } from "../ui/hooks.ts";
import { Badge, Head, Trouble } from "../ui/parts.tsx";
import { amend } from "../ui/route.ts";

const FIRST = ["deliveriesIngress", "deliveriesEgress", "latencyP99Seconds", "cpuSeconds", "connectionCount", "memoryUsage"];
const MOST_ROUTERS = 60; // whose history is read
const MOST_EVENTS = 100; // in the list

function shownNames(): string[] {
    return (stored("shown-charts") ?? FIRST.join()).split(",").filter((name) => ROUTER_CHARTS.some((each) => each.name === name));
}

export function Charts(): JSX.Element {
    const app = useApp();
    const network = useNetwork();
    const { query } = useRoute();
    const [, redraw] = useState(0);
    const [shown, setShown] = useState(shownNames);
    const [rangeName, setRange] = useStored("chart-range", RANGES[0]!.name);
    const range = RANGES.find((each) => each.name === rangeName) ?? RANGES[0]!;
    const add = query.get("add");
    useEffect(() => {
        const timer = setInterval(() => redraw((value) => value + 1), 1000);
        return () => clearInterval(timer);
    }, []);
    useEffect(() => {
        const made = parseCharted(add ?? "");
        if (made === null) return;
        const kept = readCharted(stored("charts") ?? "[]");
        const known = made.type === "router" && ROUTER_CHARTS.some((each) => each.name === made.name);
        if (known) choose([...new Set([...shown, made.name])]);
        else if (!kept.some((each) => keyOf(each) === keyOf(made))) store("charts", JSON.stringify([made, ...kept]));
        amend({ add: "" });
    }, [add]);
    const choose = (names: string[]): void => {
        setShown(names);
        store("shown-charts", names.join());
    };
    const targets = (network?.targets ?? []).slice(0, MOST_ROUTERS);
    const names = ROUTER_CHARTS.map((each) => each.name).filter((name) => shown.includes(name));
    const feeds = useFeeds<Past | null>(targets.map((target): Source<Past | null> => app.past(target, names, range.step, range.seconds)));
    const pasts = feeds.map((feed) => feed.value);
    const chosen = readCharted(stored("charts") ?? "[]");
    const seriesOf = (name: string): Series[] => targets.flatMap((target, index) => {
        const past = pasts[index];
        const found = past ? past.series(name) : past === null ? app.history.get(keyOf({ router: target.id, type: "router", identity: "", name })) : undefined;
        return found === undefined ? [] : [found];
    });
    const begin = Date.now() / 1000 - range.seconds;
    const events = pasts.flatMap((past) => past?.events ?? []).filter((each) => each.last >= begin).sort((one, other) => other.time - one.time);
    const without = targets.filter((_, index) => pasts[index] === null).map((each) => each.id);
    const failed = targets.flatMap((target, index) => (feeds[index]?.error ? [`${target.id}: ${feeds[index]!.error}`] : []));
    return (
        <>
            <Head title="Charts" about="Kept by the routers. The sign beside a number elsewhere adds it here, from then on.">
                <div class="choice" role="group" aria-label="Range of time">
                    {RANGES.map(({ name }) => (
                        <button type="button" key={name} aria-pressed={name === range.name} onClick={() => setRange(name)}>{name}</button>
                    ))}
                </div>
                <details class="choose">
                    <summary class="button">Choose charts</summary>
                    <div class="card">
                        {ROUTER_CHARTS.map(({ name, title }) => (
                            <label class="check" key={name}>
                                <input
                                    type="checkbox" checked={shown.includes(name)}
                                    onChange={(event) => choose(event.currentTarget.checked ? [...shown, name] : shown.filter((each) => each !== name))}
                                />
                                {title}
                            </label>
                        ))}
                    </div>
                </details>
            </Head>
            {failed.length > 0 && <Trouble error={failed.slice(0, 3).join(" · ")} />}
            {without.length > 0 && <p class="note">No history of {without.slice(0, 5).join(", ")}{without.length > 5 ? ` and ${without.length - 5} more` : ""}: Dispatch keeps none. Their last 15 minutes are recorded by this page.</p>}
            <div class="charts">
                {chosen.map((each) => (
                    <div key={keyOf(each)} class="own">
                        <Chart title={`${heading(each.name)}: ${label(each)}`} series={[app.history.get(keyOf(each))].filter((one) => one !== undefined)} />
                        <button type="button" class="close" aria-label={`Remove ${heading(each.name)}`} onClick={() => { store("charts", JSON.stringify(chosen.filter((one) => keyOf(one) !== keyOf(each)))); redraw((value) => value + 1); }}>×</button>
                    </div>
                ))}
                {ROUTER_CHARTS.filter((each) => shown.includes(each.name)).map(({ name, title, sum }) => {
                    const { lines, omitted } = condense(seriesOf(name), sum, range.step);
                    return <Chart key={name} title={title} series={lines} seconds={range.seconds} events={events} omitted={omitted} />;
                })}
            </div>
            <Events events={events} several={targets.length > 1} />
        </>
    );
}

function Events({ events, several }: { events: PastEvent[]; several: boolean }): JSX.Element {
    return (
        <section class="card events" aria-label="Events">
            <h2>Events</h2>
            {events.length === 0 ? <p class="nothing">None in this time.</p> : (
                <ul>
                    {events.slice(0, MOST_EVENTS).map((event) => (
                        <li key={`${event.router} ${event.time} ${event.text}`}>
                            <time dateTime={new Date(event.time * 1000).toISOString()}>{new Date(event.time * 1000).toLocaleString("en-GB", { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" })}</time>
                            <Badge kind={isBad(event) ? "bad" : "plain"}>{event.kind}</Badge>
                            <span>{eventText(event, several)}</span>
                        </li>
                    ))}
                </ul>
            )}
            {events.length > MOST_EVENTS && <p class="about">and {events.length - MOST_EVENTS} earlier ones</p>}
        </section>
    );
}
