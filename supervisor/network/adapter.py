"""Adapter between the engine of the routing protocol and the address table.

Does no input or output. The event loop calls `step` in each wake, and when `deadline` has come.

A router may announce a hundred thousand addresses at once. Such changes are applied in slices of TURN seconds, and in
epochs of at most ADDRESSES_AN_EPOCH changes. Each epoch waits until all workers have acknowledged the previous one,
because workers apply an epoch between two wakes. A changed path is always in the next epoch.
"""

import secrets
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

from sluice.router.addressing.address import CONTROL_KEYS, EDGE, FALLBACK_PHASE, MOBILE, ROUTER, key
from sluice.router.addressing.pattern import PatternError
from sluice.router.addressing.settings import (
    BALANCED,
    CLOSEST,
    DEFAULT_OVERFLOW,
    MULTICAST,
    UNAVAILABLE,
    AddressSetting,
)
from sluice.router.config.entities import RouterConfig
from sluice.router.control.ops import Op, RadiusOp, RouterGone
from sluice.router.log import ERROR, WARNING, ProcessLog
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.addresses.settings import Settings
from sluice.supervisor.addresses.table import AddressTable, TableFullError
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.linkroutes.local import LinkAddress
from sluice.supervisor.linkroutes.remote import CLASSES as LINK_ROUTE_CLASSES
from sluice.supervisor.linkroutes.remote import RemoteLinkRoutes
from sluice.supervisor.network.absence import AbsentRouters, RemoteRouter
from sluice.supervisor.network.protocol.engine import Engine
from sluice.supervisor.network.protocol.outputs import (
    KeysChanged,
    NeighbourSynced,
    PathChanged,
    RadiusChanged,
    RouterAdded,
    RouterRemoved,
    RouterRow,
    Unreachable,
)
from sluice.supervisor.network.protocol.timers import Timers
from sluice.supervisor.subsystem import Subsystem

TURN: Final = 0.002  # seconds for changes of addresses before other events are handled
ADDRESSES_AN_EPOCH: Final = 256
SYNC_LIMIT: Final = 2.0  # Timers.sync_limit if messages may wait
AWAITED_LONGER: Final = 5  # seconds for which the link state of a router is kept after the wait for it

# Numbers of treatments in the protocol (inter-router.md 1). Any other number leaves the treatment open.
HINTS: Final = {MULTICAST: 1, CLOSEST: 2, BALANCED: 3}
LINK_BALANCED: Final = 4
TREATMENTS: Final = {0: MULTICAST, 1: MULTICAST, 2: CLOSEST, 3: BALANCED}
# In-process mobile addresses that each router has.
MANAGEMENT: Final = "$management"
_SERVICES: Final = "_$qd."

_PHASES: Final[Mapping[str, int | str]] = {
    **{str(number): number for number in range(10)},
    FALLBACK_PHASE: FALLBACK_PHASE,
}


class ControlLinks(Protocol):
    """Interface to inter-router connections."""

    def send_control(self, conn: int, octets: bytes) -> object:
        """Send a message on the control link of a connection."""

    def known(self, router_id: str, index: int | None) -> None:
        """Record the index of a router; None: the router is removed."""


