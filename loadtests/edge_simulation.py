"""Simulated edge routers at the supervisor of an interior router.

The supervisor's subsystems run in this process; a simulated worker applies every change at once. Several such
supervisors may stand in a line, as interior routers.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections import deque
from typing import Literal, NamedTuple

from loadtests.processes import MeasureError
from sluice.router.config.load import load_text
from sluice.router.control import messages
from sluice.router.control.edge_properties import EDGE, UPLINKS
from sluice.router.control.names import CONTROL_KEY
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.children.worker import WorkerProcess, WorkerStage
from sluice.supervisor.composition import RouterCore
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.edge.messages import Precedence, precedence
from sluice.supervisor.network.neighbour_connections import BUNDLE_PROPERTY

CONFIGURATION = """
router {
    id: %s
    mode: interior
}
listener {
    port: 0
    role: edge
}
listener {
    name: routers
    port: 0
    role: inter-router
}
"""
QUIET = LogSettings({"DEFAULT": ModuleSettings(mask=0)})
DOWNLINK = "qd.router-edge-downlink"
SPARE = 10_000  # addresses beyond those of the edge routers
AT_ONCE = 256  # messages of the worker before the supervisor runs
FAR_LIMIT = 60.0  # seconds until remote routers must know everything
PAUSE = 0.001  # seconds to sleep when idle


class Simulation:
    """Supervisor of an interior router, and its simulated edge routers."""

    def __init__(self, edges: int, addresses: int, several: bool, name: str = "B") -> None:
        """Start the supervisor. several: edge routers have several active uplinks. name: id of the interior router."""
        configuration = load_text("router.conf", CONFIGURATION % name)
        self.name = name
        self._listener, self._routers = configuration.listeners
        # An address of another router takes a second number, for its unsettled deliveries.
        most = 2 * edges * (addresses + 10) + SPARE
        self.core = RouterCore(configuration, ProcessLog(QUIET), most, lambda number: None)
        self._worker = WorkerProcess(0, 1)
        self._worker.stage = WorkerStage.STARTING
        self.core.workers[0] = self._worker
        self._numbers = itertools.count(1)
        self._said = itertools.count(1)
        self._several = several
        self.connections: list[RegisteredConnection] = []
        self._received = 0
        self.longest = 0.0  # CPU seconds of the longest wake
        self.updates: list[int] = []  # sizes of messages from neighbours, in octets
        self._neighbours: dict[int, tuple[Simulation, int]] = {}  # neighbour and its connection number, by ours
        self._coming: deque[tuple[int, bytes]] = deque()  # messages of neighbours, with the connection number
        self._receive(messages.Ready(0))
        self.settle()

    def _receive(self, message: messages.Event) -> None:
        self.core.receive(self._worker, message)
        self._received += 1
        if self._received % AT_ONCE == 0:
            self.settle()

    def settle(self) -> None:
        """Acknowledge all changes. Messages to the worker are dropped."""
        while self.wake():
            pass

    def wake(self) -> bool:
        """Run one wake of the supervisor, with messages from neighbours. Return False if nothing is left to do."""
        began = time.process_time()
        for _ in range(min(AT_ONCE, len(self._coming))):
            number, octets = self._coming.popleft()
            self.core.receive(self._worker, messages.Local(CONTROL_KEY, number), octets)
        more = self.core.work()
        epoch = None
        while (delta := self.core.take_delta()) is not None:
            epoch = delta[0]
        self._worker.outbox.clear()
        self._worker.unconfirmed = 0
        for message, octets in self._worker.sends:
            if isinstance(message, messages.Control) and message.conn in self._neighbours:
                router, number = self._neighbours[message.conn]
                router.updates.append(len(octets))
                router._coming.append((number, octets))
        self._worker.sends.clear()
        self.longest = max(self.longest, time.process_time() - began)
        if epoch is not None:
            self.core.journal.acknowledge(0, epoch)
        return bool(more or epoch is not None or self._coming or self.core.busy)

    def join(self, other: Simulation) -> None:
        """Connect two interior routers."""
        for router, peer in ((self, other), (other, self)):
            adopted = router.core.connections.adopt(router._worker, router._routers, "127.0.0.1:1", "127.0.0.1:2")
            router._open(adopted, peer.name, announced={BUNDLE_PROPERTY: 1})
        for router, peer in ((self, other), (other, self)):
            number = max(router._worker.connections)
            router._neighbours[number] = peer, max(peer._worker.connections)
            router._attach_link(number, "control", "in")
            router._attach_link(number, "control", "out")
            router._attach_link(number, "data", "out")

    def _open(
        self,
        connection: RegisteredConnection,
        container: str,
        properties: dict[str, object] | None = None,
        announced: dict[str, int] | None = None,
    ) -> None:
        self._receive(
            messages.Opened(
                conn=connection.number,
                container=container,
                hostname=None,
                user=None,
                tls=None,
                properties=properties or {},
                announced=announced,
            )
        )

    def _attach_link(self, connection: int, kind: Literal["control", "data"], direction: messages.Direction) -> None:
        number = next(self._numbers)
        self._receive(
            messages.RouterLink(
                conn=connection, link=number, slot=number, gen=1, dir=direction, kind=kind, priority=4, name="", text=""
            )
        )

    def come(self, count: int) -> None:
        """Connect `count` edge routers, with the eight links each."""
        for number in range(count):
            self.come_one(number)
        self.settle()

    def come_one(self, number: int) -> RegisteredConnection:
        """Connect an edge router."""
        connection = self.core.connections.adopt(self._worker, self._listener, "127.0.0.1:1", "127.0.0.1:2")
        self.connections.append(connection)
        self._open(connection, f"E{number}", {EDGE: f"{number:016x}", **({UPLINKS: True} if self._several else {})})
        self._attach(connection, "in", None)
        self._attach(connection, "out", f"E{number}", DOWNLINK)
        self._attach(connection, "out", "_$qd.edge_addr_tracking")
        for service in ("$management", "_$qd.addr_lookup", "_$qd.edge_heartbeat"):
            self._attach(connection, "in", service)
        for _ in range(2):
            self._attach(connection, "out", None, dynamic=True)
        return connection

    def _attach(
        self,
        connection: RegisteredConnection,
        direction: messages.Direction,
        address: str | None,
        *caps: str,
        dynamic: bool = False,
    ) -> None:
        number = next(self._numbers)
        self._receive(
            messages.Attach(
                conn=connection.number,
                link=number,
                slot=number,
                gen=1,
                dir=direction,
                name=f"qdlink.{number}",
                address=address,
                dynamic=dynamic,
                dynamic_address=None,
                caps=(list(caps), False),
                coordinator=False,
                expiry=None,
                timeout=0,
                tenant=None,
                channel=0,
                text="",
            )
        )

    def announce(self, addresses: int) -> None:
        """Attach consumers to `addresses` addresses at each edge router."""
        for place, connection in enumerate(self.connections):
            self.announce_one(place, connection, addresses)
        self.settle()

    def announce_one(self, place: int, connection: RegisteredConnection, addresses: int) -> None:
        """Attach consumers to `addresses` addresses at an edge router."""
        for number in range(addresses):
            self._attach(connection, "out", f"site{place}.{number}")

    def say(self, *routers: str) -> None:
        """Announce the order of uplinks from each edge router."""
        for connection in self.connections:
            octets = precedence(Precedence(next(self._said), routers, complete=True))
            self.core.in_process.receive(
                self._worker, messages.Local("M0_$qd.sluice.uplinks", connection.number), octets
            )
        self.settle()

    @property
    def reachable(self) -> int:
        """Number of other interior routers that are reachable."""
        assert self.core.routers is not None
        return self.core.routers.reachable

    @property
    def known(self) -> int:
        """Number of edge routers' addresses that have a consumer, here or at another router."""
        records = [record for record in self.core.table.records.values() if record.key.startswith("M0site")]
        return sum(record.consumers is not None or bool(record.remotes) for record in records)

    def go(self) -> None:
        """Close all connections of edge routers."""
        for connection in self.connections:
            self._receive(messages.Closed(conn=connection.number, error=None))
        self.connections.clear()
        self.settle()


