// Lines of a router's log, as the page shows and saves them.
import { clock, day } from "./format.ts";
import { text } from "./management.ts";
import type { Value } from "./management.ts";

/** at: ms since 1970. number: of the line among those that the router answered, the oldest first. */
export interface LogEntry { module: string; level: string; text: string; at: number; number: number }

/** Levels of the router's log, the worst first. */
export const LEVELS = ["critical", "error", "warning", "notice", "info", "debug", "trace"];

/** The lines of an answer to GET-LOG: module, level, text, file, line, seconds since 1970. */
export function readLog(answer: Value): LogEntry[] {
    return (Array.isArray(answer) ? answer as Value[][] : []).map((each, number) => ({
        module: text(each[0]), level: text(each[1]), text: text(each[2]), at: Number(each[5]) * 1000, number,
    }));
}

/** Time of day with milliseconds. */
export const timeOf = (at: number): string => `${clock(at)}.${String(Math.floor(at % 1000)).padStart(3, "0")}`;

/** Whether a line is at least as bad as a level; "" takes all. */
export function isAsBad(entry: LogEntry, level: string): boolean {
    return level === "" || LEVELS.indexOf(entry.level) <= LEVELS.indexOf(level);
}

/** Return the lines without those about connections of consoles, which come and go whenever somebody looks. */
export function withoutConsoles(entries: LogEntry[]): LogEntry[] {
    const connections = new Set(entries.filter((each) => /container_id=console-[0-9a-z]+\b/.test(each.text)).flatMap((each) => connectionOf(each) ?? []));
    return entries.filter((each) => !connections.has(connectionOf(each) ?? ""));
}

const connectionOf = (entry: LogEntry): string | undefined => /^\[C(\d+)\]/.exec(entry.text)?.[1];

/** The lines as a file of text, the oldest first. */
export function toFile(entries: LogEntry[]): string {
    const sorted = [...entries].sort((one, other) => one.number - other.number);
    return sorted.map((each) => `${day(each.at)} ${timeOf(each.at)} ${each.module} (${each.level}) ${each.text}\n`).join("");
}
