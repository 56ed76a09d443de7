"""View of the network in `sluice top`: a row for each router, and those that do not answer."""

import time
from collections.abc import Iterable

from msgspec import Struct

from sluice.router.cli.client import ManagementClient, ManagementError, Row
from sluice.router.cli.errors import ToolError
from sluice.router.cli.options import MANAGEMENT, address
from sluice.router.cli.table import long_time, memory
from sluice.router.cli.top_line import BOLD, PLAIN, RED, YELLOW, Frame, Line
from sluice.router.cli.top_state import TopState
from sluice.router.cli.top_table import NAME, NUMBER, WORD, FittedTable

_COLUMNS = (
    ("router", NAME), ("mode", WORD), ("version", WORD), ("up", WORD), ("conns", NUMBER), ("links", NUMBER),
    ("in/s", NUMBER), ("out/s", NUMBER), ("transit/s", NUMBER), ("stuck", NUMBER), ("blocked", NUMBER),
    ("memory", NUMBER), ("next hop", NAME), ("cost", NUMBER),
)  # fmt: skip
_RATES = ("deliveriesIngress", "deliveriesEgress", "deliveriesTransit")


class NetworkSample(Struct, frozen=True):
    """State of all routers of a network at one time, by id. `routers` has None for those that do not answer."""

    at: float
    nodes: dict[str, Row]
    routers: dict[str, Row | None]


def take_network_sample(client: ManagementClient) -> NetworkSample:
    """Ask each router that the connected one knows, one after the other. Raises ToolError and ManagementError."""
    nodes = {str(row["id"]): row for row in client.rows("router.node", at=MANAGEMENT)}
    routers: dict[str, Row | None] = {}
    for name in nodes:
        try:
            routers[name] = client.rows("router", at=address("", name, None))[0]
        except (ToolError, ManagementError, LookupError):
            routers[name] = None
    if not nodes:  # a router without a network
        alone = client.rows("router")[0]
        routers[str(alone["id"])] = alone
    return NetworkSample(time.monotonic(), nodes, routers)


def render_network(now: NetworkSample, before: NetworkSample, rows: int, state: TopState) -> Frame:
    """Return the view, with rates since the previous sample."""
    seconds = now.at - before.at
    table = FittedTable("Routers of the network", _COLUMNS)
    names = [name for name in sorted(now.routers) if state.matches(name)]
    for name in names[state.offset : state.offset + max(rows, 1) * 2]:
        router, node = now.routers[name], now.nodes.get(name, {})
        place = (str(node.get("nextHop") or "-"), str(node.get("cost") or "-"))
        if router is None:
            table.add_row(name, "no answer", *[""] * 10, *place, style=RED)
            continue
        speeds = _speeds(router, before.routers.get(name), seconds)
        stuck, blocked = router.get("deliveriesStuck") or 0, router.get("linksBlocked") or 0
        table.add_row(
            name,
            str(router["mode"]),
            str(router["version"]),
            long_time(router.get("uptimeSeconds") or 0),
            f"{router['connectionCount']:,}",
            f"{router['linkCount']:,}",
            *speeds,
            f"{stuck:,}",
            f"{blocked:,}",
            memory(router.get("memoryUsage")),
            *place,
            style=YELLOW if stuck or blocked else PLAIN,
        )
    silent = sum(router is None for router in now.routers.values())
    head = Line(f"routers: {len(now.routers)}, without an answer: {silent}", RED if silent else BOLD)
    return [head, table]


def _speeds(router: Row, before: Row | None, seconds: float) -> Iterable[str]:
    """Yield the rates of deliveries."""
    for column in _RATES:
        if before is None or seconds <= 0:
            yield "-"
        else:
            yield f"{max((router[column] or 0) - (before[column] or 0), 0) / seconds:,.0f}"
