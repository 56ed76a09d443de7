"""Auto links: links that the router attaches to matching containers (brokers-and-edge.md 7).

Does no input or output. For retries the waker calls a function after a delay.
"""

import time
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from sluice.router.addressing.address import FALLBACK_PHASE, FALLBACK_PHASE_NUMBER, normalise, too_long
from sluice.router.config.entities import AutoLinkConfig, Configuration
from sluice.router.config.roles import ROUTE_CONTAINER
from sluice.router.control.message import ControlMessage
from sluice.router.log import INFO, NOTICE, WARNING, ProcessLog
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.addresses.settings import Settings
from sluice.supervisor.addresses.table import AddressTable, TableFullError
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.connections.connections import RegisteredConnection, RegisteredLink
from sluice.supervisor.connections.containers import Containers
from sluice.supervisor.links.attach import TABLE_FULL, AttachAccepted, AttachRefused
from sluice.supervisor.links.initiated import InitiatedLinkOptions, InitiatedLinks
from sluice.supervisor.links.suspended import SuspendedConsumer
from sluice.supervisor.runtime.availability import Availability, AvailabilityLog
from sluice.supervisor.runtime.waker import Cancellable, Waker
from sluice.supervisor.subsystem import Subsystem

FIRST_RETRY: Final = 2.0  # seconds; first retry of an auto link
RETRY: Final = 5.0  # seconds; all later retries
NO_REASON: Final = "the peer has detached the link without a reason"
# Conditions with which a broker says that it does not have the queue of a link, or no longer.
MISSING: Final = ("amqp:not-found", "amqp:resource-deleted")
IN: Final = "in"
OUT: Final = "out"
# Connection, container and name of a queue at a broker.
QueueKey = tuple[str | None, str | None, str]


class AutoLinkState(Enum):
    """State of an auto link, on one connection or overall."""

    ACTIVE = "active"
    ATTACHING = "attaching"
    FAILED = "failed"
    INACTIVE = "inactive"


_BEST_FIRST: Final = (AutoLinkState.ACTIVE, AutoLinkState.ATTACHING, AutoLinkState.FAILED)


class AutoLinkStatus(NamedTuple):
    """Status of an auto link, as management shows it besides the configuration."""

    link: int | None
    state: str
    error: str | None