class Routers(Subsystem):
    """All other routers. Owner: the core."""

    def __init__(
        self,
        config: RouterConfig,
        table: AddressTable,
        journal: Journal,
        settings: Settings,
        links: ControlLinks,
        absent: AbsentRouters,
        log: ProcessLog,
        now: float | None = None,
    ) -> None:
        self._table = table
        self._journal = journal
        self._links = links
        self._absent = absent
        self._settings = settings
        self._log = log
        # Nothing is sent before the second of the instance: a router that restarts within a second must not use the
        # instance of the previous process (inter-router.md 1, instance).
        wall, self._clock = time.time(), time.monotonic() if now is None else now
        self._wall = wall
        self.instance: Final = int(wall) + 1
        self._begins = self._clock + self.instance - wall
        process = secrets.randbits(62) | 1
        self.engine: Final = Engine(config.id, self.instance, timers(config), self._clock, process=process)
        self.link_routes: Final = RemoteLinkRoutes()
        self._bits: dict[int, int] = {}  # bit of each inter-router connection: the lowest free one at its start
        self._present: dict[int, RemoteRouter] = {}  # by index, as the engine has them
        absent.join(self._present)
        self._announced: dict[int, RemoteRouter] = {}  # by index, as workers have them
        self._radius = 0
        self._work: deque[Iterator[None]] = deque()  # waiting changes, executed step by step
        self._sent = 0  # epoch of the last applied slice
        self._changes = 0  # number of path changes since the start
        self.messages_received = 0  # number of protocol messages since the start
        self.messages_sent = 0
        self._full = False  # the table was full, and this has been logged
        # Default setting with each treatment that others may announce, and the default setting that they were derived
        # from.
        self._hinted: dict[str, AddressSetting] = {}
        self._hinted_default: AddressSetting | None = None
        for record_key in CONTROL_KEYS:
            record = table.create(record_key, MULTICAST, None, DEFAULT_OVERFLOW)
            record.fixed = True
            table.hold(record)
        table.watch_local(self._local_changed)

    # Inter-router connections

    def link_up(
        self, connection: int, cost: int, ours: bool, now: float | None = None, *, only: str | None = None
    ) -> None:
        """Start using a connection whose control link is attached. ours: the peer is Sluice. only: see the engine."""
        if connection not in self._bits:
            taken = set(self._bits.values())
            self._bits[connection] = next(bit for bit in range(len(taken) + 1) if bit not in taken)
        self.engine.link_up(connection, cost, ours, _now(now), only)

    def link_down(self, connection: int, now: float | None = None) -> None:
        """Stop using a connection whose control link is detached."""
        self._bits.pop(connection, None)
        self.engine.link_down(connection, _now(now))

    def received(self, connection: int, octets: bytes, now: float | None = None) -> None:
        """Pass a message of a connection to the engine."""
        self.messages_received += 1
        self.engine.receive(connection, octets, _now(now))

    def drain(self, now: float | None = None) -> None:
        """Let other routers avoid paths through this one, because it is about to exit."""
        self.engine.drain(_now(now))

    # Local addresses

    def _local_changed(self, record: AddressRecord) -> None:
        """Announce an address that got its first local consumer, or withdraw one that lost its last.

        Other routers are notified when all workers have the consumer. A worker without it would release their
        deliveries.
        """
        if record.key[0] == EDGE:
            pass
        elif record.key[0] != MOBILE or record.key[2:] == MANAGEMENT or record.key.startswith(_SERVICES, 2):
            return
        if record.local:
            self._journal.call_when_acknowledged(lambda: self._announce(record), self._journal.next_epoch)
        else:
            self.engine.withdraw(record.key, _now(None))

    def _announce(self, record: AddressRecord) -> None:
        if record.local:
            self.engine.announce(record.key, HINTS.get(record.treatment, HINTS[BALANCED]), _now(None))

    def withdraw(self, record: AddressRecord) -> None:
        """Withdraw an address whose last consumers are about to be removed, so that no messages are under way then."""
        self.engine.withdraw(record.key, _now(None))

    def link_address_changed(self, address: LinkAddress) -> None:
        """Announce a link-route address that got its first container, or withdraw one that lost its last.

        brokers-and-edge.md LR-6.
        """
        if address.connections:
            self.engine.announce(address.key, LINK_BALANCED, _now(None))
        else:
            self.engine.withdraw(address.key, _now(None))

    # Other routers, for management and link routes

    @property
    def count(self) -> int:
        """Return the number of other known routers."""
        return len(self._present)

    @property
    def reachable(self) -> int:
        """Return the number of other reachable routers."""
        return sum(bool(router.links) for router in self._present.values())

    def reachable_ids(self) -> list[str]:
        """Return the ids of all other reachable routers."""
        return [router.id for router in self._present.values() if router.links]

    @property
    def path_changes(self) -> int:
        """Return the number of paths found, changed or lost since the start."""
        return self._changes

    def rows(self) -> list[RouterRow]:
        """Return this router and all others."""
        return self.engine.routers()

    def ids(self) -> list[str]:
        """Return the ids of all other known routers, by index."""
        return [self._present[index].id for index in sorted(self._present)]

    def indexes(self) -> tuple[int, ...]:
        """Return the indexes of the routers that records may refer to."""
        return tuple(self._announced)

    def bit(self, connection: int) -> int | None:
        """Return the bit of an inter-router connection among the present ones (its mask bit in 1.19)."""
        return self._bits.get(connection)

    def since_1970(self, moment: float) -> int:
        """Return a time of the monotonic clock in seconds since 1970."""
        return int(self._wall + moment - self._clock)

    def id_of(self, index: int) -> str | None:
        """Return the id of the router with this index in records."""
        router = self._announced.get(index)
        return None if router is None else router.id

    def links_to(self, router_id: str) -> tuple[int, ...]:
        """Return the connections to the next hop of a router; empty if it is unknown or unreachable."""
        for router in self._present.values():
            if router.id == router_id:
                return router.links
        return ()

    def links_of(self, index: int) -> tuple[int, ...]:
        """Return the connections to the next hop of the router with this index in records."""
        router = self._announced.get(index)
        return () if router is None else router.links

    def commit(self, change: ConfigurationChange) -> None:
        if change.concerns(RouterConfig):
            self.engine.timers = timers(change.new.router)

    def snapshot_ops(self) -> list[Op]:
        """Return the ops for all routers. Their addresses follow with those of the table."""
        return [RadiusOp(self._radius), *(router.op() for router in self._announced.values())]

    # Time

    @property
    def deadline(self) -> float:
        return max(self.engine.deadline(), self._begins)

    @property
    def waiting(self) -> bool:
        return bool(self._work) and self._may_go_on()

    def _may_go_on(self) -> bool:
        return self._journal.settled >= self._sent

    def step(self, now: float | None = None) -> None:
        """Run the engine, send its messages, and apply changes."""
        now = _now(now)
        if now < self._begins:
            return
        engine = self.engine
        if engine.deadline() <= now:
            engine.tick(now)
        sends = engine.take_sends()
        self.messages_sent += len(sends)
        for send in sends:
            self._links.send_control(send.link, send.octets)
        for line in engine.take_log():
            if line.kind is None:
                self._log.write(line.level, line.module, line.text)
            else:
                self._log.repeated(line.level, line.module, line.kind, line.text)
        for change in engine.take_changes():
            self._take(change)
        if self._work and self._may_go_on():
            self._apply_some()

    def _take(self, change: Any) -> None:
        """Apply a change that the engine reports, or queue it."""
        match change:
            case RouterAdded():
                router = self._present[change.index] = RemoteRouter(change.index, change.id)
                self._links.known(change.id, change.index)
                self._work.append(self._add(router))
            case RouterRemoved():
                router = self._present.pop(change.index)
                router.gone = True
                self._links.known(router.id, None)
                self._path(router, (), 0, 0)
                self._work.append(self._remove(router))
            case PathChanged():
                self._path(self._present[change.index], change.links, change.cost, change.valid_origins)
            case Unreachable():
                router = self._present[change.index]
                self._path(router, (), router.cost, router.origins)
            case KeysChanged():
                self._work.append(self._change_keys(self._present[change.index], change.added, change.removed))
            case NeighbourSynced():
                self._work.append(self._settle_neighbour(change.id))
            case RadiusChanged():
                self._radius = change.radius
                self._journal.append(RadiusOp(change.radius))

    def _path(self, router: RemoteRouter, links: tuple[int, ...], cost: int, origins: int) -> None:
        if (links, cost, origins) != (router.links, router.cost, router.origins):
            self._changes += 1
            if links or router.gone:
                self._absent.found(router)
            else:
                self._absent.lost(router)
            router.links, router.cost, router.origins = links, cost, origins
            if router.announced:
                self._journal.append(router.op())

    def _apply_some(self) -> None:
        """Apply waiting changes until an epoch or a slice of time is full."""
        until = time.monotonic() + TURN
        count = 0
        while self._work and count < ADDRESSES_AN_EPOCH and time.monotonic() < until:
            if next(self._work[0], self) is self:
                self._work.popleft()
            count += 1
        self._sent = self._journal.pending_epoch
        self._journal.await_all(self._sent)

    # Steps, each of which changes one record

    def _settle_neighbour(self, router_id: str) -> Iterator[None]:
        """Let other routers use paths by a neighbour once all workers have what it has reported."""
        self._journal.call_when_acknowledged(lambda: self.engine.neighbour_ready(router_id, _now(None)))
        yield

    def _add(self, router: RemoteRouter) -> Iterator[None]:
        """Announce a router to the workers."""
        if router.gone:
            return
        router.announced = True
        self._announced[router.index] = router
        self._journal.append(router.op())
        self._add_remote(key(ROUTER, router.id), router, None)
        yield

    def _remove(self, router: RemoteRouter) -> Iterator[None]:
        """Remove a router and all that it has announced."""
        if not router.announced:
            return
        index = router.index
        self.link_routes.forget(index)
        for number, record in enumerate(list(self._table.records.values())):
            if record.remotes is not None and index in record.remotes:
                self._table.remove_remote(record, index)
                yield
            elif not number % 64:
                yield
        router.announced = False
        del self._announced[index]
        self._journal.append(RouterGone(index))

    def _change_keys(
        self, router: RemoteRouter, added: Mapping[str, int | None], removed: tuple[str, ...]
    ) -> Iterator[None]:
        """Apply the keys that a router has announced and withdrawn."""
        for record_key in removed:
            if router.gone:
                return
            self._drop_remote(record_key, router)
            yield
        for record_key, hint in added.items():
            if router.gone:
                return
            self._add_remote(record_key, router, hint)
            yield

    def _add_remote(self, record_key: str, router: RemoteRouter, hint: int | None) -> None:
        """Record that a router has destinations for a key."""
        if record_key[:1] in LINK_ROUTE_CLASSES:
            try:
                self.link_routes.add(record_key, router.index)
            except PatternError as error:
                text = f"Link route {record_key!r} of router {router.id} is ignored: {error}"
                self._log.write(WARNING, "ROUTER_MA", text)
            return
        try:
            record = self._table.records.get(record_key)
            if record is None:
                record = self._open(record_key, hint)
            if record is not None and (record.remotes is None or router.index not in record.remotes):
                self._table.add_remote(record, router.index)
        except TableFullError:
            if not self._full:
                self._full = True
                text = (
                    "The address table is full, so addresses of other routers are ignored, "
                    f"the first of them {record_key!r} of router {router.id}"
                )
                self._log.write(ERROR, "ROUTER_MA", text)

    def _open(self, record_key: str, hint: int | None) -> AddressRecord | None:
        """Return a new record for a key (inter-router.md 9.4), or None if the class of the key is not announced."""
        cls = record_key[:1]
        if cls in (ROUTER, EDGE):
            treatment = CLOSEST if hint is None else TREATMENTS.get(hint, CLOSEST)
            default = self._settings.current.default
            record = self._table.create(record_key, treatment, default.priority, default.overflow)
            record.fixed = True
            return record
        phase = _PHASES.get(record_key[1:2])
        if cls != MOBILE or phase is None:
            return None
        name = record_key[2:]
        setting = self._settings.current.lookup(name)
        if setting is not self._settings.current.default or phase == FALLBACK_PHASE:
            return self._table.open_mobile(name, phase, setting)
        announced = None if hint is None else TREATMENTS.get(hint)
        if announced is None and setting.distribution == UNAVAILABLE:
            announced = BALANCED
        if announced is None:
            return self._table.open_mobile(name, phase, setting)
        if self._hinted_default is not setting:
            self._hinted_default = setting
            self._hinted = {each: setting._replace(distribution=each) for each in HINTS}
        record = self._table.open_mobile(name, phase, self._hinted[announced])
        record.hint = announced
        return record

    def _drop_remote(self, record_key: str, router: RemoteRouter) -> None:
        """Record that a router has no more destinations for a key."""
        if record_key[:1] in LINK_ROUTE_CLASSES:
            self.link_routes.remove(record_key, router.index)
            return
        record = self._table.records.get(record_key)
        if record is not None and record.remotes is not None and router.index in record.remotes:
            self._table.remove_remote(record, router.index)
            self._full = False


def timers(config: RouterConfig) -> Timers:
    """Return the timers of the configuration."""
    awaited = config.router_absence_seconds
    return Timers(
        hello_interval=config.hello_interval_seconds,
        hello_max_age=config.hello_max_age_seconds,
        ra_interval=config.ra_interval_seconds,
        ra_interval_flux=config.ra_interval_flux_seconds,
        # The addresses of a router are forgotten with its link state.
        remote_ls_max_age=max(config.remote_ls_max_age_seconds, awaited + AWAITED_LONGER if awaited else 0),
        sync_limit=SYNC_LIMIT if awaited else 0.0,
    )


def _now(now: float | None) -> float:
    return time.monotonic() if now is None else now
