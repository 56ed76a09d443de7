// Names of clients and routers, shortened to the part that tells them apart.
import { text } from "./management.ts";
import type { Row } from "./management.ts";

/** Kubernetes makes its suffixes of these letters: no vowels, nothing that looks like another letter. */
const SAFE = "[bcdfghjklmnpqrstvwxz2456789]";

/** Parts of container ids that differ between two clients of one program, the most specific first. */
const DIFFERING: RegExp[] = [
    /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/gi, // UUID
    new RegExp(`(?<=[a-z0-9]-)${SAFE}{7,10}-${SAFE}{5}(?![a-z0-9])`, "g"), // pod of a Deployment
    new RegExp(`(?<=[a-z0-9]-)(?=[a-z]*\\d)${SAFE}{5}(?![a-z0-9])`, "g"), // pod of a DaemonSet or a Job
    /(?<![0-9a-z])(?=[a-z]*\d)[0-9a-f]{7,}(?![0-9a-z])/gi, // random octets in hexadecimal
    /[0-9a-f]{12,}/gi,
    /(?<![\w-])(?=[\w-]*[a-z])(?=[\w-]*[A-Z])(?=[\w-]*\d)[\w-]{22,}(?![\w-])/g, // random octets in Base64
    /(?<=^console-)[0-9a-z]+$/g, // this console
    /\d+/g,
];

/** Return the name of the group of clients that a connection belongs to: its container id without what differs. */
export function groupName(row: Row): string {
    const container = text(row["container"]);
    const user = text(row["user"]);
    const stem = DIFFERING.reduce((name, part) => name.replace(part, "*"), container).replace(/\*([^a-z*]*\*)+/gi, "*");
    if (stem.replace(/^ID:/, "").replace(/[*\W_]/g, "").length >= 2) return stem; // Qpid JMS begins its ids with ID:
    const host = text(row["host"]).replace(/:\d+$/, "");
    return user && user !== "anonymous" ? `${user} from ${host}` : `clients from ${host}`;
}

/** Cut a text in its middle to at most so many characters: both ends stay. */
export function cutMiddle(name: string, most: number): string {
    const letters = [...name];
    if (letters.length <= most) return name;
    const tail = Math.floor((most - 1) * 0.45);
    return `${letters.slice(0, most - 1 - tail).join("")}…${letters.slice(letters.length - tail).join("")}`;
}

/**
 * Return a label of at most `most` characters for each name. A long name loses the domain that it shares with other
 * names, then its middle; two names never get the same label if the cut can be placed where they differ.
 */
export function labelsOf(names: Iterable<string>, most: number): Map<string, string> {
    const all = [...new Set(names)].sort();
    const domains = new Map<string, number>();
    for (const name of all) for (const domain of domainsOf(name)) domains.set(domain, (domains.get(domain) ?? 0) + 1);
    const stems = new Map<string, string[]>(); // names by what is left without the domain
    for (const name of all) {
        const domain = [...name].length > most ? domainsOf(name).find((each) => domains.get(each)! > 1) : undefined;
        const stem = domain === undefined ? name : name.slice(0, -domain.length);
        stems.set(stem, [...(stems.get(stem) ?? []), name]);
    }
    const labels = new Map<string, string>();
    const taken = new Map<string, string[]>(); // names by label
    for (const [stem, of] of stems) {
        for (const name of of) {
            const label = cutMiddle(of.length === 1 ? stem : name, most);
            labels.set(name, label);
            taken.set(label, [...(taken.get(label) ?? []), name]);
        }
    }
    for (const same of taken.values()) {
        if (same.length === 1) continue;
        for (const [name, label] of aroundDifference(same, most)) labels.set(name, label);
    }
    return labels;
}

/** Endings of a name that begin with a dot, the longest first. */
function domainsOf(name: string): string[] {
    const found: string[] = [];
    for (let at = name.indexOf(".", 1); at > 0; at = name.indexOf(".", at + 1)) if (at < name.length - 1) found.push(name.slice(at));
    return found;
}

/** Labels that show the names from the first place on where they differ. */
function aroundDifference(names: string[], most: number): [string, string][] {
    const letters = names.map((name) => [...name]);
    let same = 0;
    while (letters.every((each) => each.length > same && each[same] === letters[0]![same])) same += 1;
    const from = Math.max(0, same - 4);
    return letters.map((each, index) => [names[index]!, `…${cutMiddle(each.slice(from).join(""), most - 1)}`]);
}
