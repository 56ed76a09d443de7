// What the router would change if it read its configuration file again, and doing it.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { text } from "../data/management.ts";
import type { Row } from "../data/management.ts";
import { useApp, useScope } from "../ui/hooks.ts";
import { Badge, Confirm, Head, ScopeChoice } from "../ui/parts.tsx";
import { plural } from "../data/format.ts";

const SIGNS: Record<string, string> = { create: "+", delete: "−", update: "~" };
const EFFECTS: Record<string, string> = { live: "at once", reconnect: "for connections opened later", restart: "after a restart" };

export function Reload(): JSX.Element {
    const app = useApp();
    const { targets } = useScope();
    const target = targets[0];
    const [plan, setPlan] = useState<Row | null>(null);
    const [error, setError] = useState<string | null>(null);
    const [doing, setDoing] = useState<"" | "reload" | "undo">("");
    const [done, setDone] = useState("");
    const look = (): void => {
        if (target === undefined) return;
        setError(null);
        app.management.call(target, "RELOAD", { plan: true }).then(
            (body) => setPlan(body as Row), (failed: Error) => { setPlan(null); setError(failed.message); },
        );
    };
    useEffect(look, [target?.id]);
    const changes = plan === null ? [] : plan["changes"] as Row[];
    const run = async (): Promise<void> => {
        const body = await app.management.call(target!, "RELOAD", doing === "undo" ? { undo: true } : {}) as Row;
        setDone(text(body["text"]));
    };
    return (
        <>
            <Head title="Reload" about="What changes when the router reads its configuration file again: all of it or nothing."><ScopeChoice all={false} /></Head>
            <p class="buttons">
                <button type="button" onClick={look}>Look again</button>
                <button type="button" class="primary" disabled={changes.length === 0} onClick={() => setDoing("reload")}>Apply {plural(changes.length, "change")} …</button>
                <button type="button" onClick={() => setDoing("undo")}>Undo the last reload …</button>
            </p>
            {error !== null && <pre class="trouble" role="alert">{error}</pre>}
            {done && <p class="card" role="status"><pre>{done}</pre></p>}
            {plan !== null && changes.length === 0 && <p class="card calm">The file says what is in force: nothing would change.</p>}
            {changes.map((change) => (
                <section class={`card change ${text(change["kind"])}`} key={text(change["title"])} aria-label={text(change["title"])}>
                    <h2><code>{SIGNS[text(change["kind"])]}</code> <bdi>{text(change["title"])}</bdi> <Badge kind={change["effect"] === "live" ? "good" : "warn"}>{EFFECTS[text(change["effect"])] ?? text(change["effect"])}</Badge></h2>
                    <table class="plain">
                        <tbody>
                            {Object.entries(change["attributes"] as Record<string, Row>).map(([name, each]) => (
                                <tr key={name}>
                                    <td>{name}</td>
                                    <td>{change["kind"] !== "create" && <del>{shown(each["old"])}</del>}</td>
                                    <td>{change["kind"] !== "delete" && <ins>{shown(each["new"])}</ins>}</td>
                                </tr>
                            ))}
                        </tbody>
                    </table>
                </section>
            ))}
            {doing !== "" && (
                <Confirm
                    title={doing === "undo" ? "Undo the last reload?" : `Apply ${plural(changes.length, "change")} at ${target?.id ?? ""}?`}
                    action={doing === "undo" ? "Undo" : "Apply"} run={run} onClose={(applied) => { setDoing(""); if (applied) look(); }}
                >
                    <p>{doing === "undo" ? "The router goes back to the configuration before the last reload." : "The router reads the file once more, so what is applied is what it says then."}</p>
                </Confirm>
            )}
        </>
    );
}

const shown = (value: Row[string]): string => (value === null || value === undefined ? "(none)" : typeof value === "boolean" ? (value ? "yes" : "no") : text(value));
