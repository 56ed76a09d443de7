// Small parts that several pages have.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { heading } from "../data/format.ts";
import { text } from "../data/management.ts";
import type { Row, Value } from "../data/management.ts";
import { useScope } from "./hooks.ts";
import { amend } from "./route.ts";
import { visible } from "./visible.ts";

export function Head({ title, about, children }: { title: string; about?: string; children?: ComponentChildren }): JSX.Element {
    useEffect(() => { document.title = visible(`${title} · Sluice`); }, [title]);
    return (
        <header class="head">
            <div>
                <h1>{title}</h1>
                {about !== undefined && <p class="about">{about}</p>}
            </div>
            <div class="actions">{children}</div>
        </header>
    );
}

/** Which router the page is about; hidden where there is one. */
export function ScopeChoice({ all = true }: { all?: boolean }): JSX.Element | null {
    const { chosen, network } = useScope();
    if (network === undefined || network.targets.length < 2) return null;
    return (
        <label class="scope">
            <span>Router</span>
            <select value={chosen || network.own} onChange={(event) => amend({ router: event.currentTarget.value, select: "" })}>
                {all && <option value="*">all routers</option>}
                {network.targets.map((each) => (
                    <option key={each.id} value={each.id}>{each.id}{each.kind === "edge" ? " (edge)" : ""}</option>
                ))}
            </select>
        </label>
    );
}

export function Trouble({ error }: { error: string | null | undefined }): JSX.Element | null {
    return error ? <p class="trouble" role="alert">{error}</p> : null;
}

export function Badge({ kind, children }: { kind: "good" | "warn" | "bad" | "plain"; children: ComponentChildren }): JSX.Element {
    return <span class={`badge ${kind}`}>{children}</span>;
}

/** A text of the schema, in which names stand between grave accents. */
export function Described({ text: all }: { text: string }): JSX.Element {
    return <>{all.split("`").map((part, index) => (index % 2 ? <code>{part}</code> : part))}</>;
}

/** Of a link that charts a number. */
export function ChartSign(): JSX.Element {
    return (
        <svg width="16" height="12" viewBox="0 0 16 12" aria-hidden="true">
            <path d="M1 11 L5 5 L9 8 L15 1" fill="none" stroke="currentColor" stroke-width="1.8" />
        </svg>
    );
}

export function Bar({ share, label }: { share: number; label: string }): JSX.Element {
    const percent = Math.max(0, Math.min(100, share * 100));
    return (
        <span class="bar" title={label}>
            <span class={`fill${percent > 90 ? " bad" : percent > 70 ? " warn" : ""}`} style={{ width: `${percent}%` }} />
            <span class="label">{label}</span>
        </span>
    );
}

/** Attributes as a list. */
export function Attributes({ row, order = [], extra }: { row: Row; order?: string[]; extra?: (name: string, value: Value) => ComponentChildren }): JSX.Element {
    const names = [...order.filter((name) => name in row), ...Object.keys(row).filter((name) => !order.includes(name))];
    return (
        <dl class="attributes">
            {names.filter((name) => row[name] !== null && row[name] !== undefined).map((name) => (
                <div key={name}>
                    <dt title={name}>{heading(name)}</dt>
                    <dd>{extra?.(name, row[name]) ?? <Shown value={row[name]} />}</dd>
                </div>
            ))}
        </dl>
    );
}

export function Shown({ value }: { value: Value }): JSX.Element {
    if (value === true || value === false) return <>{value ? "yes" : "no"}</>;
    if (typeof value === "number") return <>{value.toLocaleString("en-GB")}</>;
    if (value !== null && typeof value === "object") return <pre>{JSON.stringify(value, null, 1)}</pre>;
    return <>{text(value)}</>;
}

/** A panel at the side, or over the page on a phone. Escape closes it. */
export function Panel({ title, onClose, children }: { title: string; onClose: () => void; children: ComponentChildren }): JSX.Element {
    useEffect(() => {
        const onKey = (event: KeyboardEvent): void => {
            if (event.key === "Escape" && document.querySelector("dialog[open]") === null) onClose();
        };
        addEventListener("keydown", onKey);
        return () => removeEventListener("keydown", onKey);
    }, [onClose]);
    return (
        <aside class="panel" aria-label={title}>
            <header>
                <h2 title={title}>{title}</h2>
                <button type="button" class="close" aria-label="Close" onClick={onClose}>×</button>
            </header>
            <div class="inside">{children}</div>
        </aside>
    );
}

interface ConfirmProps {
    title: string;
    action: string;
    danger?: boolean;
    run: () => Promise<unknown>;
    onClose: (done: boolean) => void;
    children: ComponentChildren;
}

/** Asks before something is done, and shows what came of it where it fails. */
export function Confirm({ title, action, danger = false, run, onClose, children }: ConfirmProps): JSX.Element {
    const dialog = useRef<HTMLDialogElement>(null);
    const [error, setError] = useState<string | null>(null);
    const [busy, setBusy] = useState(false);
    useEffect(() => {
        dialog.current!.showModal();
        dialog.current!.querySelector<HTMLElement>("input, select, textarea, button")?.focus();
    }, []);
    const go = (event: Event): void => {
        event.preventDefault();
        setBusy(true);
        setError(null);
        run().then(() => onClose(true), (failed: Error) => {
            setError(failed.message);
            setBusy(false);
        });
    };
    return (
        <dialog ref={dialog} onCancel={(event) => { event.preventDefault(); onClose(false); }} aria-label={title}>
            <form onSubmit={go}>
                <h2>{title}</h2>
                <div class="content">{children}</div>
                <Trouble error={error} />
                <div class="buttons">
                    <button type="button" onClick={() => onClose(false)}>Cancel</button>
                    <button type="submit" class={danger ? "danger" : "primary"} disabled={busy}>{action}</button>
                </div>
            </form>
        </dialog>
    );
}
