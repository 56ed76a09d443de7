"""Auto links: links that the router attaches to every container that they are for (brokers-and-edge.md, 7).

No input or output here, except that time passes: `later` calls a function after some seconds.
"""
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, NamedTuple, Protocol

from router.config.entities import AutoLinkConfig
from router.log import INFO, WARNING, Log
from router.routing.address import FALLBACK_PHASE, FALLBACK_PHASE_NUMBER, normalise, too_long
from supervisor.attach import TABLE_FULL, Accepted, Refused
from supervisor.connections import Connection, Link
from supervisor.core import Core
from supervisor.table import Record, TableFullError

FIRST_RETRY: Final = 2.0  # seconds; once in the life of an auto link
RETRY: Final = 5.0  # seconds; all others
NO_ROOM: Final = "No room for another address"


class Cancellable(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Do not make it."""


Later = Callable[[float, Callable[[], None]], Cancellable]


class State(Enum):
    """What an auto link has come to on a connection, and altogether."""

    ACTIVE = "active"
    ATTACHING = "attaching"
    FAILED = "failed"
    INACTIVE = "inactive"


_BEST_FIRST: Final = (State.ACTIVE, State.ATTACHING, State.FAILED)


class Shown(NamedTuple):
    """What management shows besides the configuration."""

    link: int | None
    state: str
    error: str | None


class AutoLinks:
    """All auto links. Owner: supervisor. changed(): called when there is something to send to workers."""

    def __init__(self, core: Core, log: Log, later: Later, changed: Callable[[], object]) -> None:
        self.core: Final = core
        self.log: Final = log
        self.later: Final = later
        self.changed: Final = changed
        self._links: dict[str, _AutoLink] = {}  # by identity
        core.containers.watch(self._opened, self._closed)

    def replace(self, wanted: Iterable[AutoLinkConfig]) -> None:
        """Have these auto links, and no others; one that differs is attached anew."""
        configs = {config.identity: config for config in wanted}
        for identity, link in list(self._links.items()):
            if configs.get(identity) != link.config:
                self.remove(link.config)
        for identity, config in configs.items():
            if identity not in self._links:
                self.add(config)
        self.changed()

    def add(self, config: AutoLinkConfig) -> None:
        """Have a further one."""
        self._links[config.identity] = link = _AutoLink(self, config)
        for connection in self.core.containers.matching(config.container_id, config.connection):
            link.activate(connection)
        self.core.auto_links = len(self._links)

    def remove(self, config: AutoLinkConfig) -> None:
        """Have one no more."""
        self._links.pop(config.identity).delete()
        self.core.auto_links = len(self._links)

    def shown(self, config: AutoLinkConfig) -> Shown:
        """The state of an auto link."""
        link = self._links.get(config.identity)
        return Shown(None, State.INACTIVE.value, None) if link is None else link.shown()

    def _opened(self, connection: Connection) -> None:
        for link in self._links.values():
            config = link.config
            if connection in self.core.containers.matching(config.container_id, config.connection):
                link.activate(connection)

    def _closed(self, connection: Connection) -> None:
        for link in self._links.values():
            link.deactivate(connection)


class _AutoLink:
    """One auto link, on all the connections that it is for. Owner: the auto links."""

    def __init__(self, owner: AutoLinks, config: AutoLinkConfig) -> None:
        self.owner = owner
        self.config = config
        self.retried = False
        self.error: str | None = None
        self._legs: dict[int, _Leg] = {}  # by number of the connection
        self._record = self._hold()

    @property
    def outgoing(self) -> bool:
        """Whether the router sends."""
        return self.config.direction == "out"

    @property
    def place(self) -> str:
        """Itself and where it is attached, as the log shows it."""
        config = self.config
        where = f"connection {config.connection}" if config.connection else f"container {config.container_id}"
        return f"'{config.name}' on {where}"

    def activate(self, connection: Connection) -> None:
        """A container has come that it is for."""
        self._legs[connection.number] = leg = _Leg(self, connection)
        leg.attach()

    def deactivate(self, connection: Connection) -> None:
        """A connection is gone."""
        leg = self._legs.pop(connection.number, None)
        if leg is not None:
            leg.stop()
            if not any(leg.state is State.FAILED for leg in self._legs.values()):
                self.error = None
            self.tell("Auto Link Deactivated")

    def delete(self) -> None:
        """Close its links; its address may go."""
        for leg in self._legs.values():
            leg.close()
        if self._record is not None:
            self.owner.core.table.release(self._record)

    def shown(self) -> Shown:
        """What management shows."""
        for state in _BEST_FIRST:
            legs = [leg for leg in self._legs.values() if leg.state is state]
            if legs:
                link = next((leg.link for leg in legs if leg.link is not None), None)
                return Shown(None if link is None else link.identity, state.value, self.error)
        return Shown(None, State.INACTIVE.value, None)

    def tell(self, what: str) -> None:
        """Log what has become of it."""
        if self.owner.log.enabled("ROUTER_CORE", INFO):
            self.owner.log.info("ROUTER_CORE", f"{what} {self.place}")

    def bound(self) -> Accepted | None:
        """What its links are bound to; None when there is no room for the address."""
        record = self._open()
        if record is None:
            return None
        config = self.config
        phase = FALLBACK_PHASE_NUMBER if config.fallback and self.outgoing else config.phase
        to = None if self.outgoing else config.address
        return Accepted(record, to=to, phase=phase, fallback=self.outgoing or not config.fallback)

    def _open(self) -> Record | None:
        """The record of its address."""
        config, core = self.config, self.owner.core
        if too_long(config.address):
            return None
        name = normalise(config.address)
        phase: int | str = FALLBACK_PHASE if config.fallback and self.outgoing else config.phase
        try:
            return core.table.open_mobile(name, phase, core.settings.current.lookup(name))
        except TableFullError:
            return None

    def _hold(self) -> Record | None:
        """Its address is there as long as it is."""
        record = self._open()
        if record is not None:
            self.owner.core.table.hold(record)
        else:
            self.owner.log.write(WARNING, "ROUTER_CORE", f"Auto link {self.place}: {NO_ROOM}")
        return record


class _Leg:
    """An auto link on one connection. Owner: the auto link."""

    __slots__ = ("_identity", "_parent", "_timer", "connection", "link", "state")

    def __init__(self, parent: _AutoLink, connection: Connection) -> None:
        self.connection = connection
        self.state = State.INACTIVE
        self.link: Link | None = None
        self._parent = parent
        self._identity: int | None = None  # of the link that was asked for, until it ends
        self._timer: Cancellable | None = None

    def attach(self) -> None:
        """Ask for the link."""
        parent, config = self._parent, self._parent.config
        self.state = State.ATTACHING
        address = config.external_address or config.address
        self._identity = parent.owner.core.own_links.attach(self.connection, parent.outgoing, address, self)
        parent.tell("Auto Link Activated")

    def begun(self, link: Link) -> None:
        """The attach has gone out."""
        self.link = link

    def answered(self, link: Link, active: bool) -> Accepted | Refused | None:
        """The peer has answered."""
        if not active and self._parent.outgoing:
            return None
        bound = self._parent.bound()
        if bound is None:
            return TABLE_FULL
        if active:
            self.state = State.ACTIVE
            self._parent.error = None
        return bound

    def ended(self, error: str | None) -> None:
        """The peer has detached: try again later."""
        parent = self._parent
        self.state = State.FAILED
        self.link = self._identity = None
        parent.error = error
        parent.tell(f"Auto Link Activation Failed. {error or ''}".rstrip())
        self._timer = parent.owner.later(RETRY if parent.retried else FIRST_RETRY, self._again)
        parent.retried = True

    def _again(self) -> None:
        self._timer = None
        self.attach()
        self._parent.owner.changed()

    def close(self) -> None:
        """Close the link."""
        self.stop()
        if self._identity is not None:
            self._parent.owner.core.own_links.detach(self.connection, self._identity)

    def stop(self) -> None:
        """Try nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
