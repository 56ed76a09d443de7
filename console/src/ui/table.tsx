// A table of any number of rows: only those in sight are in the document. Sorts, filters, and is used by keyboard.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { count } from "../data/format.ts";
import { chooseColumns, usualLength, widthsOf } from "../data/widths.ts";
import type { Ranked } from "../data/widths.ts";
import { ColumnChoice, Grip, resizeByKey, useColumns } from "./columns.tsx";
import { Cut } from "./cut.tsx";
import { amend, readRoute } from "./route.ts";

export type Cell = string | number | null;

export interface Column<Item> {
    key: string;
    title: string;
    /** What is sorted by, and shown unless `show` says otherwise. */
    value: (item: Item) => Cell;
    show?: (item: Item) => ComponentChildren;
    /** Letters of what `show` shows, where the value says nothing about it. */
    letters?: number;
    /** Left out where there is little room, unless the reader has chosen it: 3 first, then 2. */
    rank?: 1 | 2 | 3;
    hint?: string;
    /** Whether it is sorted as a number and reads as a word. */
    word?: boolean;
}

interface Props<Item> {
    name: string;
    columns: Column<Item>[];
    items: Item[];
    id: (item: Item) => string;
    sort: string; // key of the column that is sorted by at first, `-key` downwards
    loading: boolean;
    empty: string;
    selected?: string;
    onSelect?: (item: Item) => void;
    /** Between the filter and the count. */
    tools?: ComponentChildren;
}

const ROW = 34; // px
const EDGES = 8; // px beside the first and the last column
const LETTERS = "0123456789:.-/abcdefghijklmnopqrstuvwxyzAEMS"; // as names have them
const SAMPLE = 200; // rows whose texts decide about widths
const SPARE = 8; // rows above and below those in sight

export function sorted<Item>(items: Item[], column: Column<Item> | undefined, down: boolean): Item[] {
    if (column === undefined) return items;
    const values = new Map(items.map((item) => [item, column.value(item)]));
    const order = (one: Item, other: Item): number => {
        const [a, b] = [values.get(one)!, values.get(other)!];
        if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1; // what is not known comes last
        const found = typeof a === "number" && typeof b === "number" ? a - b : compare(String(a), String(b));
        return down ? -found : found;
    };
    return [...items].sort(order);
}

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
const compare = (one: string, other: string): number => collator.compare(one, other);

/** Words that all have to be in a row; `column:word` looks in one column. */
export function filtered<Item>(items: Item[], columns: Column<Item>[], wanted: string): Item[] {
    const words = wanted.toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
        const at = word.indexOf(":");
        const of = at > 0 ? columns.filter((each) => each.title.toLowerCase().replace(/ /g, "").startsWith(word.slice(0, at))) : [];
        return of.length ? { columns: of, word: word.slice(at + 1) } : { columns, word };
    });
    if (!words.length) return items;
    return items.filter((item) => words.every(({ columns: of, word }) =>
        of.some((column) => String(column.value(item) ?? "").toLowerCase().includes(word))));
}

