"""Drain of the router before it exits: readiness off, listeners closed, connections closed at a limited rate."""

import math
import socket
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from sluice.router.amqp.errors import CONNECTION_FORCED
from sluice.router.config.roles import BETWEEN_ROUTERS, EVERY_ROLE
from sluice.router.log import ProcessLog
from sluice.supervisor.composition import RouterCore, Services
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.drain.leaving import WITHDRAWAL_SECONDS, Leaving, LeavingConnection, LinkCounters
from sluice.supervisor.drain.pace import Pace
from sluice.supervisor.drain.stage import DrainStage, stage_of
from sluice.supervisor.runtime.waker import Cancellable

DEFAULT_GRACE: Final = 60  # seconds of a requested drain, if shutdownGraceSeconds is 0
STEP_SECONDS: Final = 0.05  # interval of the drain's steps
CHECKS_PER_STEP: Final = 500  # leaving connections whose counters are read in one step
CLOSE_SECONDS: Final = 2.0  # time limit for connections to end once all have been closed
# Time limit of stage NETWORK. New clients wait for that long, because neither process accepts them.
NETWORK_SECONDS: Final = 5.0
TEXT: Final = "the router is about to exit: connect to another one"


class DrainBegun(NamedTuple):
    """Facts about a drain that has begun: connections, limit of its time in seconds, connections closed in a second."""

    connections: int
    seconds: float
    per_second: int


class HandOver(NamedTuple):
    """Take-over of the router by another process.

    taken: listening sockets that the process uses. yielded: called when no connection to a router is left, or after
    NETWORK_SECONDS.
    """

    taken: Collection[socket.socket]
    yielded: Callable[[], None]


