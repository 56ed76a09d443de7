"""`qdstat -g`: show statistics of the whole router."""

from collections.abc import Callable
from typing import Any

from sluice.router.cli.stat.context import StatContext
from sluice.router.cli.table import Cells, long_time, memory


def _plain(value: Any) -> Any:
    return value


# Columns that are shown only if the router has them. A block of columns is shown if the router has its first column.
_OPTIONAL = {"workerThreads", "uptimeSeconds", "memoryUsage", "linksBlocked"}
_BLOCK = "presettledDeliveries"

_ROWS: list[tuple[str, str, Callable[[Any], Any]]] = [
    ("Version", "version", _plain),
    ("Mode", "mode", _plain),
    ("Router Id", "id", _plain),
    ("Worker Threads", "workerThreads", _plain),
    ("Uptime", "uptimeSeconds", long_time),
    ("VmSize", "memoryUsage", memory),
    ("Area", "area", _plain),
    ("Link Routes", "linkRouteCount", _plain),
    ("Auto Links", "autoLinkCount", _plain),
    ("Links", "linkCount", _plain),
    ("Nodes", "nodeCount", _plain),
    ("Addresses", "addrCount", _plain),
    ("Connections", "connectionCount", _plain),
    ("Presettled Count", _BLOCK, _plain),
    ("Dropped Presettled Count", "droppedPresettledDeliveries", _plain),
    ("Accepted Count", "acceptedDeliveries", _plain),
    ("Rejected Count", "rejectedDeliveries", _plain),
    ("Released Count", "releasedDeliveries", _plain),
    ("Modified Count", "modifiedDeliveries", _plain),
    ("Deliveries Delayed > 1sec", "deliveriesDelayed1Sec", _plain),
    ("Deliveries Delayed > 10sec", "deliveriesDelayed10Sec", _plain),
    ("Deliveries Stuck > 10sec", "deliveriesStuck", _plain),
    ("Deliveries to Fallback", "deliveriesRedirectedToFallback", _plain),
    ("Links Blocked", "linksBlocked", _plain),
    ("Ingress Count", "deliveriesIngress", _plain),
    ("Egress Count", "deliveriesEgress", _plain),
    ("Transit Count", "deliveriesTransit", _plain),
    ("Deliveries from Route Container", "deliveriesIngressRouteContainer", _plain),
    ("Deliveries to Route Container", "deliveriesEgressRouteContainer", _plain),
]


def show(context: StatContext) -> None:
    """Show the router's row, with one column per line."""
    router = context.router()
    rows: list[Cells] = []
    for title, column, text in _ROWS:
        if column == _BLOCK and column not in router:
            break
        if column in _OPTIONAL and column not in router:
            continue
        value = router[column]
        rows.append((title, None if value is None else text(value)))
    context.table("Router Statistics", ["attr", "value"], rows)
