// What is around each page: navigation, state of the connection, light and dark.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { useApp, useConnection, useFeed, useNetwork, useRoute, useStored } from "./hooks.ts";
import type { Network } from "../app.ts";
import type { Alternative } from "../data/alternatives.ts";
import { clock } from "../data/format.ts";
import { PAGES } from "../pages/index.ts";
import { Recorder } from "./recorder.tsx";
import { link } from "./route.ts";

export function Shell({ children }: { children: ComponentChildren }): JSX.Element {
    const { client } = useApp();
    useConnection();
    const network = useNetwork();
    useFeed(useApp().alternatives(network));
    const route = useRoute();
    const [open, setOpen] = useState(false);
    useEffect(() => setOpen(false), [route]);
    useKeys();
    const router = route.query.get("router") ?? "";
    const groups = [...new Set(PAGES.filter((page) => page.group).map((page) => page.group!))];
    return (
        <div class={`shell${open ? " open" : ""}`}>
            <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to the page</a>
            <header class="top">
                <button type="button" class="menu" aria-label="Menu" aria-expanded={open} onClick={() => setOpen(!open)}>☰</button>
                <a class="brand" href="#/overview"><img src="icon.svg" alt="" width="26" height="26" /><b>Sluice</b></a>
                <span class="where" title="The router that this page is connected to">{network?.own ?? client.router}</span>
            </header>
            <nav aria-label="Pages">
                {groups.map((group) => (
                    <div class="group" key={group}>
                        <h2>{group}</h2>
                        {PAGES.filter((page) => page.group === group).map((page) => (
                            <a
                                key={page.name} href={link(page.name, page.scoped ? { router } : {})}
                                aria-current={route.page === page.name ? "page" : undefined}
                            >
                                {page.title}
                            </a>
                        ))}
                    </div>
                ))}
                <div class="foot">
                    <Theme />
                    {client.user !== null && (
                        <p>
                            <span class="user" title={client.user}>{client.user}</span>
                            <button type="button" onClick={() => client.logOut()}>Log out</button>
                        </p>
                    )}
                </div>
            </nav>
            <div class="content">
                {client.state === "lost" && <Lost network={network} />}
                <main id="main" tabIndex={-1} class={client.state === "lost" ? "stale" : undefined}>{children}</main>
            </div>
            <Recorder />
        </div>
    );
}

/** The connection is lost: how old the page is, and which other routers have a console. */
function Lost({ network }: { network: Network | undefined }): JSX.Element {
    const app = useApp();
    const others = app.poller.get<Alternative[]>(app.alternatives(network).key).value ?? [];
    const since = app.lostAt === null ? "" : `, from ${clock(app.lostAt)}`;
    return (
        <div class="lost" role="alert">
            No connection to {location.host}{app.client.reason && ` (${app.client.reason})`}. What you see is old{since}; the
            page connects again by itself.
            {others.length > 0 && (
                <span class="others"> Other routers of the network: {others.map(({ router, url }) => <a key={router} href={url + location.hash}>{router}</a>)}</span>
            )}
        </div>
    );
}

function Theme(): JSX.Element {
    const [theme, set] = useStored("theme", "auto");
    useEffect(() => {
        const dark = matchMedia("(prefers-color-scheme: dark)");
        const apply = (): void => {
            document.documentElement.dataset["theme"] = theme === "auto" ? (dark.matches ? "dark" : "light") : theme;
        };
        apply();
        dark.addEventListener("change", apply);
        return () => dark.removeEventListener("change", apply);
    }, [theme]);
    return (
        <label class="theme">
            <span>Colours</span>
            <select value={theme} onChange={(event) => set(event.currentTarget.value)}>
                <option value="auto">as the system</option>
                <option value="light">light</option>
                <option value="dark">dark</option>
            </select>
        </label>
    );
}

/** `/` goes to the filter; `g` and a letter to a page. */
function useKeys(): void {
    useEffect(() => {
        let went = 0;
        const onKey = (event: KeyboardEvent): void => {
            const at = event.target as HTMLElement;
            if (/^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
            if (event.key === "/") {
                const field = document.querySelector<HTMLInputElement>("input.filter");
                if (field === null) return;
                field.focus();
                event.preventDefault();
            } else if (event.key === "g") {
                went = event.timeStamp;
            } else if (event.timeStamp - went < 1500) {
                const page = PAGES.find((each) => each.key === event.key);
                if (page !== undefined) location.hash = link(page.name);
                went = 0;
            }
        };
        addEventListener("keydown", onKey);
        return () => removeEventListener("keydown", onKey);
    }, []);
}