class AutoLinks(Subsystem):
    """All auto links. Owner: the core."""

    roles = (ROUTE_CONTAINER,)

    def __init__(
        self,
        containers: Containers,
        initiated_links: InitiatedLinks,
        settings: Settings,
        table: AddressTable,
        waker: Waker,
        log: ProcessLog,
    ) -> None:
        self.containers: Final = containers
        self.initiated_links: Final = initiated_links
        self.settings: Final = settings
        self.table: Final = table
        self.waker: Final = waker
        self.log: Final = log
        self.changes: Final = AvailabilityLog("Auto link", "ROUTER_CORE", waker.later, log)
        self._links: dict[str, _AutoLink] = {}  # by identity
        # Auto links of each queue. One that sends waits for the one that receives, see `_AutoLinkAttachment.attach`.
        self._queues: dict[QueueKey, list[_AutoLink]] = {}
        table.watch_users(self._users_changed)
        self._stopped = False  # True: the router ends, so lost connections are no failures

    def __len__(self) -> int:
        return len(self._links)

    def start(self, configuration: Configuration) -> None:
        self.replace(configuration.auto_links)

    def commit(self, change: ConfigurationChange) -> None:
        if change.whole:
            self.replace(change.new.auto_links)
        for link in change.removed(AutoLinkConfig):
            self.remove(link)
        self._attach([self._add(link) for link in change.made(AutoLinkConfig)])

    def replace(self, wanted: Iterable[AutoLinkConfig]) -> None:
        """Replace all auto links. A changed auto link is attached again."""
        configs = {config.identity: config for config in wanted}
        for identity, link in list(self._links.items()):
            if configs.get(identity) != link.config:
                self.remove(link.config)
        self._attach([self._add(config) for identity, config in configs.items() if identity not in self._links])
        self.waker.wake()

    def _add(self, config: AutoLinkConfig) -> "_AutoLink":
        self._links[config.identity] = link = _AutoLink(self, config)
        self._queues.setdefault(link.queue, []).append(link)
        return link

    def _attach(self, links: Iterable["_AutoLink"]) -> None:
        """Attach new auto links to matching connections, those that receive first."""
        for link in sorted(links, key=lambda link: link.outgoing):
            for connection in self.containers.matching(link.config.container_id, link.config.connection):
                link.activate(connection)

    def remove(self, config: AutoLinkConfig) -> None:
        """Remove an auto link, and close its links."""
        link = self._links.pop(config.identity)
        links = self._queues[link.queue]
        links.remove(link)
        if not links:
            del self._queues[link.queue]
        link.delete()
        if not link.outgoing:
            for other in links:
                other.follow_receivers()

    def of_queue(self, queue: QueueKey, direction: str) -> list["_AutoLink"]:
        """Return the auto links of a queue and a direction."""
        return [link for link in self._queues.get(queue, ()) if link.config.direction == direction]

    def shown(self, config: AutoLinkConfig) -> AutoLinkStatus:
        """Return the status of an auto link."""
        link = self._links.get(config.identity)
        return AutoLinkStatus(None, AutoLinkState.INACTIVE.value, None) if link is None else link.shown()

    def availability(self, config: AutoLinkConfig) -> Availability | None:
        """Return the availability of an auto link; None before it is started. It is up while its state is active."""
        link = self._links.get(config.identity)
        return None if link is None else link.availability

    def states(self) -> list[tuple[AutoLinkConfig, AutoLinkState, Availability]]:
        """Return all auto links with their state and availability."""
        return [(link.config, link.state, link.availability) for link in self._links.values()]

    def stop(self) -> None:
        self._stopped = True

    def connection_opened(self, connection: RegisteredConnection, message: ControlMessage) -> None:
        for link in sorted(self._links.values(), key=lambda link: link.outgoing):
            config = link.config
            if connection in self.containers.matching(config.container_id, config.connection):
                link.activate(connection)

    def connection_closed(self, connection: RegisteredConnection) -> None:
        lost: dict[str, list[Availability]] = {}  # by place
        for link in self._links.values():
            if link.deactivate(connection) and not self._stopped:
                lost.setdefault(link.where, []).append(link.availability)
        for where, those in lost.items():
            self.changes.fall_together(those, connection.end_reason, where)

    def worker_lost(self, worker: WorkerProcess) -> None:
        for link in self._links.values():
            link.worker_lost(worker)

    def link_dropped(self, worker: WorkerProcess, link: RegisteredLink) -> None:
        if link.resumes is not None and not link.up and not link.suspended:
            for auto_link in self._links.values():
                auto_link.ended_early(link)

    def wait_left(self, config: AutoLinkConfig) -> float | None:
        """Return the seconds for which senders and messages go on waiting for a lost broker; None: they do not."""
        link = self._links.get(config.identity)
        return None if link is None else link.wait_left

    def auto_link(self, config: AutoLinkConfig) -> "_AutoLink | None":
        """Return the auto link of a configuration, while it exists."""
        return self._links.get(config.identity)

    def _users_changed(self, record: AddressRecord) -> None:
        if record.suspended is not None:
            for link in list(self._links.values()):
                link.users_changed(record)


