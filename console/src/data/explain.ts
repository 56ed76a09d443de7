// What a router answers to EXPLAIN about an address and the paths of its messages, and what comes of it.
import { OWN, addressOf, number, text } from "./management.ts";
import type { Management, Row, Target } from "./management.ts";

/** answers and errors by router; ways: each from the first router to one with consumers, or until it breaks off. */
export interface Explained { answers: Map<string, Row>; errors: Map<string, string>; ways: string[][] }

export interface Verdict { kind: "good" | "plain" | "warn" | "bad"; words: string }

export const list = (value: unknown): Row[] => (Array.isArray(value) ? value as Row[] : []);

/** Ask the own router for the paths of an address from a router on. It asks the others. */
export async function explain(management: Management, address: string, first: Target): Promise<Explained> {
    const from = first.kind === "own" ? {} : { first: addressOf(first) };
    const { routers, ways } = await management.call(OWN, "EXPLAIN", { address, path: true, ...from }) as Row;
    const answers = new Map<string, Row>();
    const errors = new Map<string, string>();
    for (const answer of list(routers)) {
        if ("error" in answer) errors.set(text(answer["router"]), text(answer["error"]));
        else answers.set(text(answer["router"]), answer);
    }
    return { answers, errors, ways: ways as string[][] };
}

const some = (answer: Row, test: (record: Row) => boolean): boolean => list(answer["records"]).some(test);
/** Consumers that can take a message; a router of an older version knows of their credit only. */
const able = (record: Row): number => number("consumersAble" in record ? record["consumersAble"] : record["consumersWithCredit"]);
const takes = (answer: Row): boolean => some(answer, (record) => able(record) > 0 || record["inProcess"] === true);
const stuck = (answer: Row): boolean => some(answer, (record) => number(record["deliveriesStuck"]) > 0);
/** True if auto links of the address are not attached: messages may go to a queue that does not exist. */
const down = (answer: Row): boolean => number(answer["autoLinksDown"]) > 0;
const used = (answer: Row): boolean => some(answer, (record) => number(record["producerCount"]) > 0 || number(record["consumerCount"]) > 0 || list(record["remotes"]).length > 0);

/** What one router says. That it only passes messages on is neither good nor bad. */
export function verdict(answer: Row): Verdict {
    const words = text(answer["verdict"]) || (answer["reachable"] ? "reachable" : "not reachable");
    if (answer["reachable"] === null) return { kind: "plain", words };
    if (!answer["reachable"]) return { kind: used(answer) ? "bad" : "warn", words };
    if (stuck(answer) || down(answer)) return { kind: "warn", words };
    return { kind: some(answer, (record) => list(record["remotes"]).length > 0) && !takes(answer) ? "plain" : "good", words };
}

/** What would become of a message that is sent now, by the answers of all. */
export function outcome({ answers, ways }: Explained): Verdict {
    const own = [...answers.values()][0]!;
    const name = text(own["router"]);
    if (!own["reachable"] && (own["reachable"] !== null || !ways.length)) {
        const { kind, words } = verdict(own);
        return { kind, words: own["reachable"] === null ? `${name} does not know whether a message would be taken: ${words}` : `A message sent now is not taken: ${words}` };
    }
    const goals = [...new Set(ways.map((way) => way.at(-1)!))];
    const silent = goals.filter((goal) => !answers.has(goal));
    const ends = [...(takes(own) || !goals.length ? [name] : []), ...goals.filter((goal) => answers.get(goal)?.["reachable"])];
    const holding = ends.filter((router) => stuck(answers.get(router)!));
    if (holding.length) {
        const whole = holding.length === ends.length;
        return {
            kind: whole ? "bad" : "warn",
            words: `A message sent now ${whole ? "may wait" : "is taken"}: ${holding.map((router) => `${verdict(answers.get(router)!).words} at ${router}`).join("; ")}`,
        };
    }
    if (ends.length) {
        const doubtful = ends.find((router) => answers.has(router) && down(answers.get(router)!));
        const words = `A message sent now is taken${goals.length ? ` at ${ends.join(", ")}` : ""}`;
        return doubtful === undefined ? { kind: "good", words } : { kind: "warn", words: `${words}; at ${doubtful}: ${verdict(answers.get(doubtful)!).words}` };
    }
    if (silent.length) return { kind: "plain", words: `Whether a message sent now is taken is not known: ${silent.join(", ")} does not answer` };
    const why = goals.map((goal) => `${verdict(answers.get(goal)!).words} at ${goal}`);
    return { kind: "bad", words: `A message sent now waits: ${why.join("; ")}` };
}
