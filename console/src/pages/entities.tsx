// Any entity of the router: look, make, change, remove; with what the schema says of it.
import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { Source } from "../app.ts";
import { text } from "../data/management.ts";
import type { Row, Target, Value } from "../data/management.ts";
import { collect, readSchema, settable, writeValue } from "../data/schema.ts";
import type { Attribute, EntityType } from "../data/schema.ts";
import { heading } from "../data/format.ts";
import { useApp, useFeed, useRoute, useScope } from "../ui/hooks.ts";
import { Badge, Confirm, Described, Head, ScopeChoice, Trouble } from "../ui/parts.tsx";
import { Full } from "../ui/full.tsx";
import { link } from "../ui/route.ts";
import { Rows } from "../ui/rows.tsx";
import type { Item } from "../ui/rows.tsx";
import type { Column } from "../ui/table.tsx";

export function useSchema(target: Target): { types: EntityType[]; error: string | null } {
    const app = useApp();
    const source: Source<string> = {
        key: `schema/${target.kind === "own" ? "" : target.id}`, interval: 600_000,
        fetch: async () => text(await app.management.call(target, "GET-JSON-SCHEMA")),
    };
    const feed = useFeed(source);
    const types = useMemo(() => (feed.value === undefined ? [] : readSchema(feed.value)), [feed.value]);
    return { types, error: feed.error };
}

export function Entities(): JSX.Element {
    const { argument, query } = useRoute();
    const { targets } = useScope();
    const { types, error } = useSchema(targets[0] ?? { id: "", kind: "own" });
    const [wanted, setWanted] = useState("");
    const type = types.find((each) => each.name === argument || each.type === argument);
    if (type !== undefined) return <OfType key={type.name} type={type} />;
    const shown = types.filter((each) => `${each.name} ${each.description} ${each.attributes.map((one) => one.name).join(" ")}`.toLowerCase().includes(wanted.toLowerCase()));
    return (
        <>
            <Head title="Schema and entities" about="Everything that the router is made of: look at it, add to it, change it."><ScopeChoice all={false} /></Head>
            <Trouble error={error} />
            <input class="filter" type="search" placeholder="Find a type or an attribute" aria-label="Find a type" value={wanted} onInput={(event) => setWanted(event.currentTarget.value)} />
            <div class="cards">
                {shown.map((each) => (
                    <a class="card" key={each.name} href={link("entities", { router: query.get("router") ?? "" }, each.name)}>
                        <h2>{each.name} {each.deprecated && <Badge kind="warn">deprecated</Badge>}</h2>
                        <p class="about">{each.description}</p>
                        <p class="about">{each.operations.filter((one) => one !== "READ").map((one) => one.toLowerCase()).join(", ")}</p>
                    </a>
                ))}
            </div>
        </>
    );
}

const show = (value: Value): string => (typeof value === "boolean" ? (value ? "yes" : "no") : text(value));

/** The columns that tell entities of a type apart. */
function columnsOf(type: EntityType): Column<Item>[] {
    const first = ["name", ...type.attributes.filter((each) => each.required).map((each) => each.name)];
    const likely = ["host", "port", "role", "mode", "module", "enable", "prefix", "pattern", "address", "distribution", "direction", "linkDir", "owningAddr", "container", "operStatus", "connectionStatus", "deliveryCount", "typeSize", "hostname", "cost"];
    const has = new Set(type.attributes.map((each) => each.name));
    const names = [...new Set([...first, ...likely])].filter((name) => has.has(name)).slice(0, 7);
    const columns = names.map((name, index): Column<Item> => ({
        key: name, title: heading(name), rank: index < 2 ? 1 : index < 4 ? 2 : 3,
        value: ({ row }) => (typeof row[name] === "number" ? row[name] : show(row[name])),
    }));
    if (has.has(IN_FILE)) columns.splice(1, 0, FILE);
    return columns;
}

const IN_FILE = "inFile";

/** Marks entities that a restart would lose, or change back. */
const FILE: Column<Item> = {
    key: IN_FILE, title: "File", letters: 15, rank: 1, word: true,
    hint: "what management has created or changed is lost with a restart, unless it is in the configuration file",
    value: ({ row }) => (row[IN_FILE] === false ? "not in the file" : ""),
    show: ({ row }) => (row[IN_FILE] === false ? <Badge kind="warn">not in the file</Badge> : <></>),
};

/** Names to ask for: all, or none if the router returns the same without names. */
const namesOf = (type: EntityType): string[] => (type.attributes.some((each) => each.name === IN_FILE) ? type.attributes.map((each) => each.name) : []);

function OfType({ type }: { type: EntityType }): JSX.Element {
    const app = useApp();
    const { targets } = useScope();
    const [making, setMaking] = useState(false);
    const columns = useMemo(() => columnsOf(type), [type]);
    const [about, setAbout] = useState(false);
    const wanted = useMemo(() => (row: Row): boolean => row["type"] === undefined || row["type"] === null || text(row["type"]).endsWith(type.type), [type]);
    if (about) return <About type={type} onClose={() => setAbout(false)} />;
    return (
        <>
            <Rows
                title={type.name} about={type.description} sort="name" empty="There is none." columns={columns} wanted={wanted}
                source={(target) => app.table(target, type.type, namesOf(type), true, "identity")}
                actions={(
                    <>
                        <a class="button" href={link("entities")}>All types</a>
                        <button type="button" onClick={() => setAbout(true)}>Attributes</button>
                        {type.operations.includes("CREATE") && <button type="button" class="primary" onClick={() => setMaking(true)}>Create …</button>}
                    </>
                )}
                panelTitle={({ row }) => text(row["name"]) || text(row["identity"])}
                panel={(item) => <One type={type} item={item} />}
            />
            {making && targets[0] !== undefined && <Form type={type} target={targets[0]} row={null} onClose={() => setMaking(false)} />}
        </>
    );
}