export function DataTable<Item>(props: Props<Item>): JSX.Element {
    const { items, id } = props;
    const [filter, setFilter] = useState(() => readRoute().query.get("q") ?? "");
    const [sort, setSort] = useState(() => readRoute().query.get("sort") ?? props.sort);
    const [top, setTop] = useState(0);
    const [height, setHeight] = useState(600);
    const [width, setWidth] = useState(innerWidth);
    const [focus, setFocus] = useState(0);
    const body = useRef<HTMLDivElement>(null);
    const down = sort.startsWith("-");
    const by = sort.replace(/^-/, "");
    const shown = useMemo(
        () => sorted(filtered(items, props.columns, filter), props.columns.find((each) => each.key === by), down),
        [items, filter, sort, props.columns.length],
    );

    useEffect(() => {
        const box = body.current!;
        const observer = new ResizeObserver(() => {
            setHeight(box.clientHeight);
            setWidth(box.clientWidth);
        });
        observer.observe(box);
        return () => observer.disconnect();
    }, []);

    const first = Math.max(0, Math.floor(top / ROW) - SPARE);
    const last = Math.min(shown.length, Math.ceil((top + height) / ROW) + SPARE);

    const numeric = new Set(props.columns.filter((each) => !each.word && isNumeric(items, each)).map((each) => each.key));
    const chooseSort = (key: string): void => {
        const next = by === key ? (down ? key : `-${key}`) : numeric.has(key) ? `-${key}` : key;
        setSort(next);
        amend({ sort: next });
    };
    const chooseFilter = (text: string): void => {
        setFilter(text);
        amend({ q: text });
        body.current!.scrollTop = 0;
    };
    const move = (to: number): void => {
        const at = Math.max(0, Math.min(shown.length - 1, to));
        setFocus(at);
        const box = body.current!;
        if (at * ROW < box.scrollTop) box.scrollTop = at * ROW;
        else if ((at + 1) * ROW > box.scrollTop + box.clientHeight - ROW) box.scrollTop = (at + 2) * ROW - box.clientHeight;
    };
    const onKey = (event: KeyboardEvent): void => {
        const page = Math.floor(height / ROW) - 1;
        const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
        const step = steps[event.key];
        if (step !== undefined) move(focus + step);
        else if ((event.key === "Enter" || event.key === " ") && shown[focus] !== undefined) props.onSelect?.(shown[focus]!);
        else return;
        event.preventDefault();
    };
    const choice = useColumns(props.name);
    const letters = useLetters(shown, props.columns);
    const letter = useMemo(letterWidth, []);
    const measured = props.columns.map((each): Ranked => ({
        title: each.title.length, text: each.letters ?? letters.get(each.key) ?? 0, numeric: numeric.has(each.key) || each.letters !== undefined, fixed: choice.widths[each.key],
        rank: each.rank ?? 1, chosen: choice.shown[each.key] ?? (each.key === by ? true : undefined),
    }));
    const chosen = chooseColumns(measured, width - EDGES, letter);
    const columns = chosen.map((index) => props.columns[index]!);
    const widths = widthsOf(chosen.map((index) => measured[index]!), width - EDGES, letter);
    const layout = { gridTemplateColumns: widths.map((each) => `${each}px`).join(" "), minWidth: `${widths.reduce((sum, each) => sum + each, EDGES)}px` };

    return (
        <div class="table">
            <div class="tools">
                <input
                    type="search" class="filter" placeholder="Filter" aria-label={`Filter ${props.name}`} value={filter}
                    title="Words that a row has to contain; `column: word` without blank looks in one column. Key: /"
                    onInput={(event) => chooseFilter(event.currentTarget.value)}
                />
                {props.tools}
                <ColumnChoice columns={props.columns} shown={new Set(columns.map((each) => each.key))} choice={choice} />
                <span class="count" role="status">
                    {shown.length === items.length ? count(items.length) : `${count(shown.length)} of ${count(items.length)}`}
                </span>
            </div>
            <div
                class="grid" role="grid" aria-label={props.name} aria-rowcount={shown.length + 1} tabIndex={0} ref={body}
                onScroll={(event) => setTop(event.currentTarget.scrollTop)} onKeyDown={onKey}
                aria-activedescendant={shown[focus] === undefined ? undefined : rowId(props.name, focus)}
            >
                <div class="row heads" role="row" style={layout}>
                    {columns.map((each, index) => (
                        <div
                            role="columnheader" key={each.key} title={each.hint} class={numeric.has(each.key) ? "number" : undefined}
                            aria-sort={by === each.key ? (down ? "descending" : "ascending") : "none"}
                        >
                            <button
                                type="button" onClick={() => chooseSort(each.key)}
                                onKeyDown={(event) => resizeByKey(event, widths[index]!, (next) => choice.resize(each.key, next))}
                            >
                                {each.title}
                            </button>
                            <Grip width={widths[index]!} onWidth={(next) => choice.resize(each.key, next)} />
                        </div>
                    ))}
                </div>
                <div style={{ height: `${first * ROW}px` }} />
                {shown.slice(first, last).map((item, index) => {
                    const at = first + index;
                    const key = id(item);
                    const isSelected = key === props.selected;
                    return (
                        <div
                            key={key} id={rowId(props.name, at)} role="row" aria-rowindex={at + 2} aria-selected={isSelected}
                            class={`row${isSelected ? " chosen" : ""}${at === focus ? " focus" : ""}${props.onSelect ? " opens" : ""}`}
                            style={layout}
                            onClick={() => { setFocus(at); props.onSelect?.(item); }}
                        >
                            {columns.map((each) => {
                                const value = each.value(item);
                                const text = value === null ? "" : typeof value === "number" ? count(value) : value;
                                return (
                                    <div
                                        role="gridcell" key={each.key} title={text}
                                        class={numeric.has(each.key) ? "number" : undefined}
                                    >
                                        {each.show ? each.show(item) : <Cut text={text} />}
                                    </div>
                                );
                            })}
                        </div>
                    );
                })}
                <div style={{ height: `${(shown.length - last) * ROW}px` }} />
                {shown.length === 0 && (
                    <p class="nothing">{props.loading ? "Asking the router …" : items.length ? "Nothing matches the filter." : props.empty}</p>
                )}
            </div>
        </div>
    );
}

/** px of a letter of the reader's font, on average. */
function letterWidth(): number {
    const pen = document.createElement("canvas").getContext("2d")!;
    const { fontSize, fontFamily } = getComputedStyle(document.body);
    pen.font = `${fontSize} ${fontFamily}`;
    return pen.measureText(LETTERS).width / LETTERS.length;
}

/** Letters that nearly all texts of each column fit in. They only grow, so that columns stay where they are. */
function useLetters<Item>(items: Item[], columns: Column<Item>[]): Map<string, number> {
    const known = useRef(new Map<string, number>());
    useMemo(() => {
        for (const column of columns) {
            const lengths = items.slice(0, SAMPLE).map((item) => {
                const value = column.value(item);
                return value === null ? 0 : (typeof value === "number" ? count(value) : value).length;
            });
            known.current.set(column.key, Math.max(known.current.get(column.key) ?? 0, usualLength(lengths)));
        }
    }, [items, columns.length]);
    return known.current;
}

/** By the first row that has a value. */
function isNumeric<Item>(items: Item[], column: Column<Item>): boolean {
    for (const item of items.slice(0, 50)) {
        const value = column.value(item);
        if (value !== null) return typeof value === "number";
    }
    return column.show !== undefined;
}

const rowId = (name: string, index: number): string => `row-${name.replace(/\W/g, "")}-${index}`;
