"""Simulated routers: engines, the connections between them, and a clock that jumps to the next event."""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from sluice.supervisor.network.protocol.engine import Engine
from sluice.supervisor.network.protocol.outputs import KeysChanged, PathChanged, RouterAdded, RouterRemoved, Unreachable
from sluice.supervisor.network.protocol.timers import ProtocolLimits, Timers

EPOCH = 1_800_000_000  # seconds since 1970 at time 0 of the clock


@dataclass(slots=True, eq=False)
class Wire:
    """Connection between two routers. `up`: octets pass."""

    ends: tuple[int, int]
    numbers: tuple[int, int]  # numbers of its links at either end
    cost: int
    latency: float
    up: bool = True


@dataclass(slots=True, eq=False)
class Mirror:
    """Sum of an engine's changes, as the supervisor's table would hold it."""

    ids: dict[int, str] = field(default_factory=dict)
    paths: dict[int, PathChanged] = field(default_factory=dict)
    keys: dict[int, dict[str, int | None]] = field(default_factory=dict)

    def apply(self, change: object) -> None:
        """Apply a change. Raises AssertionError if it does not fit the earlier ones."""
        if isinstance(change, RouterAdded):
            assert change.index > 0
            assert change.index not in self.ids
            assert change.id not in self.ids.values()
            self.ids[change.index] = change.id
            self.keys[change.index] = {}
        elif isinstance(change, RouterRemoved):
            del self.ids[change.index], self.keys[change.index]
            self.paths.pop(change.index, None)
        elif isinstance(change, PathChanged):
            assert change.links
            assert {change.index, change.next_hop} <= self.ids.keys()
            self.paths[change.index] = change
        elif isinstance(change, Unreachable):
            del self.paths[change.index]
        elif isinstance(change, KeysChanged):
            keys = self.keys[change.index]
            assert not change.added.keys() & (keys.keys() | set(change.removed))
            for key in change.removed:
                del keys[key]
            keys.update(change.added)


@dataclass(slots=True, eq=False)
class SimulatedRouter:
    number: int
    id: str
    engine: Engine
    wires: dict[int, Wire] = field(default_factory=dict)  # by this router's number of the link
    links: int = 0  # number of links so far
    wake: float = 0.0  # time of the next planned tick
    alive: bool = True
    keys: dict[str, int] = field(default_factory=dict)  # announced keys
    mirror: Mirror | None = None


