// One chart over a range of time, with the events in it.
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { milliseconds, octets, short } from "../data/format.ts";
import { KEPT_SECONDS, align } from "../data/history.ts";
import type { Series } from "../data/history.ts";
import { isBad } from "../data/past.ts";
import type { PastEvent } from "../data/past.ts";
import { visible } from "./visible.ts";

// Told apart also by people who do not tell red from green; each has contrast on light and on dark.
const LINES = {
    light: ["#0b6e75", "#b4501e", "#5b4bb0", "#8a6a00", "#a3245f", "#33691e", "#1565c0", "#6d4c41"],
    dark: ["#4fc3c9", "#ff9f68", "#b3a5ff", "#e6c34a", "#ff86b8", "#9ccc65", "#7cb8ff", "#c8a99c"],
};

const POWERS = Array.from({ length: 45 }, (_, power) => 2 ** power); // steps of an axis of octets
const LEAST_SECONDS = 120; // that a chart shows
const DAY = 86_400;
const NEAR = 6; // pixels between the pointer and a mark whose event is shown

/** A time on the axis of a chart that shows this many seconds. */
function clock(seconds: number, shown: number): string {
    const date = new Date(seconds * 1000);
    const midnight = date.getHours() === 0 && date.getMinutes() === 0;
    if (shown > 2 * DAY || (shown > DAY / 2 && midnight)) return date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
    return date.toLocaleTimeString("en-GB", seconds % 60 ? {} : { hour: "2-digit", minute: "2-digit" });
}

export function write(unit: string, value: number | null | undefined): string {
    if (value === null || value === undefined) return "–";
    if (unit === "octets") return octets(value);
    if (unit === "s") return milliseconds(value);
    if (unit === "load") return `${(value * 100).toFixed(value < 0.1 ? 1 : 0)} %`;
    return `${short(value)}${unit}`;
}

export function eventText(event: PastEvent, several: boolean): string {
    const count = event.count > 1 ? ` (${event.count} times)` : "";
    return `${several ? `${event.router}: ` : ""}${event.text}${count}`;
}

/** The values without one before and after them: no line goes there. */
function lonely(values: ArrayLike<number | null | undefined>): number[] {
    const found = Array.from(values).flatMap((value, index) => (value === undefined ? [] : [{ value, index }]));
    const empty = (at: number): boolean => (found[at]?.value ?? null) === null;
    return found.filter(({ value }, at) => value !== null && empty(at - 1) && empty(at + 1)).map(({ index }) => index);
}

function drawMarks(plot: uPlot, events: PastEvent[], colour: (event: PastEvent) => string): void {
    const { ctx } = plot;
    const { left, top, width, height } = plot.bbox;
    const half = 4 * devicePixelRatio;
    ctx.save();
    for (const event of events) {
        const x = Math.round(plot.valToPos(event.time, "x", true));
        if (x < left || x > left + width) continue;
        ctx.strokeStyle = ctx.fillStyle = colour(event);
        ctx.lineWidth = devicePixelRatio;
        ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
        ctx.beginPath();
        ctx.moveTo(x, top);
        ctx.lineTo(x, top + height);
        ctx.stroke();
        ctx.beginPath();
        ctx.moveTo(x - half, top);
        ctx.lineTo(x + half, top);
        ctx.lineTo(x, top + 1.6 * half);
        ctx.fill();
    }
    ctx.restore();
}

interface ChartProps {
    title: string;
    series: Series[];
    height?: number;
    /** Of the time axis. */
    seconds?: number;
    events?: PastEvent[];
    /** Series that the chart leaves out. */
    omitted?: number;
}

export function Chart({ title, series, height = 170, seconds = KEPT_SECONDS, events = [], omitted = 0 }: ChartProps): JSX.Element {
    const box = useRef<HTMLDivElement>(null);
    const marked = useRef<HTMLParagraphElement>(null);
    const plot = useRef<uPlot | null>(null);
    const shown = useRef(events);
    shown.current = events;
    const unit = series[0]?.unit ?? "";
    const names = series.map((each) => each.title).join("\n");
    const theme = document.documentElement.dataset["theme"] === "dark" ? "dark" : "light";
    const first = series.findIndex((each) => !each.total); // the total has a colour of its own
    const line = (index: number): { stroke: string; dashed: boolean } =>
        series[index]!.total ? { stroke: "var(--ink)", dashed: false } : { stroke: LINES[theme][(index - first) % LINES[theme].length]!, dashed: index - first >= LINES[theme].length };
    useEffect(() => {
        const element = box.current!;
        const style = getComputedStyle(document.documentElement);
        const colour = (name: string): string => style.getPropertyValue(name);
        const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
        const range = (_: uPlot, begin: number | null): [number, number] => {
            const now = Date.now() / 1000;
            return [Math.max(now - seconds, Math.min(begin ?? now, now - LEAST_SECONDS)), now];
        };
        const made = new uPlot({
            width: element.clientWidth || 300, height,
            legend: { show: false }, cursor: { y: false, points: { size: 6 }, sync: { key: "charts" } },
            scales: { x: { time: true, range }, y: { range: (_, __, most) => [0, most > 0 ? most * 1.1 : 1] } },
            axes: [
                { ...axis, space: 80, size: 30, values: (plot, splits) => splits.map((each) => clock(each, plot.scales["x"]!.max! - plot.scales["x"]!.min!)) },
                { ...axis, size: 62, ...(unit === "octets" ? { incrs: POWERS } : {}), values: (_, splits) => splits.map((each) => write(unit, each)) },
            ],
            series: [{}, ...series.map((each, index) => ({
                label: visible(each.title), stroke: each.total ? colour("--ink") : line(index).stroke, width: each.total ? 2.4 : 1.6,
                points: { show: false, size: 4, filter: (plot: uPlot, column: number) => lonely(plot.data[column]!) },
                dash: line(index).dashed ? [6, 4] : [],
            }))],
            hooks: {
                draw: [(plot) => drawMarks(plot, shown.current, (event) => colour(isBad(event) ? "--bad" : "--dim"))],
                setCursor: [(plot) => {
                    const at = plot.cursor.left ?? -1;
                    const near = at < 0 ? [] : shown.current.filter((event) => Math.abs(plot.valToPos(event.time, "x") - at) < NEAR);
                    const several = new Set(shown.current.map((event) => event.router)).size > 1;
                    marked.current!.textContent = visible(near.map((event) => eventText(event, several)).join(" · "));
                }],
            },
        }, align(series) as uPlot.AlignedData, element);
        plot.current = made;
        const size = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
        size.observe(element);
        return () => { size.disconnect(); made.destroy(); };
    }, [names, theme, unit, seconds]);
    useEffect(() => { plot.current?.setData(align(series) as uPlot.AlignedData); });
    return (
        <figure class="chart-card" aria-label={title}>
            <figcaption>
                <b>{title}</b>
                <ul>
                    {series.map((each, index) => (
                        <li key={each.title}>
                            <svg width="14" height="4" aria-hidden="true"><line x1="0" y1="2" x2="14" y2="2" style={{ stroke: line(index).stroke }} stroke-width="3" stroke-dasharray={line(index).dashed ? "4 3" : undefined} /></svg>
                            {" "}{each.title} <b>{write(unit, each.values.at(-1))}</b>
                        </li>
                    ))}
                    {omitted > 0 && <li>and {omitted} more</li>}
                </ul>
            </figcaption>
            <div ref={box} />
            <p class="mark" ref={marked} />
        </figure>
    );
}
