"""Connections that are closed once their deliveries are settled."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from sluice.router.config.roles import BETWEEN_ROUTERS
from sluice.router.control.messages import WithdrawCredit
from sluice.supervisor.addresses.record import AddressRecord, consumer_number
from sluice.supervisor.composition import RouterCore
from sluice.supervisor.connections.connections import DATA, RegisteredConnection, RegisteredLink

# Seconds between the withdrawal of an address from other routers and the removal of its last consumers. Messages that
# other routers have sent by then still find the consumers.
WITHDRAWAL_SECONDS: Final = 1.0
# Least seconds for which nothing may have moved on a connection before it counts as settled. Deliveries that the peer
# sent before it read the flow that withdraws its credit have arrived by then, unless it is more than this behind.
QUIET_SECONDS: Final = 1.0


class LinkCounters(Protocol):
    """Counters of links, by worker and slot."""

    def link_counters(self, worker: int, index: int) -> Mapping[str, Any] | None:
        """Return the counters of a link; None: the link has ended."""
        ...


class LeavingConnection:
    """Connection whose producers have no credit and whose consumers leave their addresses. Owner: the drain."""

    def __init__(self, connection: RegisteredConnection, now: float) -> None:
        self.connection: Final = connection
        self.removes_at = now  # time at which its consumers leave their addresses
        self.removed = False
        self.epoch = 0  # epoch without its consumers
        self.quiet_since = now
        self.deliveries = -1  # deliveries of all its links at the last check


class Leaving:
    """Steps by which connections leave the router. Owner: the drain."""

    def __init__(self, core: RouterCore, counters: LinkCounters) -> None:
        self._core: Final = core
        self._counters: Final = counters
        self._producers: dict[str, list[RegisteredLink]] | None = None  # by key of their address
        self._numbers: Final[set[int]] = set()  # numbers of all consumers of leaving connections

    def begin(self, connection: RegisteredConnection, now: float) -> LeavingConnection:
        """Withdraw the credit of a connection's producers, and that of all producers of addresses whose last consumers
        it has."""
        self._core.connections.send(connection, WithdrawCredit(connection.number))
        leaving = LeavingConnection(connection, now)
        consumers = list(_consumers(connection))
        self._numbers.update(consumer_number(link.worker, link.slot, link.generation) for link in consumers)
        for link in consumers:
            assert link.record is not None
            if self._numbers.issuperset(link.record.consumers or ()):
                leaving.removes_at = max(leaving.removes_at, now + self._withdraw_address(link.record))
        return leaving

    def leave_network(self) -> None:
        """Let no messages pass between clients of this router and other routers, before those are disconnected.

        Producers whose messages stay in this router keep their credit.
        """
        core = self._core
        if core.routers is not None:
            for record in core.table.records.values():
                if record.consumers:
                    core.routers.withdraw(record)
        for link in core.links.by_identity.values():
            if not link.consumer and link.connection.origin.role not in BETWEEN_ROUTERS and self._leads_elsewhere(link):
                core.connections.send(link.connection, WithdrawCredit(link.connection.number, link.number))

    def _leads_elsewhere(self, link: RegisteredLink) -> bool:
        """Return whether messages of a producer may go to another router."""
        return link.record is None or bool(link.record.remotes) or self._core.uplink is not None

    def _withdraw_address(self, record: AddressRecord) -> float:
        """Let nobody send to an address whose last consumers are leaving. Return the seconds until they may leave."""
        core, seconds = self._core, 0.0
        if not record.remotes:
            for link in self._producers_of(record):
                core.connections.send(link.connection, WithdrawCredit(link.connection.number, link.number))
                seconds = QUIET_SECONDS
        if core.routers is not None and core.routers.reachable:
            core.routers.withdraw(record)
            seconds = WITHDRAWAL_SECONDS
        return seconds

    def _producers_of(self, record: AddressRecord) -> list[RegisteredLink]:
        """Return the producers of an address that were attached before the first connection left."""
        if self._producers is None:
            self._producers = {}
            for link in self._core.links.by_identity.values():
                if link.record is not None and not link.consumer:
                    self._producers.setdefault(link.record.key, []).append(link)
        return [link for link in self._producers.get(record.key, ()) if not link.closed]

    def settled(self, leaving: LeavingConnection, now: float) -> bool:
        """Return whether a connection has nothing in flight and nothing queued, and no messages are sent to it."""
        if not leaving.removed:
            if now < leaving.removes_at:
                return False
            self._remove_consumers(leaving)
        if self._core.journal.settled < leaving.epoch:
            leaving.quiet_since = now
            return False
        unsettled, deliveries = self._count(leaving.connection)
        if deliveries != leaving.deliveries:
            leaving.deliveries, leaving.quiet_since = deliveries, now
        return not unsettled and now >= leaving.quiet_since + QUIET_SECONDS

    def unsettled(self, connection: RegisteredConnection) -> int:
        """Return the number of deliveries that are queued for a connection or not settled."""
        return self._count(connection)[0]

    def _remove_consumers(self, leaving: LeavingConnection) -> None:
        core = self._core
        for link in _consumers(leaving.connection):
            if core.edges is not None:
                core.edges.standby.dropped(link)
            core.links.withdraw_consumer(link)
        leaving.removed = True
        leaving.epoch = core.journal.pending_epoch
        core.journal.await_all(leaving.epoch)

    def _count(self, connection: RegisteredConnection) -> tuple[int, int]:
        """Return the number of unsettled and queued deliveries, and that of all messages of clients so far."""
        unsettled = deliveries = 0
        for link in connection.links.values():
            counters = self._counters.link_counters(link.worker, link.slot)
            if counters is not None:
                unsettled += counters["held"] + counters["undelivered"]
                deliveries += counters["deliveries"] if _carries_messages(link) else 0
        return unsettled, deliveries


def _consumers(connection: RegisteredConnection) -> "filter[RegisteredLink]":
    """Return the links to which messages for an address are sent."""
    return filter(_is_bound, connection.links.values())


def _carries_messages(link: RegisteredLink) -> bool:
    """Return True for a link with messages of clients; routers send each other messages of their own all the time."""
    if link.kind == DATA or link.record is not None or link.routed_to is not None:
        return True
    return link.owner is None and link.connection.origin.role not in BETWEEN_ROUTERS


def _is_bound(link: RegisteredLink) -> bool:
    return link.consumer and link.record is not None and not link.waits
