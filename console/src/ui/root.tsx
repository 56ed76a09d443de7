// The page to log in, or the page that the reader is at.
import { render } from "preact";
import type { JSX } from "preact";
import type { App } from "../app.ts";
import { PAGES } from "../pages/index.ts";
import { AppContext, stored, useApp, useConnection, useRoute } from "./hooks.ts";
import { Login } from "./login.tsx";
import { Shell } from "./shell.tsx";
import { showVisibly } from "./visible.ts";
import "../style.css";

function Root(): JSX.Element {
    const { client } = useApp();
    useConnection();
    const route = useRoute();
    if (client.state === "login") return <Login />;
    if (client.generation === 0) {
        return (
            <main class="login" aria-busy="true">
                <p role="status">{client.state === "lost" ? `No connection to ${location.host}; trying again …` : "Connecting …"}</p>
            </main>
        );
    }
    const page = PAGES.find((each) => each.name === route.page) ?? PAGES[0]!;
    return <Shell><page.View key={`${page.name}/${route.argument}`} /></Shell>;
}

export function show(app: App): void {
    showVisibly();
    const theme = stored("theme") ?? "auto";
    const dark = theme === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : theme === "dark";
    document.documentElement.dataset["theme"] = dark ? "dark" : "light";
    render(<AppContext.Provider value={app}><Root /></AppContext.Provider>, document.getElementById("app")!);
}