class _AutoLink:
    """Auto link with its links on all matching connections. Owner: the auto links."""

    def __init__(self, owner: AutoLinks, config: AutoLinkConfig) -> None:
        self.owner = owner
        self.config = config
        self.retried = False
        self.error: str | None = None
        # Generated names such as `autoLink/3` say nothing to a reader who does not count the sections of the file.
        detail = "" if config.named else f"{config.direction}, {config.address}"
        self.availability: Final = Availability(config.name, detail=detail)
        self._legs: dict[int, _AutoLinkAttachment] = {}  # by number of the connection
        self._suspended: SuspendedConsumer | None = None  # the only consumer of the address, whose broker is awaited
        self._suspended_at = 0.0  # time.monotonic()
        self._resumed: SuspendedConsumer | None = None  # the last one that a new link took over
        self._expiry: Cancellable | None = None  # timer of the end of the wait
        self._record = self._hold()

    @property
    def outgoing(self) -> bool:
        """Return whether the router is the sender."""
        return self.config.direction == OUT

    @property
    def external(self) -> str:
        """Return the name of the queue at the broker."""
        return self.config.external_address or self.config.address

    @property
    def queue(self) -> QueueKey:
        """Return the broker and the queue."""
        return self.config.connection, self.config.container_id, self.external

    @property
    def where(self) -> str:
        """Return the attach point of the auto link, for the log."""
        config = self.config
        return f"connection {config.connection}" if config.connection else f"container {config.container_id}"

    @property
    def place(self) -> str:
        """Return the name and the attach point of the auto link, for the log."""
        return f"{self.availability.title} on {self.where}"

    @property
    def active(self) -> bool:
        """Return whether a peer has accepted the link."""
        return self.state is AutoLinkState.ACTIVE

    def activate(self, connection: RegisteredConnection) -> None:
        """Attach the link to a matching container that has connected."""
        self._legs[connection.number] = leg = _AutoLinkAttachment(self, connection)
        leg.attach()

    def deactivate(self, connection: RegisteredConnection) -> bool:
        """Drop the link on a connection that has closed. Returns True if it was there, and is active nowhere now."""
        leg = self._legs.pop(connection.number, None)
        if leg is not None:
            leg.stop()
            if not any(leg.state is AutoLinkState.FAILED for leg in self._legs.values()):
                self.error = None
            self.log_event("Auto Link Deactivated")
        return leg is not None and not self.active

    def activated(self) -> None:
        """Take note that a peer has accepted the link."""
        self.error = None
        self.log_event("Auto Link Activated")
        self.owner.changes.rise(self.availability, self.where)

    def failed(self, error: str | None, *, unclear: bool = False) -> None:
        """Take note that a peer has refused or detached the link. unclear: perhaps because of another link."""
        self.error = error
        self.log_event(f"Auto Link Activation Failed. {error or ''}".rstrip())
        if self.active:
            return
        if unclear:
            self.owner.changes.falter(self.availability, error or NO_REASON)
        else:
            self.owner.changes.fall(self.availability, error or NO_REASON, self.where)

    def receivers(self, connection: RegisteredConnection) -> list["_AutoLinkAttachment"]:
        """Return the links on a connection that receive from the queue to which this auto link sends."""
        links = self.owner.of_queue(self.queue, IN) if self.outgoing else []
        return [leg for link in links if (leg := link.leg(connection)) is not None]

    def leg(self, connection: RegisteredConnection) -> "_AutoLinkAttachment | None":
        """Return the link on a connection, or None."""
        return self._legs.get(connection.number)

    def follow_receivers(self) -> None:
        """Attach or close the links that send, as the links that receive from the queue require."""
        for leg in list(self._legs.values()):
            leg.follow_receivers()

    def senders_follow(self, connection: RegisteredConnection) -> None:
        """Notify the links on a connection that send to the queue from which this auto link receives."""
        links = [] if self.outgoing else self.owner.of_queue(self.queue, OUT)
        for link in links:
            leg = link.leg(connection)
            if leg is not None:
                leg.follow_receivers()

    def delete(self) -> None:
        """Close all links and release the address."""
        self.owner.changes.forget(self.availability, self.where)
        for leg in self._legs.values():
            leg.close()
        self.release_waiting()
        if self._record is not None:
            self.owner.table.release(self._record)

    @property
    def state(self) -> AutoLinkState:
        """Return the best state on any connection."""
        states = {leg.state for leg in self._legs.values()}
        return next((state for state in _BEST_FIRST if state in states), AutoLinkState.INACTIVE)

    def shown(self) -> AutoLinkStatus:
        """Return the status for management, from the connection with the best state."""
        state = self.state
        if state is AutoLinkState.INACTIVE:
            return AutoLinkStatus(None, state.value, None)
        legs = [leg for leg in self._legs.values() if leg.state is state]
        link = next((leg.link for leg in legs if leg.link is not None), None)
        return AutoLinkStatus(None if link is None else link.identity, state.value, self.error)

    def log_event(self, what: str) -> None:
        """Log an event of the auto link."""
        if self.owner.log.enabled("ROUTER_CORE", INFO):
            self.owner.log.info("ROUTER_CORE", f"{what} {self.place}")

    # -- the wait for a lost broker -----------------------------------------------------------------------------------

    def on_suspended(self, consumer: SuspendedConsumer) -> bool:
        """Begin to wait for the broker, whose link a worker has suspended. False: there are other consumers."""
        config, record = self.config, consumer.record
        if self._suspended is not None or self.owner.auto_link(config) is not self or not record.is_suspended_alone:
            return False
        self._suspended = consumer
        self._suspended_at = time.monotonic()
        self._expiry = self.owner.waker.later(config.absence, self._expire)
        self.owner.log.write(
            NOTICE,
            "ROUTER_CORE",
            f"Auto link {self.place} is lost: senders of '{config.address}' and {consumer.waiting} messages wait up to"
            f" {config.absence} s for the broker",
        )
        return True

    @property
    def wait_left(self) -> float | None:
        """Return the seconds for which the broker is still awaited; None: it is not."""
        if self._suspended is None:
            return None
        return max(self._suspended_at + self.config.absence - time.monotonic(), 0.0)

    def take_suspended(self) -> SuspendedConsumer | None:
        """Return the suspended consumer to a link that takes it over."""
        consumer, self._suspended = self._suspended, None
        self._resumed = consumer
        if consumer is not None:
            self._cancel_expiry()
            waited = time.monotonic() - self._suspended_at
            text = f"Auto link {self.place} is back after {waited:.1f} s: the messages that waited are sent"
            self.owner.log.write(NOTICE, "ROUTER_CORE", text)
        return consumer

    def ended_early(self, link: RegisteredLink) -> None:
        """Go on waiting for the broker: its new link has ended before it could take over what waits."""
        consumer = self._resumed
        if consumer is None or all(leg.link is not link for leg in self._legs.values()):
            return
        self._resumed = None
        consumer.restore(link, link.connection.origin.link_capacity)
        self._suspended = consumer
        self._expiry = self.owner.waker.later(self.wait_left or 0.0, self._expire)

    def release_waiting(self) -> None:
        """Wait no more: release the messages."""
        consumer, self._suspended = self._suspended, None
        self._cancel_expiry()
        if consumer is not None:
            consumer.release()

    def worker_lost(self, worker: WorkerProcess) -> None:
        """Forget messages that waited in a worker that has ended."""
        consumer = self._suspended
        if consumer is not None and consumer.worker is worker:
            self._suspended = None
            self._cancel_expiry()
            consumer.worker_lost()

    def users_changed(self, record: AddressRecord) -> None:
        """Wait no more if the address has another consumer now: senders will send to that one again."""
        if self._suspended is not None and self._suspended.record is record and not record.is_suspended_alone:
            self.release_waiting()

    def _cancel_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _expire(self) -> None:
        self._expiry = None
        text = f"Auto link {self.place} is not back after {self.config.absence} s: what waited for it is released"
        self.owner.log.write(WARNING, "ROUTER_CORE", text)
        self.release_waiting()
        self.owner.waker.wake()

    # -- its address --------------------------------------------------------------------------------------------------

    def bound(self) -> AttachAccepted | None:
        """Return the record to bind links to, or None if the table has no room for the address."""
        record = self._open()
        if record is None:
            return None
        config = self.config
        phase = FALLBACK_PHASE_NUMBER if config.fallback and self.outgoing else config.phase
        to = None if self.outgoing else config.address
        return AttachAccepted(
            record,
            to=to,
            phase=phase,
            fallback=self.outgoing or not config.fallback,
            on_suspended=self.on_suspended if self.outgoing and config.absence else None,
            resumes=self.take_suspended(),
        )

    def _open(self) -> AddressRecord | None:
        """Return the record of the address, or None if the address is too long or the table is full.

        brokers-and-edge.md AL-10, AL-11.
        """
        config, owner = self.config, self.owner
        if too_long(config.address):
            return None
        name = normalise(config.address)
        phase: int | str = FALLBACK_PHASE if config.fallback and self.outgoing else config.phase
        try:
            return owner.table.open_mobile(name, phase, owner.settings.current.lookup(name))
        except TableFullError:
            return None

    def _hold(self) -> AddressRecord | None:
        """Hold the record of the address while the auto link exists."""
        record = self._open()
        if record is not None:
            self.owner.table.hold(record)
        else:
            text = f"Auto link {self.place} has no address: it is too long, or the address table is full"
            self.owner.log.write(WARNING, "ROUTER_CORE", text)
        return record


