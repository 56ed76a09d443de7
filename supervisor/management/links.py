"""Type router.link: one row for each attached link (management.md 6.2)."""

import time
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from sluice.router.amqp import codec
from sluice.router.config.roles import INTER_ROUTER
from sluice.supervisor.composition import RouterCore
from sluice.supervisor.connections.connections import RegisteredLink
from sluice.supervisor.management import values
from sluice.supervisor.management.core_type import PREFIX, Column, CoreType, constant
from sluice.supervisor.management.request import Request
from sluice.supervisor.management.response import BAD_REQUEST, NOT_FOUND, Response, StatusError
from sluice.supervisor.management.stalls import LinkStall, find_stall

ROUTERS: Final = 128  # entries of the ingress histogram: one for each router that a network may have
_IN: Final = values.string("in")
_OUT: Final = values.string("out")
_UP: Final = values.string("up")
_DOWN: Final = values.string("down")


class LinkCoreRow:
    """Link with its present counters."""

    __slots__ = ("core", "counters", "link", "now")

    def __init__(self, core: RouterCore, link: RegisteredLink, counters: dict[str, Any], now: int) -> None:
        self.core = core
        self.link = link
        self.counters = counters
        self.now = now  # CLOCK_MONOTONIC in ns

    @property
    def stall(self) -> LinkStall | None:
        return find_stall(self.core, self.link, self.counters, self.now)


def _counter(name: str) -> Column:
    return lambda row: values.ulong(row.counters[name])


def _histogram(row: LinkCoreRow) -> bytes:
    """Return the finished deliveries of an outgoing link by ingress router. All are counted for this router."""
    if not row.link.consumer or row.link.connection.origin.role == INTER_ROUTER:
        return values.NULL
    return codec.encode_list([values.ulong(row.counters["finished"]), *_OTHER_ROUTERS])


_OTHER_ROUTERS: Final = (values.ulong(0),) * (ROUTERS - 1)


def _owning_address(row: LinkCoreRow) -> bytes:
    link = row.link
    if link.routed_to is not None:
        return values.string(f"M0{link.routed_to}")
    return values.string(link.owner if link.record is None else link.record.key)


def _zero_credit(row: LinkCoreRow) -> bytes:
    since = row.counters["blocked_since"]
    return values.uint((row.now - since) // 1_000_000_000 if since else 0)


def _stall(row: LinkCoreRow) -> bytes:
    stall = row.stall
    return values.string(None if stall is None else stall.reason)


def _stall_seconds(row: LinkCoreRow) -> bytes:
    stall = row.stall
    return values.uint(0 if stall is None else int(stall.seconds))


def _stall_text(row: LinkCoreRow) -> bytes:
    stall = row.stall
    return values.string(None if stall is None else stall.text)


class LinkCoreType(CoreType):
    """Links of all connections, in order of attach."""

    name = PREFIX + "router.link"
    columns: ClassVar[Mapping[str, Column]] = {
        "name": lambda row: values.string(row.link.name),
        "identity": lambda row: values.string(str(row.link.identity)),
        "type": constant(values.string(name)),
        "linkName": lambda row: values.string(row.link.name),
        "linkType": lambda row: values.string(row.link.kind),
        "linkDir": lambda row: _OUT if row.link.consumer else _IN,
        "owningAddr": _owning_address,
        "capacity": lambda row: values.uint(row.counters["capacity"]),
        "peer": lambda row: values.string(None if row.link.other is None else str(row.link.other)),
        "undeliveredCount": _counter("undelivered"),
        "unsettledCount": _counter("unsettled"),
        "deliveryCount": _counter("deliveries"),
        "connectionId": lambda row: values.string(str(row.link.connection.number)),
        "adminStatus": constant(values.string("enabled")),
        "operStatus": lambda row: _UP if row.link.up else _DOWN,
        "presettledCount": _counter("presettled"),
        "droppedPresettledCount": _counter("dropped_presettled"),
        "acceptedCount": _counter("accepted"),
        "rejectedCount": _counter("rejected"),
        "releasedCount": _counter("released"),
        "modifiedCount": _counter("modified"),
        "deliveriesDelayed1Sec": _counter("delayed_1s"),
        "deliveriesDelayed10Sec": _counter("delayed_10s"),
        "deliveriesStuck": _counter("stuck"),
        "ingressHistogram": _histogram,
        "priority": lambda row: values.uint(row.link.priority),
        "settleRate": lambda row: values.uint(round(row.counters["rate"])),
        "creditAvailable": lambda row: values.uint(row.counters["credit"]),
        "zeroCreditSeconds": _zero_credit,
    }
    more: ClassVar[Mapping[str, Column]] = {
        "stall": _stall,
        "stallSeconds": _stall_seconds,
        "stallText": _stall_text,
    }

    def rows(self) -> Iterable[RegisteredLink]:
        """Return all links."""
        return self.context.core.links.by_identity.values()

    def row(self, item: RegisteredLink) -> LinkCoreRow | None:
        """Return the row of a link, or None if the link is gone or its slot reused."""
        if item.closed:
            return None
        counters = self.context.region.link_counters(item.worker, item.slot)
        if counters is None or counters["generation"] != item.generation:
            return None
        return LinkCoreRow(self.context.core, item, counters, time.monotonic_ns())

    def find(self, identity: str | None, name: str | None) -> RegisteredLink:
        """Return the link with this number, otherwise the first with the name."""
        links = self.context.core.links.by_identity
        found: RegisteredLink | None = None
        if identity is not None:
            found = links.get(int(identity)) if identity.isascii() and identity.isdigit() else None
        elif name is not None:
            found = next((link for link in links.values() if link.name == name), None)
        else:
            raise StatusError(BAD_REQUEST)
        if found is None:
            raise StatusError(NOT_FOUND)
        return found

    def update(self, request: Request) -> Response:
        """Accept a change without effect, as 1.19 does (routing-semantics.md O-5)."""
        request.refuse_unknown(self.entity_type)
        body = request.body()
        if not isinstance(body, dict) or "adminStatus" not in body:
            raise StatusError(BAD_REQUEST)
        return self.read(request)