class RouterDrain:
    """Drain of the router, from its begin until no connection is left or its time is over. Owner: the supervisor."""

    def __init__(
        self,
        core: RouterCore,
        services: Services,
        counters: LinkCounters,
        finished: Callable[[], None],
        log: ProcessLog,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """finished: called at the end of the drain."""
        self._core: Final = core
        self._services: Final = services
        self._leaving: Final = Leaving(core, counters)
        self._finished: Final = finished
        self._log: Final = log
        self._clock: Final = clock
        self._begun: DrainBegun | None = None
        self._deadline = 0.0
        self._begins: Pace | None = None  # rate at which connections begin to leave
        self._closes: Pace | None = None  # rate at which settled connections are closed
        self._stage = DrainStage.CLIENTS
        self._hand_over: HandOver | None = None
        self._routers_leave_at = 0.0  # time at which connections of routers begin to leave in stage NETWORK
        self._yields_until = 0.0  # end of stage NETWORK
        self._waiting: deque[RegisteredConnection] = deque()  # of this stage, in order of their opens
        self._unsettled: deque[LeavingConnection] = deque()  # leaving
        self._settled: deque[RegisteredConnection] = deque()  # to be closed
        self._closing: set[int] = set()  # numbers of the connections that have been closed
        self._timer: Cancellable | None = None

    @property
    def active(self) -> bool:
        """True from the begin of the drain on."""
        return self._begun is not None

    def begin(self, seconds: float, per_second: int, reason: str, hand_over: HandOver | None = None) -> DrainBegun:
        """Begin the drain, unless it has begun.

        seconds: time limit. per_second: connections that may leave in a second; more if half of the time would not be
        enough for all. hand_over: another process takes over.
        """
        if self._begun is not None:
            return self._begun
        connections = len(self._core.connections.opened)
        pace = max(per_second, math.ceil(2 * connections / seconds))
        self._begun = DrainBegun(connections, seconds, pace)
        now = self._clock()
        self._deadline = now + seconds
        self._begins, self._closes = Pace(pace, STEP_SECONDS, now), Pace(pace, STEP_SECONDS, now)
        unit = "connection" if connections == 1 else "connections"
        text = f"{reason}: draining {connections} {unit}, {pace} a second, for at most {seconds:g} seconds"
        self._log.notice("SERVER", text)
        if hand_over is None:
            self._services.acceptor.drain()
        else:
            self._begin_hand_over(hand_over, now)
        self._services.connectors.stop()
        # Brokers lose their connections because this router exits: no outage.
        self._core.auto_links.stop()
        self._core.link_routes.stop()
        if self._core.uplink is not None:
            self._core.uplink.absence.end()
        self._core.absent_routers.end()
        self._core.connections.drain(EVERY_ROLE if hand_over is None else BETWEEN_ROUTERS)
        if self._core.routers is not None:
            self._core.routers.drain()
        self._core.waker.wake()
        self._later()
        return self._begun

    def _begin_hand_over(self, hand_over: HandOver, now: float) -> None:
        """Leave the listening sockets to another process, and all other routers first."""
        self._hand_over = hand_over
        self._stage = DrainStage.NETWORK
        self._yields_until = min(now + NETWORK_SECONDS, (now + self._deadline) / 2)
        self._services.acceptor.drain(hand_over.taken)
        self._services.http.release()
        if any(each.origin.role in BETWEEN_ROUTERS for each in self._core.connections.opened.values()):
            self._leaving.leave_network()
            self._routers_leave_at = now + WITHDRAWAL_SECONDS

    def stop(self) -> None:
        """Do nothing more, because the router ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _later(self) -> None:
        self._timer = self._core.waker.later(STEP_SECONDS, self._step)

    def _step(self) -> None:
        """Let further connections leave, and close those that are settled."""
        now = self._clock()
        self._closing.intersection_update(self._core.connections.opened)
        if now >= self._deadline:
            self._end_by_force(now)
            return
        if self._stage is DrainStage.NETWORK and now >= self._yields_until:
            self._close_network(now)
        if self._is_stage_over():
            if self._stage is DrainStage.NETWORK:
                assert self._hand_over is not None
                self._hand_over.yielded()
            if self._stage is DrainStage.ROUTERS:
                if self._has_late_clients():
                    self._stage = DrainStage.CLIENTS
                    self._later()
                    return
                self._log.notice("SERVER", "Drained: all connections are closed")
                self._finished()
                return
            self._stage = DrainStage(self._stage + 1)
        self._begin_some(now)
        self._check_some(now)
        self._close_some(now)
        self._core.waker.wake()
        self._later()

    def _is_stage_over(self) -> bool:
        """Return whether no connection of this stage is left; if some opened late, they leave as well."""
        if self._waiting or self._unsettled or self._settled:
            return False
        opened, taken_over = self._core.connections.opened.values(), self._hand_over is not None
        self._waiting.extend(
            each for each in opened if not each.closing and stage_of(each, taken_over=taken_over) is self._stage
        )
        return not self._waiting and not self._closing

    def _has_late_clients(self) -> bool:
        """Return whether clients are left that connected before another process took over: they must not be reset."""
        if self._hand_over is None:
            return False
        connections = self._core.connections
        return bool(connections.opened or connections.unopened or self._services.http.connections)

    def _close_network(self, now: float) -> None:
        """Close the rest of stage NETWORK, whatever is unsettled."""
        rest = [*self._waiting, *(leaving.connection for leaving in self._unsettled), *self._settled]
        for each in (self._waiting, self._unsettled, self._settled):
            each.clear()
        unsettled = sum(self._leaving.unsettled(connection) for connection in rest if self._is_open(connection))
        if rest:
            unit = "connection" if len(rest) == 1 else "connections"
            text = f"Take-over: closing {len(rest)} {unit} of routers with {unsettled} deliveries not settled"
            self._log.warning("SERVER", text)
        for connection in rest:
            self._close(connection)
        if now >= self._yields_until + CLOSE_SECONDS:
            self._closing.clear()

    def _begin_some(self, now: float) -> None:
        assert self._begins is not None
        count = self._begins.take(now, len(self._waiting))
        if self._stage is DrainStage.NETWORK:  # routers are few, and all clients wait for them
            count = len(self._waiting) if now >= self._routers_leave_at else 0
        for _ in range(count):
            connection = self._waiting.popleft()
            if self._is_open(connection):
                self._unsettled.append(self._leaving.begin(connection, now))

    def _check_some(self, now: float) -> None:
        for _ in range(min(CHECKS_PER_STEP, len(self._unsettled))):
            leaving = self._unsettled.popleft()
            if not self._is_open(leaving.connection):
                continue
            if self._leaving.settled(leaving, now):
                self._settled.append(leaving.connection)
            else:
                self._unsettled.append(leaving)

    def _close_some(self, now: float) -> None:
        assert self._closes is not None
        count = self._closes.take(now, len(self._settled))
        for _ in range(len(self._settled) if self._stage is DrainStage.NETWORK else count):
            self._close(self._settled.popleft())

    def _is_open(self, connection: RegisteredConnection) -> bool:
        return not connection.closing and connection.number in self._core.connections.opened

    def _close(self, connection: RegisteredConnection) -> None:
        if self._is_open(connection):
            self._core.connections.close(connection, CONNECTION_FORCED, TEXT, redirect=True)
            self._closing.add(connection.number)

    def _end_by_force(self, now: float) -> None:
        """Close all connections at the deadline, and end when they have ended, or after CLOSE_SECONDS."""
        opened = self._core.connections.opened
        rest = [connection for connection in opened.values() if not connection.closing]
        if rest:
            unsettled = sum(self._leaving.unsettled(connection) for connection in rest)
            unit = "connection" if len(rest) == 1 else "connections"
            text = f"The time for draining is over: closing {len(rest)} {unit} with {unsettled} deliveries not settled"
            self._log.warning("SERVER", text)
            for connection in rest:
                self._close(connection)
            self._core.waker.wake()
        if not opened or now >= self._deadline + CLOSE_SECONDS:
            self._finished()
        else:
            self._later()
