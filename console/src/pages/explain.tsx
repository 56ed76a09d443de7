// What happens to messages to an address, and why, at the router asked and at those on the way.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Source } from "../app.ts";
import { explain, list, outcome, verdict } from "../data/explain.ts";
import type { Explained } from "../data/explain.ts";
import { duration, plural } from "../data/format.ts";
import { addressText, isInternal } from "../data/address.ts";
import { OWN, number, text } from "../data/management.ts";
import { stallOf } from "../data/stall.ts";
import type { Row } from "../data/management.ts";
import { useApp, useFeed, useRoute, useScope } from "../ui/hooks.ts";
import { Badge, Head, ScopeChoice, Trouble } from "../ui/parts.tsx";
import { amend, link } from "../ui/route.ts";

const MOST_OFFERED = 500; // addresses to choose from

export function Explain(): JSX.Element {
    const { query } = useRoute();
    const address = query.get("address") ?? "";
    return (
        <>
            <Head title="Explain an address" about="What happens to messages to it, and why."><ScopeChoice all={false} /></Head>
            <Ask key={address} address={address} />
            {address && <Answers key={`answers of ${address}`} address={address} />}
        </>
    );
}

function Ask({ address }: { address: string }): JSX.Element {
    const app = useApp();
    const { targets } = useScope();
    const [wanted, setWanted] = useState(address);
    const known = useFeed(app.table(targets[0] ?? OWN, "router.address", ["name"], true, "name")).value?.rows ?? [];
    const names = known.map((row) => text(row["name"])).filter((name) => !isInternal(name)).map(addressText);
    return (
        <form class="ask" onSubmit={(event) => { event.preventDefault(); amend({ address: wanted }); }}>
            <input
                class="filter" aria-label="Address" placeholder="Address, as a client writes it" list="addresses" autocomplete="off" value={wanted}
                onInput={(event) => setWanted(event.currentTarget.value)}
            />
            <datalist id="addresses">{[...new Set(names)].sort().slice(0, MOST_OFFERED).map((name) => <option key={name} value={name} />)}</datalist>
            <button type="submit" class="primary">Explain</button>
        </form>
    );
}

function Answers({ address }: { address: string }): JSX.Element {
    const app = useApp();
    const { targets } = useScope();
    const first = targets[0] ?? { id: "", kind: "own" as const };
    const source: Source<Explained> = {
        key: `explain/${first.kind}/${first.id}/${address}`, interval: 4000,
        fetch: () => explain(app.management, address, first),
    };
    const feed = useFeed(source);
    const found = feed.value;
    if (found === undefined) return feed.error ? <Trouble error={feed.error} /> : <p class="nothing">Asking the router …</p>;
    return (
        <>
            <Trouble error={feed.error} />
            <p class={`outcome ${outcome(found).kind}`} role="status">{outcome(found).words}</p>
            {found.ways.map((way) => (
                <p class="way" key={way.join()}>
                    {way.map((router, index) => <>{index > 0 && <span aria-label="to"> → </span>}<a href={link("topology", { path: address, select: router })}>{router}</a></>)}
                </p>
            ))}
            {[...found.answers.values()].map((answer) => <Router key={text(answer["router"])} answer={answer} />)}
            {[...found.errors].map(([router, error]) => <Trouble key={router} error={`Router ${router} does not answer: ${error}`} />)}
        </>
    );
}

function Router({ answer }: { answer: Row }): JSX.Element {
    const router = text(answer["router"]);
    const { kind, words } = verdict(answer);
    const setting = answer["setting"] as Row | null;
    return (
        <section class="card" aria-label={`Router ${router}`}>
            <h2><bdi>{router}</bdi> <Badge kind={kind}>{words}</Badge></h2>
            <ul class="findings">{(answer["findings"] as string[]).map((finding) => <li key={finding}>{finding}</li>)}</ul>
            {setting !== null && (
                <p class="about">
                    {setting["pattern"] === null ? "No pattern matches: the defaults hold" : `By pattern ${text(setting["pattern"])} of address ${text(setting["entity"])}`}
                    {`: distribution ${text(setting["distribution"])}, phases ${text(setting["ingressPhase"])} to ${text(setting["egressPhase"])}`}
                    {setting["fallback"] ? ", with fallback" : ""}
                </p>
            )}
            {list(answer["records"]).map((record) => <Record key={text(record["key"])} router={router} record={record} />)}
        </section>
    );
}

function Record({ router, record }: { router: string; record: Row }): JSX.Element {
    return (
        <>
            <p class="about">
                <code>{text(record["key"])}</code> {text(record["treatment"])}: {plural(number(record["deliveriesIngress"]), "message")} in, {plural(Math.max(number(record["deliveriesEgress"]) - number(record["deliveriesWaiting"]), 0), "message")} out
            </p>
            <Users router={router} title="Consumers" all={number(record["consumerCount"])} links={list(record["consumers"])} />
            <Users router={router} title="Producers" all={number(record["producerCount"])} links={list(record["producers"])} />
        </>
    );
}

function Users({ router, title, all, links }: { router: string; title: string; all: number; links: Row[] }): JSX.Element | null {
    if (all === 0) return null;
    return (
        <div class="scroll">
            <table class="plain">
                <caption>{title}: {all}{links.length < all ? `, the first ${links.length}` : ""}</caption>
                <thead><tr><th>Container</th><th>Host</th><th>User</th><th class="number">Credit</th><th class="number">Waiting</th><th class="number">Unsettled</th><th class="number">Stuck</th><th class="number">Deliveries</th><th>No credit for</th><th>Stalled by</th></tr></thead>
                <tbody>
                    {links.map((each) => (
                        <tr key={text(each["identity"])}>
                            <td><a href={link("connections", { router, select: text(each["connection"]) })}>{text(each["container"]) || "(no name)"}</a></td>
                            <td>{text(each["host"])}</td>
                            <td>{text(each["user"])}</td>
                            <td class="number" title={each["capacityAdapts"] === true ? "The capacity adapts, because linkCapacity is not set" : undefined}>{number(each["credit"])}{title === "Producers" ? ` of ${number(each["capacity"])}` : ""}</td>
                            <td class="number">{number(each["undelivered"])}</td>
                            <td class="number">{number(each["unsettled"])}</td>
                            <td class="number">{number(each["stuck"]) > 0 ? <Badge kind="bad">{number(each["stuck"])}</Badge> : 0}</td>
                            <td class="number">{number(each["deliveries"]).toLocaleString("en-GB")}</td>
                            <td>{typeof each["withoutCreditSeconds"] === "number" ? <Badge kind="warn">{duration(each["withoutCreditSeconds"])}</Badge> : ""}</td>
                            <td>{stalled(each)}</td>
                        </tr>
                    ))}
                </tbody>
            </table>
        </div>
    );
}

function stalled(row: Row): JSX.Element | string {
    const stall = stallOf(row);
    if (stall === undefined) return "";
    return <span title={stall.words}><Badge kind="warn">{`${stall.reason}, ${duration(stall.seconds)}`}</Badge></span>;
}
