// Between components and what the pages share.
import { createContext } from "preact";
import { useContext, useEffect, useMemo, useState } from "preact/hooks";
import type { App, Network, Source } from "../app.ts";
import type { Target } from "../data/management.ts";
import type { Feed } from "../data/poller.ts";
import { readRoute } from "./route.ts";
import type { Route } from "./route.ts";

export const AppContext = createContext<App | null>(null);

export function useApp(): App {
    return useContext(AppContext)!;
}

function useRedraw(): () => void {
    const [, set] = useState(0);
    return useMemo(() => () => set((value) => value + 1), []);
}

/** Feeds, kept going as long as the component is shown. */
export function useFeeds<Value>(sources: Source<Value>[]): Feed<Value>[] {
    const app = useApp();
    const redraw = useRedraw();
    const keys = sources.map((each) => each.key).join("\n");
    useEffect(() => {
        const ends = sources.map((each) => app.poller.watch(each.key, each.fetch, each.interval, redraw));
        return () => ends.forEach((end) => end());
    }, [keys]);
    return sources.map((each) => app.poller.get<Value>(each.key));
}

export function useFeed<Value>(source: Source<Value>): Feed<Value> {
    return useFeeds([source])[0]!;
}

export function useNetwork(): Network | undefined {
    return useFeed(useApp().network()).value;
}

/** The routers that the page is about: the one in its address, or all. */
export function useScope(): { targets: Target[]; chosen: string; network: Network | undefined } {
    const network = useNetwork();
    const chosen = useRoute().query.get("router") ?? "";
    const all = network?.targets ?? [];
    const one = all.filter((each) => each.id === chosen);
    if (chosen === "*") return { targets: all, chosen, network };
    return { targets: one.length ? one : all.slice(0, 1), chosen: one.length ? chosen : "", network };
}

export function useRoute(): Route {
    const [route, set] = useState(readRoute);
    useEffect(() => {
        const changed = (): void => set(readRoute());
        addEventListener("hashchange", changed);
        return () => removeEventListener("hashchange", changed);
    }, []);
    return route;
}

export function useConnection(): void {
    const app = useApp();
    const redraw = useRedraw();
    useEffect(() => app.onConnection(redraw), [app]);
}

/** Whether the connection is lost: what is shown is old. */
export function useStale(): boolean {
    useConnection();
    return useApp().client.state === "lost";
}

/** Something of the reader's that stays in the browser. */
export function useStored(name: string, initial: string): [string, (value: string) => void] {
    const [value, set] = useState(() => stored(name) ?? initial);
    return [value, (next) => {
        set(next);
        store(name, next);
    }];
}

// A browser may be told to keep nothing; then it is forgotten with the page.
export function stored(name: string): string | null {
    try {
        return localStorage.getItem(`sluice.${name}`);
    } catch {
        return null;
    }
}

export function store(name: string, value: string): void {
    try {
        localStorage.setItem(`sluice.${name}`, value);
    } catch {
        return;
    }
}
