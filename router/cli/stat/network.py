"""`qdstat -n`, `--autolinks` and `--linkroutes`: show remote routers, auto links and link routes."""

import time
from typing import Any

from sluice.router.cli.client import Row
from sluice.router.cli.stat.context import StatContext, sorted_by
from sluice.router.cli.table import Cells

_AUTO_LINK_HEADS = ["addr", "dir", "phs", "extAddr", "link", "status", "lastErr"]
_AUTO_LINK_COLUMNS = ["address", "direction", "phase", "externalAddress", "linkRef", "operStatus", "lastError"]
_EXTERNAL_PREFIXES = [("add-ext-prefix", "addExternalPrefix"), ("del-ext-prefix", "delExternalPrefix")]
_LINK_ROUTE_COLUMNS = [
    "prefix", "pattern", "direction", "distribution", "operStatus", *(column for _, column in _EXTERNAL_PREFIXES),
]  # fmt: skip


def show_nodes(context: StatContext) -> None:
    """Show the routers of the network, and the next hop to each."""
    nodes = context.rows("router.node", limited=True)
    if not nodes:
        context.display.line("Router is Standalone - No Router List")
        return
    heads = ["router-id", "next-hop", "link"]
    heads += ["ver", "cost", "neighbors", "valid-origins"] if context.verbose else []
    rows: list[Cells] = [_node_cells(node, context.verbose) for node in nodes]
    title = "Routers in the Network"
    changed = max(float(node["lastTopoChange"] or 0) for node in nodes)
    if changed:
        context.display.line(title)
        title = time.strftime("Last Topology Change: %A %b %d %H:%M:%S %Y GMT", time.gmtime(changed))
    context.table(title, heads, sorted_by(heads, rows, "router-id"))


def _node_cells(node: Row, verbose: bool) -> list[Any]:
    next_hop = node["nextHop"]
    cells = [node["id"], "-", node["routerLink"]] if next_hop is None else [node["id"], next_hop, "-"]
    if verbose:
        cells += [node["protocolVersion"], node["cost"] or None, _list(node["linkState"]), _list(node["validOrigins"])]
    return cells


def _list(items: Any) -> str:
    return str([str(item) for item in items or []])


def show_auto_links(context: StatContext) -> None:
    """Show the auto links."""
    links = context.rows("router.config.autoLink", _AUTO_LINK_COLUMNS, limited=True)
    rows: list[Cells] = [[link[column] for column in _AUTO_LINK_COLUMNS] for link in links]
    context.table("AutoLinks", _AUTO_LINK_HEADS, sorted_by(_AUTO_LINK_HEADS, rows, "addr"))
    if not rows:
        context.display.line("No AutoLinks found")


def show_link_routes(context: StatContext) -> None:
    """Show the link routes."""
    routes = context.rows("router.config.linkRoute", _LINK_ROUTE_COLUMNS, limited=True)
    more = _EXTERNAL_PREFIXES if any(route[column] for route in routes for _, column in _EXTERNAL_PREFIXES) else []
    heads = ["address", "dir", "distrib", "status", *(head for head, _ in more)]
    rows: list[Cells] = [
        [
            route["prefix"] or route["pattern"],
            route["direction"],
            route["distribution"],
            route["operStatus"],
            *(route[column] for _, column in more),
        ]
        for route in routes
    ]
    context.table("Link Routes", heads, sorted_by(heads, rows, "address"))
    if not rows:
        context.display.line("No Link Routes found")