class LearnedAddresses(NamedTuple):
    """Result of one supervisor: seconds until it knew all addresses, its CPU seconds, the CPU seconds of its longest
    wake, and the sizes in octets of messages from neighbours.
    """

    seconds: float
    cpu: float
    longest: float
    updates: list[int]


def converge(edges: int, addresses: int, far: int, within: float) -> list[LearnedAddresses]:
    """Connect edge routers evenly within `within` seconds, each with its addresses, to the first of a line of
    supervisors that share one core. Return the results of all. Raises MeasureError.

    far: supervisors behind the first one. Must be called in a process of its own: no garbage is collected afterwards.
    """
    gc.freeze()
    line = [Simulation(edges, addresses, several=False, name=name) for name in ("B", *(f"C{n}" for n in range(far)))]
    for one, other in itertools.pairwise(line):
        one.join(other)
    until = time.monotonic() + FAR_LIMIT
    while any(router.reachable < far for router in line):
        _turn(line, until)
    for router in line:
        router.longest = 0.0
        router.updates.clear()
    gc.disable()  # a collection would traverse the objects of all routers in a wake of one
    began, come, known = time.monotonic(), 0, [0.0] * len(line)
    cpu = [0.0] * len(line)
    until = began + within + FAR_LIMIT
    while not all(known):
        while come < edges and time.monotonic() >= began + within * come / edges:
            spent = time.process_time()
            line[0].announce_one(come, line[0].come_one(come), addresses)
            cpu[0] += time.process_time() - spent
            come += 1
            if come % (AT_ONCE // (addresses + 9) + 1) == 0:
                break  # as many messages as one wake takes
        _turn(line, until, cpu)
        for place, router in enumerate(line):
            if come == edges and not known[place] and router.known == edges * addresses:
                known[place] = time.monotonic() - began
    return [
        LearnedAddresses(seconds, spent, router.longest, router.updates)
        for router, seconds, spent in zip(line, known, cpu, strict=True)
    ]


def _turn(line: list[Simulation], until: float, cpu: list[float] | None = None) -> None:
    """Run one wake of each router with work. cpu: CPU seconds by router, to which the wakes are added."""
    if time.monotonic() > until:
        raise MeasureError(f"the routers know {[router.known for router in line]} addresses after {FAR_LIMIT:g} s")
    busy = False
    for place, router in enumerate(line):
        spent = time.process_time()
        busy |= router.wake()
        if cpu is not None:
            cpu[place] += time.process_time() - spent
    if not busy:
        time.sleep(PAUSE)
