"""Type router and its single row (management.md 6.1)."""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from sluice.supervisor.composition import RouterCore
from sluice.supervisor.management import values
from sluice.supervisor.management.context import AgentContext
from sluice.supervisor.management.core_type import PREFIX, Column, CoreType, constant, forbidden
from sluice.supervisor.management.query_rows import table
from sluice.supervisor.management.request import Request
from sluice.supervisor.management.response import FORBIDDEN, Response, StatusError

# Counter columns, and their names in the totals of shared memory.
COUNTERS: Final = {
    "presettledDeliveries": "presettled",
    "droppedPresettledDeliveries": "dropped_presettled",
    "acceptedDeliveries": "accepted",
    "rejectedDeliveries": "rejected",
    "releasedDeliveries": "released",
    "modifiedDeliveries": "modified",
    "deliveriesDelayed1Sec": "delayed_1s",
    "deliveriesDelayed10Sec": "delayed_10s",
    "deliveriesStuck": "stuck",
    "deliveriesIngress": "ingress",
    "deliveriesEgress": "egress",
    "deliveriesTransit": "transit",
}
_PAGE: Final = 4096


class RouterCoreRow:
    """Router with its present totals."""

    __slots__ = ("context", "core", "router", "totals")

    def __init__(self, context: AgentContext) -> None:
        self.context = context
        self.core = context.core
        self.router = context.changes.configuration.router
        self.totals: dict[str, Any] = context.region.router_totals()


def _counter(name: str) -> Column:
    return lambda row: values.ulong(row.totals[name])


def _memory(row: RouterCoreRow) -> bytes:
    size = memory_used(row.core)
    return values.NULL if size is None else values.ulong(size)


def uptime(core: RouterCore) -> int:
    """Return the whole seconds since the start."""
    return int(time.monotonic() - core.started_at)


def memory_used(core: RouterCore) -> int | None:
    """Return the memory of all processes of the router in octets, with shared pages counted once; None if unknown."""
    own = _pages("self")
    if own is None:
        return None
    workers = [_pages(worker.pid) for worker in core.workers.values()]
    return _PAGE * (own[0] + sum(resident - shared for resident, shared in filter(None, workers)))


def _pages(process: int | str) -> tuple[int, int] | None:
    """Return resident and shared pages of a process (proc(5), statm), or None if the process has ended."""
    try:
        fields = Path(f"/proc/{process}/statm").read_text("ascii").split()
    except OSError:
        return None
    return int(fields[1]), int(fields[2])


class RouterType(CoreType):
    """Type with this router as its only row."""

    name = PREFIX + "router"
    columns: ClassVar[Mapping[str, Column]] = {
        "name": lambda row: values.string(row.router.id),
        "identity": constant(values.string("1")),
        "id": lambda row: values.string(row.router.id),
        "type": constant(values.string(name)),
        "mode": lambda row: values.string(row.router.mode),
        "area": constant(values.string("0")),
        "version": lambda row: values.string(row.context.version),
        "metadata": lambda row: values.string(row.router.metadata),
        "addrCount": lambda row: values.ulong(row.core.addresses),
        "linkCount": lambda row: values.ulong(len(row.core.links.by_identity)),
        "nodeCount": lambda row: values.ulong(0 if row.core.routers is None else row.core.routers.count),
        "linkRouteCount": lambda row: values.ulong(len(row.core.link_routes)),
        "autoLinkCount": lambda row: values.ulong(len(row.core.auto_links)),
        "connectionCount": lambda row: values.ulong(len(row.core.connections.opened)),
        **{column: _counter(name) for column, name in COUNTERS.items()},
        "deliveriesIngressRouteContainer": _counter("ingress_container"),
        "deliveriesEgressRouteContainer": _counter("egress_container"),
        "deliveriesRedirectedToFallback": _counter("redirected"),
        "linksBlocked": lambda row: values.uint(row.totals["blocked"]),
        "uptimeSeconds": lambda row: values.uint(uptime(row.core)),
        "memoryUsage": _memory,
        "workerThreads": lambda row: values.int32(row.router.workers),
    }
    more: ClassVar[Mapping[str, Column]] = {
        "blockedLinkCount": columns["linksBlocked"],  # the name in the schema
        "deliveriesIngressEdge": _counter("ingress_edge"),
    }

    def rows(self) -> Iterable[RouterCoreRow]:
        """Return the only row."""
        return (RouterCoreRow(self.context),)

    def read(self, request: Request) -> Response:
        """Refuse the request as in 1.19: the row can only be queried."""
        return forbidden(request)

    def create(self, request: Request) -> Response:
        """Refuse the request: there is one router."""
        raise StatusError(FORBIDDEN, body=values.NULL)

    def delete(self, request: Request) -> Response:
        """Refuse the request: there is one router."""
        return forbidden(request)


class ConsoleCoreType(CoreType):
    """Type console, which never has rows (management.md 5.5 to 5.10)."""

    name = PREFIX + "console"
    columns: ClassVar[Mapping[str, Column]] = {}

    def query(self, request: Request) -> Any:
        """Refuse the request, with a table without columns and rows."""
        raise StatusError(FORBIDDEN, body=table([], []))

    def read(self, request: Request) -> Response:
        """Refuse the request."""
        return forbidden(request)

    def create(self, request: Request) -> Response:
        """Refuse the request."""
        raise StatusError(FORBIDDEN, body=values.NULL)

    def update(self, request: Request) -> Response:
        """Refuse the request."""
        raise StatusError(FORBIDDEN, body=values.NULL)

    def delete(self, request: Request) -> Response:
        """Refuse the request."""
        return forbidden(request)
