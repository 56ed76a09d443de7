"""Registry of all connections, from accept or connect through the hand-over and the AMQP open to the end.

No input or output here.
"""

import time
from collections import deque
from collections.abc import Container, Iterable, Mapping
from itertools import islice
from typing import Final

from sluice.router.amqp.errors import CONNECTION_FORCED
from sluice.router.config.entities import Configuration, ConnectorConfig, ListenerConfig
from sluice.router.control.handlers import HandlerTable
from sluice.router.control.handover import InitiateData
from sluice.router.control.messages import Close, Closed, CloseLink, Denied, Gone, Opened, Order
from sluice.router.control.ops import Op, TraceOp
from sluice.router.log import ProcessLog
from sluice.supervisor.audit.trail import AuditTrail
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.connections.admission import Admit, Decision, Deny
from sluice.supervisor.connections.connections import (
    CLOSED,
    FAILED,
    ORPHANED,
    Initiator,
    RegisteredConnection,
    describe_end,
    log_accepted,
    log_closed,
    log_opened,
    report_ended,
)
from sluice.supervisor.connections.opens import OpenDecider
from sluice.supervisor.connections.unopened import UnopenedConnections
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.listeners.profiles import ListenerProfiles
from sluice.supervisor.subsystem import Events, Subsystem

# Links of closed connections are dropped in batches: at most DROPS_PER_WAKE links in a wake, and at most
# DROPS_PER_CONNECTION of one connection before the next connection.
DROPS_PER_WAKE: Final = 256
DROPS_PER_CONNECTION: Final = 64
# No links are dropped while workers are more than this many epochs behind, so that other changes wait for few epochs.
MAX_EPOCHS_BEHIND: Final = 2
# Denial of opens while the router drains.
DRAINING: Final = Deny(CONNECTION_FORCED, "the router is about to exit: connect to another one")
# Error for a client that its worker has admitted, if the policy has changed between its hand-over and its open.
CHANGED: Final = (CONNECTION_FORCED, "the policy for connections has changed")


