// Answers of a router's management, made of rows, for pages without a router.
import type { Answer } from "../src/amqp/answer.ts";
import type { Row, Value } from "../src/data/management.ts";

/** The page of a table that a QUERY asks for. */
export function tableAnswer(rows: Row[], properties: Record<string, unknown>, body: unknown): Answer {
    const [offset, count] = [Number(properties["offset"]), Number(properties["count"])];
    const asked = (body as { attributeNames: string[] }).attributeNames;
    const attributeNames = asked.length ? asked : [...new Set(rows.flatMap((row) => Object.keys(row)))];
    return okAnswer({ attributeNames, results: rows.slice(offset, offset + count).map((row) => attributeNames.map((name) => row[name] ?? null)) });
}

export function okAnswer(body: unknown): Answer {
    return { status: 200, description: "", body: body as Value };
}

export const shortType = (properties: Record<string, unknown>): string =>
    String(properties["entityType"] ?? properties["type"]).replace("org.apache.qpid.dispatch.", "");
