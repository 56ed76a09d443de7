// Charts of anything that is a number, over the last 15 minutes.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ROUTER_CHARTS, WORKER_CHARTS, keyOf, label, parseCharted, readCharted } from "../data/charts.ts";
import { heading } from "../data/format.ts";
import type { Series } from "../data/history.ts";
import { Chart } from "../ui/chart.tsx";
import { store, stored, useApp, useNetwork, useRoute } from "../ui/hooks.ts";
import { Head } from "../ui/parts.tsx";
import { amend } from "../ui/route.ts";
import { MOST_RECORDED } from "../ui/recorder.tsx";

const FIRST = ["deliveriesIngress", "deliveriesEgress", "latencyP99Seconds", "cpuSeconds", "connectionCount", "memoryUsage"];

function shownNames(): string[] {
    return (stored("shown-charts") ?? FIRST.join()).split(",").filter(Boolean);
}

export function Charts(): JSX.Element {
    const app = useApp();
    const network = useNetwork();
    const { query } = useRoute();
    const [, redraw] = useState(0);
    const [shown, setShown] = useState(shownNames);
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
    const routers = (network?.targets ?? []).slice(0, MOST_RECORDED).map((each) => each.id);
    const chosen = readCharted(stored("charts") ?? "[]");
    const find = (keys: string[]): Series[] => keys.map((key) => app.history.get(key)).filter((each) => each !== undefined);
    const workers = Array.from({ length: 64 }, (_, worker) => String(worker));
    return (
        <>
            <Head title="Charts" about="The last 15 minutes, kept in this page. The sign beside a number elsewhere adds it here.">
                <details class="choose">
                    <summary class="button">Choose charts</summary>
                    <div class="card">
                        {[...ROUTER_CHARTS, ...WORKER_CHARTS].map(({ name, title }) => (
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
            <div class="charts">
                {chosen.map((each) => (
                    <div key={keyOf(each)} class="own">
                        <Chart title={`${heading(each.name)}: ${label(each)}`} series={find([keyOf(each)])} />
                        <button type="button" class="close" aria-label={`Remove ${heading(each.name)}`} onClick={() => { store("charts", JSON.stringify(chosen.filter((one) => keyOf(one) !== keyOf(each)))); redraw((value) => value + 1); }}>×</button>
                    </div>
                ))}
                {ROUTER_CHARTS.filter((each) => shown.includes(each.name)).map(({ name, title }) => (
                    <Chart key={name} title={title} series={find(routers.map((router) => keyOf({ router, type: "router", identity: "", name })))} />
                ))}
                {WORKER_CHARTS.filter((each) => shown.includes(each.name)).map(({ name, title }) => (
                    <Chart key={name} title={`${title} (${routers[0] ?? ""})`} series={find(workers.map((identity) => keyOf({ router: routers[0] ?? "", type: "worker", identity, name })))} />
                ))}
            </div>
        </>
    );
}