class Connections(Subsystem):
    """Registry of all connections. Owner: the core."""

    def __init__(
        self,
        workers: Mapping[int, WorkerProcess],
        journal: Journal,
        profiles: ListenerProfiles,
        opens: OpenDecider,
        events: Events,
        trail: AuditTrail,
        log: ProcessLog,
    ) -> None:
        # Connections with an AMQP open, by number, in order of opening.
        self.opened: dict[int, RegisteredConnection] = {}
        self.accepted = 0  # number of connections accepted since the start
        self.accept_pauses = 0  # times that connecting clients had to wait, because established clients were active
        self.denied = 0  # number of sockets refused at the limit of all connections
        self._workers = workers
        self._journal = journal
        self._profiles = profiles
        self._opens = opens
        # Result of `worker_admits` by profile, whose attributes never change; empty after each change of the
        # configuration.
        self._admits: dict[str, bool] = {}
        self._asked: dict[int, Opened] = {}  # opens that are not decided yet, by number of the connection
        self._events = events
        self._trail = trail
        self._log = log
        self.mark: Final = opens.mark  # by which other routers recognise connections of this edge router
        self._next = 1
        self._initiated: set[int] = set()  # numbers of connections that the router opened and a worker has
        self._unopened = UnopenedConnections()
        self._given_up: set[int] = set()  # numbers of unopened connections that are dropped for other hosts
        self._leaving: deque[tuple[WorkerProcess, Closed]] = (
            deque()
        )  # ended connections that still have links to be dropped
        self._drops_left = DROPS_PER_WAKE  # number of links that may still be dropped in this wake
        self._denied_roles: Container[str] = ()  # roles that may not open, because the router is about to exit
        self._ending = False  # True: the router stops, so workers close their connections

    @property
    def count(self) -> int:
        """Number of present accepted connections, including those without an AMQP open yet."""
        there = -len(self._initiated) - len(self._given_up)
        for worker in self._workers.values():  # no generator: each accepted connection asks for the number
            there += len(worker.connections)
        return there

    def take_number(self) -> int:
        """Return a number for a connection or for an attempt to open one; each number is used once."""
        number = self._next
        self._next += 1
        return number

    # From listeners and connectors

    def adopt(
        self, worker: WorkerProcess | None, listener: ListenerConfig, local: str, peer: str, profile: str | None = None
    ) -> RegisteredConnection:
        """Register an accepted connection of `worker`; None: `move` assigns a worker later.

        profile: key of the listener's profile; None: the name of the listener, which is the key at the start.
        """
        connection = RegisteredConnection(self.take_number(), listener, local, peer, profile or listener.name)
        self._profiles.enter(connection.profile)
        self.accepted += 1
        if worker is not None:
            self.move(connection, worker)
        log_accepted(self._log, connection)
        return connection

    def initiate(
        self, number: int, connector: ConnectorConfig, profile: str, initiator: Initiator, initiate: InitiateData
    ) -> RegisteredConnection:
        """Register a connection that a connector has opened; `move` assigns a worker later.

        profile: key of the connector's profile. initiate: further data for the worker, see Handover.
        """
        connection = RegisteredConnection(number, connector, "", connector.place, profile)
        connection.initiator = initiator
        connection.initiate = initiate
        self._profiles.enter(profile)
        return connection

    def move(self, connection: RegisteredConnection, worker: WorkerProcess) -> None:
        """Assign a connection that has no worker to this worker."""
        worker.connections[connection.number] = connection
        connection.worker = worker.index
        connection.epoch = self._journal.acknowledged(worker.index)
        if connection.initiator is not None:
            self._initiated.add(connection.number)
        else:
            self._unopened.add(connection)

    def worker_admits(self, connection: RegisteredConnection) -> bool:
        """True if the worker of a connection is to admit its client at present; see Handover."""
        admits = self._admits.get(connection.profile)
        if admits is None:
            origin = connection.origin
            admits = isinstance(origin, ListenerConfig) and self._opens.admits_all(origin)
            self._admits[connection.profile] = admits
        return admits

    def take_back(self, connection: RegisteredConnection, worker: WorkerProcess) -> None:
        """Take a connection back from a worker that has not received it."""
        del worker.connections[connection.number]
        self._initiated.discard(connection.number)
        self._unopened.remove(connection)

    def give_up(self, connection: RegisteredConnection, reason: str) -> None:
        """Drop a connection that no worker has or will have."""
        connection.end_reason = reason
        self._forget(None, connection)
        self._log.error("SERVER", f"[C{connection.number}] Connection with {connection.peer} dropped: {reason}")
        if connection.initiator is not None:
            report_ended(self._log, connection, FAILED, ("amqp:internal-error", reason))

    def deny(self, peer: str, limit: int) -> None:
        """Count and report a client that is refused because there are `limit` connections."""
        self.denied += 1
        self._trail.limit_reached(peer, limit)

    def make_room(self, peer: str) -> bool:
        """Drop an unopened connection of another host to make room for one of `peer`.

        Returns False if no host has more unopened connections than the host of `peer`.
        """
        connection = self._unopened.connection_to_evict(peer)
        if connection is None:
            return False
        self._unopened.remove(connection)
        self._given_up.add(connection.number)
        self.send(connection, Close(connection.number, silent=True))
        text = f"[C{connection.number}] Connection from {connection.peer} dropped before its open: the limit of"
        text += " connections is reached, and no host has more connections that are not open"
        self._log.info("SERVER", text)
        return True

    @property
    def unopened(self) -> int:
        """Number of accepted connections without an AMQP open."""
        return self._unopened.count

    def drain(self, roles: Container[str]) -> None:
        """Deny opens of connections with these roles from now on, because the router is about to exit."""
        self._denied_roles = roles

    # Orders

    def send(self, connection: RegisteredConnection, message: Order) -> None:
        """Send a message to the worker that has a connection, if any."""
        worker = None if connection.worker is None else self._workers.get(connection.worker)
        if worker is not None and connection.number in worker.connections:
            worker.outbox.append(message)

    def close(
        self,
        connection: RegisteredConnection,
        condition: str | None = None,
        description: str | None = None,
        *,
        redirect: bool = False,
    ) -> None:
        """Order the worker of a connection to close it, with an optional error, and report that to the audit log.

        redirect: the error names another router, if the listener has `failoverUrls`.
        """
        connection.closing = True
        self._trail.closed(connection, condition, description)
        self.send(connection, Close(connection.number, condition, description, redirect=redirect))

    def close_link(self, connection: RegisteredConnection, number: int, condition: str, description: str) -> None:
        """Close a client's link, given by its number at the worker, with an error.

        If the attach has not been answered yet, the connection is closed instead.
        """
        if connection.links[number].up:
            self.send(connection, CloseLink(connection.number, number, condition, description))
        elif not connection.closing:
            self.close(connection, condition, description)

    def trace(self, connection: RegisteredConnection, on: bool) -> None:
        """Switch the frame log of a connection on or off. `when_in_force` of the settings tells when workers do it."""
        if connection.trace is not on:
            connection.trace = on
            self._journal.append(TraceOp(connection.number, on))

    # Subsystem

    def messages(self, handlers: HandlerTable[WorkerProcess]) -> None:
        handlers.on(Opened, self._opened)
        handlers.on(Closed, self._closed)

    def snapshot_ops(self) -> Iterable[Op]:
        return (TraceOp(each.number, each.trace) for each in self.opened.values() if each.trace is not None)

    def start(self, configuration: Configuration) -> None:
        self._admits.clear()

    def commit(self, change: ConfigurationChange) -> None:
        self._admits.clear()

    def stop(self) -> None:
        self._ending = True

    def worker_lost(self, worker: WorkerProcess) -> None:
        """Close the records of all connections of a lost worker."""
        for connection in worker.connections.values():
            connection.sessions_at_end = 0  # the real number is unknown
            connection.end_reason = describe_end(connection, ORPHANED, None)
            self._forget(worker, connection)
            if connection.initiator is not None:
                report_ended(self._log, connection, CLOSED if self._ending else ORPHANED, None)
            else:
                log_closed(self._log, connection, None)
        worker.connections = {}

    def _opened(self, worker: WorkerProcess, message: Opened) -> None:
        connection = worker.connections.get(message.conn)
        if connection is None:
            return
        connection.read_before = b""
        self._opens.identify(connection, message)
        if message.admitted and self.worker_admits(connection):  # there is nothing left to decide
            self._begin(connection, message)
            return
        self._asked[connection.number] = message
        drops = connection.origin.role in self._denied_roles and not message.admitted
        decision = DRAINING if drops else self._opens.decide(connection, message)
        if decision is not None:
            self.decided(connection, decision)

    def decided(self, connection: RegisteredConnection, decision: Decision) -> None:
        """Execute the decision about an open, unless the connection has ended."""
        message = self._asked.pop(connection.number, None)
        if message is None:
            return
        answer = self._opens.answer(connection, decision)
        if not message.admitted:
            self.send(connection, answer)
            if isinstance(answer, Denied):
                return
        elif decision != Admit():
            self.close(connection, *CHANGED)
        self._begin(connection, message)

    def _begin(self, connection: RegisteredConnection, message: Opened) -> None:
        """Register an admitted connection as open, and notify all that it concerns."""
        self._unopened.remove(connection)
        self._given_up.discard(connection.number)  # the open arrived before the worker could drop the connection
        connection.opened = True
        connection.opened_at = time.monotonic()
        self.opened[connection.number] = connection
        log_opened(self._log, connection)
        if connection.initiator is not None:
            connection.initiator.opened(connection)
        self._events.connection_opened(connection, message)

    # Links of connections that have ended

    @property
    def _can_drop(self) -> bool:
        """True if there are links to drop, and workers are at most MAX_EPOCHS_BEHIND epochs behind."""
        return bool(self._leaving) and self._journal.settled + MAX_EPOCHS_BEHIND >= self._journal.epoch

    def work(self) -> bool:
        """Drop a batch of links of connections that have ended, round robin. Returns True if more can be dropped."""
        self._drops_left = DROPS_PER_WAKE
        if not self._leaving:
            return False
        while self._can_drop and self._drops_left:
            worker, message = self._leaving.popleft()
            connection = worker.connections.get(message.conn)
            if connection is None:  # the worker has died
                continue
            links = connection.links
            turn = min(len(links), DROPS_PER_CONNECTION, self._drops_left)
            for number in list(islice(links, turn)):
                self._events.link_dropped(worker, links.pop(number))
            self._drops_left -= turn
            if links:
                self._leaving.append((worker, message))
            else:
                self._end(worker, message)
        if self._leaving:
            self._journal.await_all(self._journal.pending_epoch)
        return self._can_drop

    def _closed(self, worker: WorkerProcess, message: Closed) -> None:
        connection = worker.connections.get(message.conn)
        if connection is not None:
            connection.sessions_at_end = message.sessions
        for line in message.lines:
            self._log.info("ROUTER_CORE", line)
        links = 0 if connection is None else len(connection.links)
        if links > self._drops_left:
            self._leaving.append((worker, message))
            return
        self._drops_left -= links
        self._end(worker, message)

    def _end(self, worker: WorkerProcess, message: Closed) -> None:
        """Remove a connection whose end a worker has reported. The links it still has are dropped."""
        connection = worker.connections.pop(message.conn, None)
        if connection is not None:
            if connection.initiator is None and not connection.opened:
                self._trail.ended(connection, message.error)
            ending = CLOSED if message.graceful else FAILED
            connection.end_reason = describe_end(connection, ending, message.error)
            self._forget(worker, connection)
            if connection.initiator is not None:
                report_ended(self._log, connection, ending, message.error)
            else:
                log_closed(self._log, connection, message.error)
        if message.confirm:
            answer = Gone(message.conn)
            self._journal.call_when_acknowledged(lambda: worker.outbox.append(answer))

    def _forget(self, worker: WorkerProcess | None, connection: RegisteredConnection) -> None:
        """Remove a connection with its links. worker: the worker that had it; None: it had none."""
        if connection.opened:
            self.opened.pop(connection.number, None)
        else:
            self._asked.pop(connection.number, None)
            self._unopened.remove(connection)
            self._given_up.discard(connection.number)
        if connection.way.edge:
            self._opens.closed(connection)
        self._profiles.leave(connection.profile)
        if connection.initiator is not None:
            self._initiated.discard(connection.number)
        self._events.connection_closed(worker, connection)
        connection.links = {}  # each link refers to its connection: so the records are freed without the collector
