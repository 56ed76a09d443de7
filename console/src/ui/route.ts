// The place of the reader, in the part of the page's address that never goes to a server.

export interface Route { page: string; argument: string; query: URLSearchParams }

export function parse(hash: string): Route {
    const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
    const [page = "", ...rest] = path.split("/");
    return { page: page || "overview", argument: decode(rest.join("/")), query: new URLSearchParams(query) };
}

function decode(text: string): string {
    try {
        return decodeURIComponent(text);
    } catch {
        return text; // somebody has written it by hand
    }
}

export function readRoute(): Route {
    return parse(location.hash);
}

/** A link to a page; parts of the query that are empty are left out. */
export function link(page: string, query: Record<string, string> = {}, argument = ""): string {
    const all = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== ""));
    const text = all.toString();
    return `#/${page}${argument && `/${encodeURIComponent(argument)}`}${text && `?${text}`}`;
}

/** Change parts of the present page's query. */
export function amend(changes: Record<string, string>): void {
    const { page, argument, query } = readRoute();
    const all = { ...Object.fromEntries(query), ...changes };
    history.replaceState(null, "", link(page, all, argument));
    dispatchEvent(new HashChangeEvent("hashchange"));
}
