// The reader's choice of a table's columns, and their widths. The browser keeps both.
import type { JSX } from "preact";
import { LEAST_WIDTH } from "../data/widths.ts";
import { useStored } from "./hooks.ts";

export interface Choice {
    /** By key of a column; absent: by the room that there is. */
    shown: Record<string, boolean>;
    /** px, by key of a column. */
    widths: Record<string, number>;
    show: (key: string, shown: boolean) => void;
    resize: (key: string, width: number) => void;
    reset: () => void;
}

const STEP = 16; // px for an arrow key

export function useColumns(table: string): Choice {
    const [kept, keep] = useStored(`columns.${table}`, "{}");
    const { shown, widths } = read(kept);
    return {
        shown, widths,
        show: (key, value) => keep(JSON.stringify({ shown: { ...shown, [key]: value }, widths })),
        resize: (key, width) => keep(JSON.stringify({ shown, widths: { ...widths, [key]: Math.max(LEAST_WIDTH, Math.round(width)) } })),
        reset: () => keep("{}"),
    };
}

function read(kept: string): { shown: Record<string, boolean>; widths: Record<string, number> } {
    try {
        const { shown = {}, widths = {} } = JSON.parse(kept) as { shown?: Record<string, boolean>; widths?: Record<string, number> };
        return { shown, widths };
    } catch {
        return { shown: {}, widths: {} }; // a person has changed it by hand
    }
}

interface Props { columns: { key: string; title: string; hint?: string }[]; shown: Set<string>; choice: Choice }

export function ColumnChoice({ columns, shown, choice }: Props): JSX.Element {
    return (
        <details class="choose columns">
            <summary class="button">Columns</summary>
            <div class="card">
                {columns.map(({ key, title, hint }) => (
                    <label class="check" key={key} title={hint}>
                        <input
                            type="checkbox" checked={shown.has(key)} disabled={shown.size === 1 && shown.has(key)}
                            onChange={(event) => choice.show(key, event.currentTarget.checked)}
                        />
                        {title}
                    </label>
                ))}
                <button type="button" onClick={choice.reset}>As at first</button>
            </div>
        </details>
    );
}

/** The right edge of a head, which drags the width of its column. With the keyboard it is `resizeByKey` of the head. */
export function Grip({ width, onWidth }: { width: number; onWidth: (width: number) => void }): JSX.Element {
    const down = (event: PointerEvent): void => {
        const grip = event.currentTarget as HTMLElement;
        const from = event.clientX - width;
        const move = (next: PointerEvent): void => onWidth(next.clientX - from);
        grip.setPointerCapture(event.pointerId);
        grip.addEventListener("pointermove", move);
        grip.addEventListener("lostpointercapture", () => grip.removeEventListener("pointermove", move), { once: true });
        event.preventDefault();
    };
    return <span class="grip" aria-hidden="true" onPointerDown={down} />;
}

/** Handle Shift and an arrow on a head. */
export function resizeByKey(event: KeyboardEvent, width: number, onWidth: (width: number) => void): void {
    const by = event.key === "ArrowLeft" ? -STEP : event.key === "ArrowRight" ? STEP : 0;
    if (by === 0 || !event.shiftKey) return;
    onWidth(width + by);
    event.preventDefault();
    event.stopPropagation();
}