class SimulatedNetwork:
    """Network of engines. `seed` determines latencies; the caller triggers events."""

    def __init__(
        self,
        seed: int,
        timers: Timers | None = None,
        mirrors: int = 0,
        foreign: frozenset[int] = frozenset(),
        limits: ProtocolLimits | None = None,
    ) -> None:
        """Create an empty network. mirrors: number of routers whose changes are added up.

        foreign: numbers of routers that count as 1.19 to the others.
        """
        self.rng = random.Random(seed)
        self.timers = timers or Timers()
        self.limits = limits or ProtocolLimits()
        self.now = 0.0
        self.routers: list[SimulatedRouter] = []
        self.wires: dict[tuple[int, int], list[Wire]] = {}
        self.messages = 0
        self.octets = 0
        self._mirrors = mirrors
        self._foreign = foreign
        # (when, order, connection, receiving end, message), or (when, order, None, router to wake or action, b"")
        self._queue: list[tuple[float, int, Wire | None, Any, bytes]] = []
        self._order = count()
        self._dirty: dict[int, SimulatedRouter] = {}
        self.on_message: Callable[[Wire, bytes], None] | None = None

    # -- routers

    def add_router(self, name: str | None = None) -> SimulatedRouter:
        number = len(self.routers)
        name = name or f"R{number}"
        router = SimulatedRouter(number, name, self._engine(name))
        if number < self._mirrors:
            router.mirror = Mirror()
        self.routers.append(router)
        self._touch(router)
        return router

    def _engine(self, name: str, clock: int = 0) -> Engine:
        return Engine(name, EPOCH + int(self.now) + clock, self.timers, self.now, self.limits)

    def kill(self, router: SimulatedRouter) -> None:
        """End a router's process; its neighbours see their connections close."""
        router.alive = False
        for wire in list(router.wires.values()):
            self.cut(wire)

    def restart(self, router: SimulatedRouter, clock: int = 0) -> None:
        """Start a new process with the same id; only `connect` connects it. clock: seconds that its clock is fast."""
        router.engine = self._engine(router.id, clock)
        router.alive = True
        if router.mirror is not None:
            router.mirror = Mirror()
        for key, treatment in router.keys.items():
            router.engine.announce(key, treatment, self.now)
        self._touch(router)

    def announce(self, router: SimulatedRouter, key: str, treatment: int) -> None:
        router.keys[key] = treatment
        router.engine.announce(key, treatment, self.now)
        self._touch(router)

    def withdraw(self, router: SimulatedRouter, key: str) -> None:
        del router.keys[key]
        router.engine.withdraw(key, self.now)
        self._touch(router)

    # -- connections

    def connect(self, a: int, b: int, cost: int, latency: float | None = None) -> Wire:
        ends = (self.routers[a], self.routers[b])
        numbers = []
        for end in ends:
            end.links += 1
            numbers.append(end.links)
        wire = Wire((a, b), (numbers[0], numbers[1]), cost, latency or self.rng.uniform(0.0002, 0.005))
        self.wires.setdefault((min(a, b), max(a, b)), []).append(wire)
        ours = not self._foreign & {a, b}
        for end, number in zip(ends, numbers, strict=True):
            end.wires[number] = wire
            end.engine.link_up(number, cost, ours, self.now)
            self._touch(end)
        return wire

    def cut(self, wire: Wire) -> None:
        """Lose a connection: both ends notice now, and messages in flight are dropped."""
        wire.up = False
        a, b = wire.ends
        self.wires[min(a, b), max(a, b)].remove(wire)
        for end, number in zip((self.routers[a], self.routers[b]), wire.numbers, strict=True):
            del end.wires[number]
            if end.alive:
                end.engine.link_down(number, self.now)
                self._touch(end)

    def silence(self, wire: Wire) -> None:
        """Stop forwarding on a connection that neither end sees close."""
        wire.up = False

    # -- time

    def at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (when, next(self._order), None, action, b""))

    def _touch(self, router: SimulatedRouter) -> None:
        self._dirty[router.number] = router

    def _serve(self, router: SimulatedRouter) -> None:
        """Collect the output of an engine after it has been touched; plan its tick."""
        engine = router.engine
        now = self.now
        deadline = engine.deadline()
        if deadline <= now:
            engine.tick(now)
            deadline = engine.deadline()
        for link, octets in engine.take_sends():
            wire = router.wires.get(link)
            if wire is not None and wire.up:
                side = 1 if wire.ends[0] == router.number else 0
                self.messages += 1
                self.octets += len(octets)
                if self.on_message is not None:
                    self.on_message(wire, octets)
                heapq.heappush(self._queue, (now + wire.latency, next(self._order), wire, side, octets))
        changes = engine.take_changes()
        if router.mirror is not None:
            for change in changes:
                router.mirror.apply(change)
        engine.take_log()
        if deadline != router.wake:
            router.wake = deadline
            heapq.heappush(self._queue, (max(now, deadline), next(self._order), None, router, b""))

    def _arrive(self, wire: Wire, side: int, octets: bytes) -> None:
        other = self.routers[wire.ends[side]]
        number = wire.numbers[side]
        # A connection ends with the process of either end, so that no message reaches a later process.
        if wire.up and other.alive:
            other.engine.receive(number, octets, self.now)
            self._dirty[other.number] = other

    def run(self, until: float) -> None:
        """Run all events up to a time."""
        queue = self._queue
        while True:
            while self._dirty:
                _, router = self._dirty.popitem()
                if router.alive:
                    self._serve(router)
            if not queue or queue[0][0] > until:
                break
            when = self.now = queue[0][0]
            while queue and queue[0][0] <= when:
                _, _, wire, what, octets = heapq.heappop(queue)
                if wire is not None:
                    self._arrive(wire, what, octets)
                elif isinstance(what, SimulatedRouter):
                    if what.wake <= when:
                        what.wake = -1.0
                        self._dirty[what.number] = what
                else:
                    what()
        self.now = until
