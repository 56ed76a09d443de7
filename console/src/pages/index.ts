// The pages, in the order of the navigation.
import type { ComponentType } from "preact";
import { Addresses } from "./addresses.tsx";
import { Charts } from "./charts.tsx";
import { Connections } from "./connections.tsx";
import { Entities } from "./entities.tsx";
import { Explain } from "./explain.tsx";
import { Links } from "./links.tsx";
import { LogPage } from "./log.tsx";
import { Overview } from "./overview.tsx";
import { Reload } from "./reload.tsx";
import { AutoLinks, LinkRoutes, Vhosts } from "./tables.tsx";
import { Topology } from "./topology.tsx";
import { Trace } from "./trace.tsx";
import { Workers } from "./workers.tsx";

export interface Page {
    name: string;
    title: string;
    View: ComponentType;
    /** Part of the navigation; pages without one are reached from others. */
    group?: string;
    /** Key after `g`. */
    key?: string;
    /** Whether it is about the chosen router. */
    scoped?: boolean;
}

export const PAGES: Page[] = [
    { name: "overview", title: "Overview", View: Overview, group: "Network", key: "o" },
    { name: "topology", title: "Topology", View: Topology, group: "Network", key: "t" },
    { name: "charts", title: "Charts", View: Charts, group: "Network", key: "h" },
    { name: "addresses", title: "Addresses", View: Addresses, group: "Messages", key: "a", scoped: true },
    { name: "links", title: "Links", View: Links, group: "Messages", key: "l", scoped: true },
    { name: "connections", title: "Connections", View: Connections, group: "Messages", key: "c", scoped: true },
    { name: "explain", title: "Explain", View: Explain, group: "Messages", key: "e", scoped: true },
    { name: "linkroutes", title: "Link routes", View: LinkRoutes, group: "Brokers", key: "r", scoped: true },
    { name: "autolinks", title: "Auto links", View: AutoLinks, group: "Brokers", key: "u", scoped: true },
    { name: "workers", title: "Workers", View: Workers, group: "Router", key: "w", scoped: true },
    { name: "vhosts", title: "Vhosts", View: Vhosts, group: "Router", key: "v", scoped: true },
    { name: "entities", title: "Schema and entities", View: Entities, group: "Router", key: "s", scoped: true },
    { name: "reload", title: "Reload", View: Reload, group: "Router", scoped: true },
    { name: "log", title: "Log", View: LogPage, group: "Router", key: "m", scoped: true },
    { name: "trace", title: "Frames", View: Trace, scoped: true },
];