function About({ type, onClose }: { type: EntityType; onClose: () => void }): JSX.Element {
    return (
        <>
            <Head title={type.name} about={type.description}><button type="button" onClick={onClose}>Entities</button></Head>
            <section class="card scroll" aria-label="Attributes of this type">
                <table class="plain">
                    <thead><tr><th>Attribute</th><th>Type</th><th>Default</th><th>Meaning</th></tr></thead>
                    <tbody>
                        {type.attributes.map((each) => (
                            <tr key={each.name}>
                                <td><code>{each.name}</code> {each.required && <Badge kind="plain">needed</Badge>}</td>
                                <td>{Array.isArray(each.type) ? each.type.join(" | ") : each.type}</td>
                                <td>{show(each.default)}</td>
                                <td><Described text={each.description} /></td>
                            </tr>
                        ))}
                    </tbody>
                </table>
            </section>
        </>
    );
}

function One({ type, item }: { type: EntityType; item: Item }): JSX.Element {
    const [doing, setDoing] = useState<"" | "update" | "delete">("");
    const app = useApp();
    const { target, row, table } = item;
    const remove = async (): Promise<void> => {
        await app.management.remove(target, type.type, text(row["identity"]));
        app.poller.refresh(type.type);
    };
    return (
        <>
            <p class="buttons">
                {type.operations.includes("UPDATE") && type.name !== "router.link" && <button type="button" onClick={() => setDoing("update")}>Change …</button>}
                {type.operations.includes("DELETE") && <button type="button" class="danger" onClick={() => setDoing("delete")}>Delete …</button>}
            </p>
            <Full target={target} type={type.type} row={row} table={table} />
            {doing === "update" && <Form type={type} target={target} row={row} onClose={() => setDoing("")} />}
            {doing === "delete" && (
                <Confirm title={`Delete this ${type.name}?`} action="Delete" danger run={remove} onClose={() => setDoing("")}>
                    <p><b>{text(row["name"]) || text(row["identity"])}</b> of router {target.id}. It comes back with the next start if the configuration file has it.</p>
                </Confirm>
            )}
        </>
    );
}

function Form({ type, target, row, onClose }: { type: EntityType; target: Target; row: Row | null; onClose: () => void }): JSX.Element {
    const app = useApp();
    const fields = settable(type);
    const [written, setWritten] = useState(() => new Map(fields.map((each) => [each.name, row === null ? "" : writeValue(row[each.name])])));
    const [errors, setErrors] = useState(new Map<string, string>());
    const run = async (): Promise<void> => {
        const found = collect(type, written, row);
        setErrors(found.errors);
        if (found.errors.size) throw new Error(`Not sent: ${[...found.errors].map(([name, error]) => `${name} ${error}`).join("; ")}`);
        if (row === null) {
            const { name, ...attributes } = found.attributes;
            await app.management.create(target, type.type, name === undefined ? null : text(name), attributes);
        } else {
            await app.management.update(target, type.type, text(row["identity"]), found.attributes);
        }
        app.poller.refresh(type.type);
    };
    return (
        <Confirm title={row === null ? `New ${type.name} of ${target.id}` : `Change ${text(row["name"])}`} action={row === null ? "Create" : "Change"} run={run} onClose={onClose}>
            {fields.map((each) => (
                <Field
                    key={each.name} attribute={each} value={written.get(each.name) ?? ""} error={errors.get(each.name)}
                    onChange={(value) => setWritten(new Map(written).set(each.name, value))}
                />
            ))}
        </Confirm>
    );
}

function Field({ attribute, value, error, onChange }: { attribute: Attribute; value: string; error: string | undefined; onChange: (value: string) => void }): JSX.Element {
    const choices = Array.isArray(attribute.type) ? attribute.type : attribute.type === "boolean" ? ["yes", "no"] : null;
    const usual = show(attribute.default);
    const shared = { name: attribute.name, value, "aria-invalid": error !== undefined, required: attribute.required === true };
    return (
        <label class="field">
            <span>{attribute.name}{attribute.required && <i> (needed)</i>}</span>
            {choices !== null ? (
                <select {...shared} onChange={(event) => onChange(event.currentTarget.value)}>
                    <option value="">{usual ? `(${usual})` : ""}</option>
                    {choices.map((each) => <option key={each}>{each}</option>)}
                </select>
            ) : ["map", "list", "properties"].includes(attribute.type as string) ? (
                <textarea {...shared} rows={3} placeholder="JSON" onInput={(event) => onChange(event.currentTarget.value)} />
            ) : (
                <input {...shared} type="text" placeholder={usual} autocomplete="off" onInput={(event) => onChange(event.currentTarget.value)} />
            )}
            <small class={error ? "wrong" : ""}>{error ? `${attribute.name} ${error}` : <Described text={attribute.description} />}</small>
        </label>
    );
}
