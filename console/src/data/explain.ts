// What routers answer to EXPLAIN: from the one that is asked along the paths to the consumers, and what comes of it.
import { text } from "./management.ts";
import type { Management, Row, Target } from "./management.ts";

const FOLLOWED = 10; // routers with consumers whose path is followed

/** answers and errors by router; ways: each from the router that was asked to one with consumers, or until it breaks off. */
export interface Explained { answers: Map<string, Row>; errors: Map<string, string>; ways: string[][] }

export interface Verdict { kind: "good" | "plain" | "bad"; words: string }

export const list = (value: unknown): Row[] => (Array.isArray(value) ? value as Row[] : []);

/** Ask the router, then those on the paths to its consumers. */
export async function follow(management: Management, address: string, first: Target, others: (id: string) => Target): Promise<Explained> {
    const answers = new Map<string, Row>();
    const errors = new Map<string, string>();
    const ask = async (target: Target): Promise<Row> => {
        const answer = (await management.call(target, "EXPLAIN", { address })) as Row;
        answers.set(text(answer["router"]), answer);
        return answer;
    };
    const own = await ask(first);
    const hops = (answer: Row | undefined): Map<string, string> => new Map(
        list(answer?.["records"]).flatMap((record) => list(record["remotes"])).filter((remote) => remote["nextHop"])
            .map((remote) => [text(remote["router"]), text(remote["nextHop"])]),
    );
    const ways: string[][] = [];
    for (const goal of [...hops(own).keys()].slice(0, FOLLOWED)) {
        const way = [text(own["router"])];
        while (way.at(-1) !== goal) {
            const next = hops(answers.get(way.at(-1)!)).get(goal);
            if (next === undefined || way.includes(next)) break;
            way.push(next);
            if (!answers.has(next) && !errors.has(next)) {
                try {
                    await ask(others(next));
                } catch (error) {
                    errors.set(next, (error as Error).message);
                }
            }
        }
        ways.push(way);
    }
    return { answers, errors, ways };
}

const takes = (answer: Row): boolean =>
    list(answer["records"]).some((record) => Number(record["consumersWithCredit"]) > 0 || Boolean(record["inProcess"]));

/** What one router says. That it only passes messages on is neither good nor bad. */
export function verdict(answer: Row): Verdict {
    const words = text(answer["verdict"]) || (answer["reachable"] ? "reachable" : "not reachable");
    if (!answer["reachable"]) return { kind: "bad", words };
    const elsewhere = list(answer["records"]).some((record) => list(record["remotes"]).length > 0);
    return { kind: elsewhere && !takes(answer) ? "plain" : "good", words };
}

/** What would become of a message that is sent now, by the answers of all. */
export function outcome({ answers, ways }: Explained): Verdict {
    const own = [...answers.values()][0]!;
    if (!own["reachable"]) return { kind: "bad", words: `A message sent now waits or is refused: ${verdict(own).words}` };
    if (takes(own) || !ways.length) return { kind: "good", words: "A message sent now is taken" };
    const goals = [...new Set(ways.map((way) => way.at(-1)!))];
    const taking = goals.filter((goal) => answers.get(goal)?.["reachable"]);
    if (taking.length) return { kind: "good", words: `A message sent now is taken at ${taking.join(", ")}` };
    const silent = goals.filter((goal) => !answers.has(goal));
    if (silent.length) return { kind: "plain", words: `Whether a message sent now is taken is not known: ${silent.join(", ")} does not answer` };
    const why = goals.map((goal) => `${verdict(answers.get(goal)!).words} at ${goal}`);
    return { kind: "bad", words: `A message sent now waits: ${why.join("; ")}` };
}
