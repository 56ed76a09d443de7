// What routers answer to EXPLAIN: from the one that is asked along the paths to the consumers, and what comes of it.
import { number, text } from "./management.ts";
import type { Management, Row, Target } from "./management.ts";

const FOLLOWED = 10; // routers with consumers whose path is followed

/** answers and errors by router; ways: each from the router that was asked to one with consumers, or until it breaks off. */
export interface Explained { answers: Map<string, Row>; errors: Map<string, string>; ways: string[][] }

export interface Verdict { kind: "good" | "plain" | "warn" | "bad"; words: string }

export const list = (value: unknown): Row[] => (Array.isArray(value) ? value as Row[] : []);

/** Ask the router, then those on the paths to its consumers: interior routers hop by hop, others over edge connections. */
export async function follow(
    management: Management, address: string, first: Target, others: (id: string, edge: boolean) => Target,
): Promise<Explained> {
    const answers = new Map<string, Row>();
    const errors = new Map<string, string>();
    const ask = async (target: Target): Promise<Row> => {
        const answer = (await management.call(target, "EXPLAIN", { address })) as Row;
        answers.set(text(answer["router"]), answer);
        return answer;
    };
    const own = text((await ask(first))["router"]);
    const asked = async (id: string, edge = false): Promise<Row | undefined> => {
        if (!answers.has(id) && !errors.has(id)) {
            try {
                await ask(others(id, edge));
            } catch (error) {
                errors.set(id, (error as Error).message);
            }
        }
        return answers.get(id);
    };
    const amongInteriors = async (begin: string[]): Promise<string[][]> => {
        const found: string[][] = [];
        for (const goal of [...hops(await asked(begin.at(-1)!)).keys()].slice(0, FOLLOWED)) {
            const way = [...begin];
            while (way.at(-1) !== goal) {
                const next = hops(answers.get(way.at(-1)!)).get(goal);
                if (next === undefined || way.includes(next)) break;
                way.push(next);
                await asked(next);
            }
            found.push(way);
        }
        return found;
    };
    const ways = await amongInteriors([own]);
    for (const { id, edge } of beyond(answers.get(own))) {
        await asked(id, edge);
        ways.push([own, id]);
        if (!edge) ways.push(...await amongInteriors([own, id]));
    }
    for (const way of [...ways]) {
        for (const { id, edge } of beyond(await asked(way.at(-1)!))) {
            if (!edge || answers.has(id) || errors.has(id)) continue;
            await asked(id, true);
            ways.push([...way, id]);
        }
    }
    return { answers, errors, ways };
}

/** The next router to each that has consumers. */
const hops = (answer: Row | undefined): Map<string, string> => new Map(
    list(answer?.["records"]).flatMap((record) => list(record["remotes"])).filter((remote) => remote["nextHop"])
        .map((remote) => [text(remote["router"]), text(remote["nextHop"])]),
);

/** Routers behind edge connections that know more; none by a router of an older version. */
const beyond = (answer: Row | undefined): { id: string; edge: boolean }[] =>
    list(answer?.["further"]).slice(0, FOLLOWED).map((each) => ({ id: text(each["router"]), edge: each["edge"] === true }));

const some = (answer: Row, test: (record: Row) => boolean): boolean => list(answer["records"]).some(test);
/** Consumers that can take a message; a router of an older version knows of their credit only. */
const able = (record: Row): number => number("consumersAble" in record ? record["consumersAble"] : record["consumersWithCredit"]);
const takes = (answer: Row): boolean => some(answer, (record) => able(record) > 0 || record["inProcess"] === true);
const stuck = (answer: Row): boolean => some(answer, (record) => number(record["deliveriesStuck"]) > 0);
const used = (answer: Row): boolean => some(answer, (record) => number(record["producerCount"]) > 0 || number(record["consumerCount"]) > 0 || list(record["remotes"]).length > 0);

/** What one router says. That it only passes messages on is neither good nor bad. */
export function verdict(answer: Row): Verdict {
    const words = text(answer["verdict"]) || (answer["reachable"] ? "reachable" : "not reachable");
    if (answer["reachable"] === null) return { kind: "plain", words };
    if (!answer["reachable"]) return { kind: used(answer) ? "bad" : "warn", words };
    if (stuck(answer)) return { kind: "warn", words };
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
    if (ends.length) return { kind: "good", words: `A message sent now is taken${goals.length ? ` at ${ends.join(", ")}` : ""}` };
    if (silent.length) return { kind: "plain", words: `Whether a message sent now is taken is not known: ${silent.join(", ")} does not answer` };
    const why = goals.map((goal) => `${verdict(answers.get(goal)!).words} at ${goal}`);
    return { kind: "bad", words: `A message sent now waits: ${why.join("; ")}` };
}
