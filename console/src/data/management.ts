// Management of the routers of a network, through the one that the page is connected to.
import { RequestError } from "../amqp/answer.ts";
import type { Answer } from "../amqp/answer.ts";

export type Value = string | number | boolean | null | undefined | Value[] | { [name: string]: Value };
export type Row = Record<string, Value>;

/** A router that is asked: "" is the one that the page is connected to. */
export interface Target { id: string; kind: "own" | "router" | "edge" }

export const OWN: Target = { id: "", kind: "own" };
const PREFIX = "org.apache.qpid.dispatch.";
const PAGE = 500; // rows asked for at a time, as the tools do
const MOST_VALUES = 60_000; // of a page: decoders of AMQP stop at 65,535

export type Ask = (
    address: string, properties: Record<string, unknown>, body?: unknown,
    follows?: (subject: string, body: unknown) => void,
) => Promise<Answer>;

export function addressOf(target: Target): string {
    if (target.kind === "own") return "$management";
    return target.kind === "edge" ? `_edge/${target.id}/$management` : `_topo/0/${target.id}/$management`;
}

export function longName(type: string): string {
    return type.startsWith(PREFIX) || type.startsWith("org.") ? type : PREFIX + type;
}

export function shortName(type: string): string {
    return type.startsWith(PREFIX) ? type.slice(PREFIX.length) : type;
}

export class Management {
    private readonly ask: Ask;

    constructor(ask: Ask) {
        this.ask = ask;
    }

    /** All rows of a type, page after page; attributes: those to ask for, all if empty. */
    async query(target: Target, type: string, attributes: string[] = [], most = Infinity): Promise<Row[]> {
        const found: Row[] = [];
        const page = Math.min(PAGE, Math.floor(MOST_VALUES / (attributes.length + 8 || 64)));
        const count = attributes.length ? page : 100;
        while (found.length < most) {
            const properties = { operation: "QUERY", entityType: longName(type), offset: found.length, count };
            const { body } = await this.ask(addressOf(target), properties, { attributeNames: attributes });
            const rows = rowsOf(body);
            // 1.19 answers some types with all rows, whatever page is asked for.
            const again = found.length > 0 && rows.length > 0 && JSON.stringify(rows[0]) === JSON.stringify(found[0]);
            if (!again) found.push(...rows);
            if (again || rows.length !== count) break;
        }
        return found;
    }

    /** An operation of the management entity. */
    async call(
        target: Target, operation: string, properties: Record<string, unknown> = {}, body: unknown = {},
        follows?: (subject: string, body: unknown) => void,
    ): Promise<Value> {
        return (await this.ask(addressOf(target), { operation, ...properties }, body, follows)).body as Value;
    }

    async create(target: Target, type: string, name: string | null, attributes: Row): Promise<Value> {
        const named = name === null ? {} : { name };
        return (await this.ask(addressOf(target), { operation: "CREATE", type: longName(type), ...named }, attributes)).body as Value;
    }

    async update(target: Target, type: string, identity: string, attributes: Row): Promise<Value> {
        return (await this.ask(addressOf(target), { operation: "UPDATE", type: longName(type), identity }, attributes)).body as Value;
    }

    async remove(target: Target, type: string, identity: string): Promise<void> {
        await this.ask(addressOf(target), { operation: "DELETE", type: longName(type), identity });
    }
}

/** The rows of an answer to QUERY as maps. Their keys are attribute names of the router's schema. */
export function rowsOf(body: unknown): Row[] {
    const { attributeNames, results } = body as { attributeNames?: unknown; results?: unknown };
    if (!Array.isArray(attributeNames) || !Array.isArray(results)) throw new RequestError(0, "The answer is no table");
    return results.map((cells: Value[]) => {
        const row: Row = Object.create(null) as Row;
        attributeNames.forEach((name, index) => { row[String(name)] = cells[index] ?? null; });
        return row;
    });
}

export const text = (value: Value): string => (value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));
export const number = (value: Value): number => (typeof value === "number" ? value : 0);
