// One chart of the last 15 minutes.
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { milliseconds, octets, short } from "../data/format.ts";
import { KEPT_SECONDS, align } from "../data/history.ts";
import type { Series } from "../data/history.ts";

// Told apart also by people who do not tell red from green; each has contrast on light and on dark.
const LINES = {
    light: ["#0b6e75", "#b4501e", "#5b4bb0", "#8a6a00", "#a3245f", "#33691e", "#1565c0", "#6d4c41"],
    dark: ["#4fc3c9", "#ff9f68", "#b3a5ff", "#e6c34a", "#ff86b8", "#9ccc65", "#7cb8ff", "#c8a99c"],
};

const POWERS = Array.from({ length: 45 }, (_, power) => 2 ** power); // steps of an axis of octets
const LEAST_SECONDS = 120; // that a chart shows

function clock(seconds: number): string {
    return new Date(seconds * 1000).toLocaleTimeString("en-GB", seconds % 60 ? {} : { hour: "2-digit", minute: "2-digit" });
}

export function write(unit: string, value: number | null | undefined): string {
    if (value === null || value === undefined) return "–";
    if (unit === "octets") return octets(value);
    if (unit === "s") return milliseconds(value);
    if (unit === "load") return `${(value * 100).toFixed(value < 0.1 ? 1 : 0)} %`;
    return `${short(value)}${unit}`;
}

/** The values without one before and after them: no line goes there. */
function lonely(values: ArrayLike<number | null | undefined>): number[] {
    const found = Array.from(values).flatMap((value, index) => (value === undefined ? [] : [{ value, index }]));
    const empty = (at: number): boolean => (found[at]?.value ?? null) === null;
    return found.filter(({ value }, at) => value !== null && empty(at - 1) && empty(at + 1)).map(({ index }) => index);
}

export function Chart({ title, series, height = 170 }: { title: string; series: Series[]; height?: number }): JSX.Element {
    const box = useRef<HTMLDivElement>(null);
    const plot = useRef<uPlot | null>(null);
    const unit = series[0]?.unit ?? "";
    const names = series.map((each) => each.title).join("\n");
    const theme = document.documentElement.dataset["theme"] === "dark" ? "dark" : "light";
    useEffect(() => {
        const element = box.current!;
        const style = getComputedStyle(document.documentElement);
        const axis = { stroke: style.getPropertyValue("--dim"), grid: { stroke: style.getPropertyValue("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
        const made = new uPlot({
            width: element.clientWidth || 300, height,
            legend: { show: false }, cursor: { y: false, points: { size: 6 }, sync: { key: "charts" } },
            scales: { x: { time: true, range: (_, first) => { const now = Date.now() / 1000; return [Math.max(now - KEPT_SECONDS, Math.min(first ?? now, now - LEAST_SECONDS)), now]; } }, y: { range: (_, __, most) => [0, most > 0 ? most * 1.1 : 1] } },
            axes: [{ ...axis, space: 80, size: 30, values: (_, splits) => splits.map(clock) }, { ...axis, size: 62, ...(unit === "octets" ? { incrs: POWERS } : {}), values: (_, splits) => splits.map((each) => write(unit, each)) }],
            series: [{}, ...series.map((each, index) => ({
                label: each.title, stroke: LINES[theme][index % LINES[theme].length]!, width: 1.8, points: { show: false, size: 4, filter: (plot: uPlot, column: number) => lonely(plot.data[column]!) },
                dash: index >= LINES[theme].length ? [6, 4] : [],
            }))],
        }, align(series) as uPlot.AlignedData, element);
        plot.current = made;
        const size = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
        size.observe(element);
        return () => { size.disconnect(); made.destroy(); };
    }, [names, theme, unit]);
    useEffect(() => { plot.current?.setData(align(series) as uPlot.AlignedData); });
    return (
        <figure class="chart-card" aria-label={title}>
            <figcaption>
                <b>{title}</b>
                <ul>
                    {series.map((each, index) => (
                        <li key={each.title}>
                            <svg width="14" height="4" aria-hidden="true"><line x1="0" y1="2" x2="14" y2="2" stroke={LINES[theme][index % LINES[theme].length]!} stroke-width="3" stroke-dasharray={index >= LINES[theme].length ? "4 3" : undefined} /></svg>
                            {" "}{each.title} <b>{write(unit, each.values.at(-1))}</b>
                        </li>
                    ))}
                </ul>
            </figcaption>
            <div ref={box} />
        </figure>
    );
}