class _AutoLinkAttachment:
    """Auto link on one connection. Owner: the auto link."""

    __slots__ = ("_failed", "_identity", "_parent", "_timer", "connection", "link", "missing", "state", "unclear")

    def __init__(self, parent: _AutoLink, connection: RegisteredConnection) -> None:
        self.connection = connection
        self.state = AutoLinkState.INACTIVE
        self.link: RegisteredLink | None = None
        self._parent = parent
        self._identity: int | None = None  # identity of the requested link, until the link ends
        self._failed = False  # the link has ended on this connection before
        # Reason for which the peer has refused or detached the link: it has no such queue. None: it has not said so.
        self.missing: str | None = None
        self.unclear = False  # the peer has ended the session, perhaps because of another link
        self._timer: Cancellable | None = None

    @property
    def awaited(self) -> bool:
        """Return whether the peer has yet to accept or refuse the link."""
        return self.state is AutoLinkState.ATTACHING or self.unclear

    def attach(self) -> None:
        """Request the link from the worker.

        RabbitMQ 3.10 accepts a link that sends to a queue that it does not have, and discards the messages. So a link
        that sends waits until the broker has accepted the one that receives from the same queue.
        """
        self.stop()
        parent, config = self._parent, self._parent.config
        self.state = AutoLinkState.ATTACHING
        receivers = parent.receivers(self.connection)
        if any(each.awaited for each in receivers):
            return
        if any(each.missing is not None for each in receivers):
            self.follow_receivers()
            return
        parent.availability.attempts += 1
        # RabbitMQ ends the whole session if one of its links leads to a queue that does not exist. So a link that has
        # failed gets a session of its own, and no longer takes those of other queues along.
        session = config.identity if self._failed else ""
        wanted = InitiatedLinkOptions(address=parent.external, session=session, waits=config.absence > 0)
        self._identity = parent.owner.initiated_links.attach(self.connection, parent.outgoing, wanted, self)

    def follow_receivers(self) -> None:
        """Close the link while the broker does not have the queue, and attach it when it does."""
        receivers = self._parent.receivers(self.connection)
        reason = next((each.missing for each in receivers if each.missing is not None), None)
        if reason is not None:
            self._hold(f"the broker has no '{self._parent.external}', and might discard messages for it: {reason}")
        elif self._identity is None and self._timer is None and not any(each.awaited for each in receivers):
            self.attach()

    def _hold(self, reason: str) -> None:
        """Close the link, if it is attached, until the broker accepts the link that receives from the queue."""
        held = self.state is AutoLinkState.FAILED and self._identity is None and self._timer is None
        self.close()
        self.link = self._identity = None
        self.state = AutoLinkState.FAILED
        self.unclear = False
        if not held or self._parent.error != reason:
            self._parent.failed(reason)

    def begun(self, link: RegisteredLink) -> None:
        """Store the link, now that its attach has been sent."""
        self.link = link

    def answered(
        self, link: RegisteredLink, active: bool, address: str | None
    ) -> AttachAccepted | AttachRefused | None:
        """Bind the link when the peer has answered."""
        if not active and self._parent.outgoing:
            return None
        bound = self._parent.bound()
        if bound is None:
            return TABLE_FULL
        if active:
            self.state = AutoLinkState.ACTIVE
            self.missing, self.unclear = None, False
            self._parent.activated()
            self._parent.senders_follow(self.connection)
        return bound

    def ended(self, error: str | None) -> None:
        """Schedule a retry after the peer has detached."""
        parent = self._parent
        condition, description = (self.link and self.link.error) or ("", "")
        self.state = AutoLinkState.FAILED
        # Without a condition of its own, the link has ended with its session, whose error begins with the condition.
        self.unclear = bool(self.link) and not condition and not self._failed
        missing = (condition or (description or "").partition(" ")[0]) in MISSING
        self.missing = (error or condition) if missing and not self.unclear else None
        self._failed = True
        self.link = self._identity = None
        parent.failed(error, unclear=self.unclear)
        self._timer = parent.owner.waker.later(RETRY if parent.retried else FIRST_RETRY, self._again)
        parent.retried = True
        parent.senders_follow(self.connection)

    def _again(self) -> None:
        self._timer = None
        self.attach()
        self._parent.owner.waker.wake()

    def close(self) -> None:
        """Cancel retries and close the link."""
        self.stop()
        if self._identity is not None:
            self._parent.owner.initiated_links.detach(self.connection, self._identity)

    def stop(self) -> None:
        """Cancel a pending retry."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
