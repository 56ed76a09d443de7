// The router's schema: which entities there are, what they have, and whether what somebody wrote fits.
import type { Row, Value } from "./management.ts";

export interface Attribute {
    name: string;
    type: string | string[];
    description: string;
    default?: Value;
    required?: boolean;
    unique?: boolean;
    graph?: boolean;
    deprecated?: boolean;
}

export interface EntityType {
    /** As in the schema: `address`. */
    name: string;
    /** As in requests, without the prefix: `router.config.address`. */
    type: string;
    description: string;
    operations: string[];
    attributes: Attribute[];
    singleton: boolean;
    deprecated: boolean;
}

const PREFIX = "org.apache.qpid.dispatch.";
const ABSTRACT = ["entity", "configurationEntity", "operationalEntity", "org.amqp.management", "management", "dummy", "console", "vhostUserGroupSettings"];
// What the router reports of an entity, and nobody sets; the schema does not mark it.
const REPORTED = /^(identity|type|operStatus|lastError|connectionStatus|connectionMsg|expiresInDays|\w+Count)$/;

interface Dumped {
    entityTypes: Record<string, {
        description?: string; fullyQualifiedType?: string; operations?: string[]; singleton?: boolean; deprecated?: boolean;
        attributes?: Record<string, Omit<Attribute, "name">>;
    }>;
}

/** The types that have entities, of the answer to GET-JSON-SCHEMA. */
export function readSchema(json: string): EntityType[] {
    const { entityTypes } = JSON.parse(json) as Dumped;
    return Object.entries(entityTypes).filter(([name]) => !ABSTRACT.includes(name)).map(([name, each]) => ({
        name,
        type: (each.fullyQualifiedType ?? PREFIX + name).replace(PREFIX, ""),
        description: each.description ?? "",
        operations: each.operations ?? [],
        attributes: Object.entries(each.attributes ?? {}).map(([attribute, about]) => ({ ...about, name: attribute })),
        singleton: each.singleton === true,
        deprecated: each.deprecated === true,
    }));
}

/** The attributes that a form has. */
export function settable(type: EntityType): Attribute[] {
    const order = (each: Attribute): number => (each.name === "name" ? 0 : each.required ? 1 : 2);
    return type.attributes.filter((each) => !REPORTED.test(each.name) && !each.deprecated)
        .sort((one, other) => order(one) - order(other));
}

export type Parsed = { value: Value } | { error: string };

/** What somebody wrote into a form's field, as the attribute has it. Empty: it is left out. */
export function parseValue(attribute: Attribute, written: string): Parsed {
    const text = written.trim();
    if (text === "") return attribute.required ? { error: "is needed" } : { value: undefined };
    if (Array.isArray(attribute.type)) {
        return attribute.type.includes(text) ? { value: text } : { error: `is none of ${attribute.type.join(", ")}` };
    }
    switch (attribute.type) {
        case "integer":
            return /^[+-]?\d{1,15}$/.test(text) ? { value: Number(text) } : { error: "is no whole number" };
        case "boolean":
            if (/^(yes|true|on)$/i.test(text)) return { value: true };
            return /^(no|false|off)$/i.test(text) ? { value: false } : { error: "is neither yes nor no" };
        case "map":
        case "properties":
        case "list":
            return parseJson(attribute.type, text);
        default:
            return { value: text };
    }
}

function parseJson(type: string, text: string): Parsed {
    try {
        const value = JSON.parse(text) as Value;
        const fits = type === "list" ? Array.isArray(value) : typeof value === "object" && value !== null && !Array.isArray(value);
        return fits ? { value } : { error: `is no ${type === "list" ? "list" : "map"} in JSON` };
    } catch (error) {
        return { error: `is no JSON: ${(error as Error).message}` };
    }
}

export function writeValue(value: Value): string {
    if (value === null || value === undefined) return "";
    if (typeof value === "boolean") return value ? "yes" : "no";
    return typeof value === "object" ? JSON.stringify(value, null, 2) : String(value);
}

/** What a form sends, and what is wrong with it by attribute. For a change only what differs from `before`. */
export function collect(type: EntityType, written: Map<string, string>, before: Row | null): { attributes: Row; errors: Map<string, string> } {
    const attributes: Row = {};
    const errors = new Map<string, string>();
    for (const attribute of settable(type)) {
        const text = written.get(attribute.name) ?? "";
        if (before !== null && text === writeValue(before[attribute.name])) continue;
        const parsed = parseValue(attribute, text);
        if ("error" in parsed) errors.set(attribute.name, parsed.error);
        else if (parsed.value !== undefined) attributes[attribute.name] = parsed.value;
    }
    return { attributes, errors };
}
