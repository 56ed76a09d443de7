"""Random events in a simulated network, and the check of its state against the model."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from loadtests.network.model import Graph, distances
from loadtests.network.simulated import Mirror, SimulatedNetwork, SimulatedRouter, Wire
from loadtests.network.topologies import TOPOLOGIES
from sluice.supervisor.network.protocol.timers import ProtocolLimits, Timers

# Virtual seconds until the network must have converged: after the start, and after an event. A held (damped) neighbour
# may take half a minute, and changes behind a silent one three seconds; longer times apply where these occur.
COLD: Final = 4.0
QUIET: Final = 4.0
FOREIGN: Final = 12.0  # added if some routers count as 1.19, which announce and request at their own pace
HELD: Final = 40.0


@dataclass
class ModelMismatch:
    """Difference between a router's state and the model."""

    router: str
    about: str
    text: str


@dataclass
class RandomEventNetwork:
    """Simulated network with a topology, addresses and events."""

    size: int
    addresses: int
    topology: str
    seed: int
    timers: Timers = field(default_factory=Timers)
    mirrors: int = 8
    foreign: int = 0  # number of routers that count as 1.19
    limits: ProtocolLimits = field(default_factory=ProtocolLimits)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        foreign = frozenset(self.rng.sample(range(self.size), self.foreign))
        self.network = SimulatedNetwork(self.seed, self.timers, self.mirrors, foreign, limits=self.limits)
        for _ in range(self.size):
            self.network.add_router()
        self.edges = TOPOLOGIES[self.topology](self.size, self.rng)
        self.names = 0
        for number in range(self.addresses):
            self.add_key(self.network.routers[number % self.size])
        for (a, b), cost in self.edges.items():
            self.network.connect(a, b, cost)
        self.lost: list[tuple[int, int, int]] = []  # ends and cost of connections that were cut
        self.dead: list[SimulatedRouter] = []

    def add_key(self, router: SimulatedRouter) -> None:
        self.names += 1
        self.network.announce(router, f"M0address.{self.names}", self.rng.randrange(5))

    # -- events

    def alive(self) -> list[SimulatedRouter]:
        return [router for router in self.network.routers if router.alive]

    def wires(self) -> list[Wire]:
        return [wire for wires in self.network.wires.values() for wire in wires]

    def _connect(self, a: int, b: int, cost: int) -> None:
        if self.network.routers[a].alive and self.network.routers[b].alive:
            self.network.connect(a, b, cost)
        else:
            self.lost.append((a, b, cost))

    def _cut(self, wire: Wire) -> None:
        self.network.cut(wire)
        self.lost.append((*wire.ends, wire.cost))

    def cut(self) -> str:
        wires = self.wires()
        if not wires:
            return "nothing to cut"
        wire = self.rng.choice(wires)
        self._cut(wire)
        return f"cut {wire.ends}"

    def heal(self) -> str:
        ready = [ends for ends in self.lost if all(self.network.routers[end].alive for end in ends[:2])]
        if not ready:
            return "nothing to heal"
        ends = self.rng.choice(ready)
        self.lost.remove(ends)
        self._connect(*ends)
        return f"heal {ends[:2]}"

    def kill(self) -> str:
        alive = self.alive()
        if len(alive) < 2:
            return "nobody to kill"
        router = self.rng.choice(alive)
        for wire in list(router.wires.values()):
            self._cut(wire)
        self.network.kill(router)
        self.dead.append(router)
        return f"kill {router.id}"

    def revive(self) -> str:
        if not self.dead:
            return "nobody to revive"
        router = self.dead.pop(self.rng.randrange(len(self.dead)))
        clock = self.rng.choice((0, -1000))
        self.network.restart(router, clock)
        mine = [ends for ends in self.lost if router.number in ends[:2]]
        for ends in mine:
            self.lost.remove(ends)
            self._connect(*ends)
        return f"revive {router.id}" + f" with its clock {-clock} s back" * bool(clock)

    def restart(self) -> str:
        """Kill a router and restart it 1.2 s later."""
        text = self.kill()
        if text.startswith("kill"):
            self.network.run(self.network.now + 1.2)
            text = f"re{self.revive()}" if self.dead else text
        return text

    def partition(self) -> str:
        """Cut all connections between two halves, and restore them 2 s later."""
        half = {router for router in range(self.size) if self.rng.random() < 0.5}
        between = [wire for wire in self.wires() if (wire.ends[0] in half) != (wire.ends[1] in half)]
        for wire in between:
            self.network.cut(wire)
        self.network.run(self.network.now + 2.0)
        self.storm(self.size)
        self.network.run(self.network.now + 0.5)
        for wire in between:
            self._connect(*wire.ends, wire.cost)
        return f"partition of {len(between)} connections, healed"

    def storm(self, most: int = 200) -> str:
        """Announce and withdraw addresses all over the network."""
        alive = self.alive()
        for _ in range(most):
            router = self.rng.choice(alive)
            if router.keys and self.rng.random() < 0.5:
                self.network.withdraw(router, self.rng.choice(list(router.keys)))
            else:
                self.add_key(router)
        return f"{most} addresses come and go"

    def flap(self) -> str:
        """Cut and restore one connection six times in three seconds."""
        wires = self.wires()
        if not wires:
            return "nothing to flap"
        wire = self.rng.choice(wires)
        ends = (*wire.ends, wire.cost)
        for _ in range(6):
            self.network.cut(wire)
            self.network.run(self.network.now + 0.2)
            wire = self.network.connect(*ends)
            self.network.run(self.network.now + 0.3)
        return f"flap {ends[:2]}"

    def recost(self) -> str:
        """Open a connection with another cost beside an existing one, which is then closed."""
        wires = self.wires()
        if not wires:
            return "nothing to change"
        wire = self.rng.choice(wires)
        self.network.connect(*wire.ends, self.rng.randint(1, 10))
        self.network.run(self.network.now + 0.1)
        self.network.cut(wire)
        return f"cost of {wire.ends}"

    def event(self) -> tuple[str, float]:
        """Cause a random event. Return its description, and the virtual seconds until it must be over."""
        kinds: list[tuple[Callable[[], str], int]] = [
            (self.cut, 5), (self.heal, 5), (self.kill, 2), (self.revive, 2), (self.restart, 2), (self.storm, 3),
            (self.recost, 2), (self.partition, 1), (self.flap, 1),
        ]  # fmt: skip
        chosen = self.rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
        text = chosen()
        return text, (HELD if chosen in (self.flap, self.partition) else QUIET) + FOREIGN * bool(self.foreign)

    # -- the model

    def graph(self) -> Graph:
        found: dict[str, dict[str, int]] = {router.id: {} for router in self.alive()}
        for wire in self.wires():
            if wire.up:
                a, b = (self.network.routers[end].id for end in wire.ends)
                for one, other in ((a, b), (b, a)):
                    found[one][other] = min(wire.cost, found[one].get(other, wire.cost))
        return found

    def faults(self, most: int = 10) -> list[ModelMismatch]:
        """Compare engines with the model: costs, reachability, next hops that do not lead nearer, keys."""
        graph = self.graph()
        costs = {router: distances(graph, router) for router in graph}
        by_id = {router.id: router for router in self.network.routers}
        found: list[ModelMismatch] = []
        for router in self.alive():
            for other in self.network.routers:
                if other is not router and len(found) < most:
                    self._compare(router, other, graph, costs, by_id, found)
            if router.mirror is not None:
                self._compare_mirror(router, router.mirror, found)
        return found

    def _compare(
        self,
        router: SimulatedRouter,
        other: SimulatedRouter,
        graph: Graph,
        costs: dict[str, dict[str, int]],
        by_id: dict[str, SimulatedRouter],
        found: list[ModelMismatch],
    ) -> None:
        engine = router.engine
        path = engine.path(other.id)
        cost = costs[router.id].get(other.id) if other.alive else None
        if (path.cost if path is not None else None) != cost:
            found.append(ModelMismatch(router.id, other.id, f"cost {path and path.cost}, should be {cost}"))
            return
        if path is None:
            return
        ends = {router.wires[link].ends for link in path.links if link in router.wires}
        peers = {self.network.routers[a + b - router.number].id for a, b in ends}
        if len(peers) != 1 or len(path.links) != sum(link in router.wires for link in path.links):
            found.append(ModelMismatch(router.id, other.id, f"links {path.links} lead to {peers}"))
            return
        # Each hop reduces the remaining cost by the cost of its link: no loops, and the whole path is a shortest one.
        nearer = costs[peers.pop()][other.id]
        price = {router.wires[link].cost for link in path.links}
        if price != {path.cost - nearer}:
            found.append(ModelMismatch(router.id, other.id, f"next hop of cost {price} leaves {nearer} of {path.cost}"))
        if engine.keys_of(other.id) != other.keys:
            known = engine.keys_of(other.id) or {}
            found.append(ModelMismatch(router.id, other.id, f"{len(known)} keys, should be {len(other.keys)}"))

    def _compare_mirror(self, router: SimulatedRouter, mirror: Mirror, found: list[ModelMismatch]) -> None:
        """Compare the sum of an engine's changes with its state."""
        rows = {row.index: row for row in router.engine.routers() if row.index}
        if mirror.ids != {index: row.id for index, row in rows.items()}:
            found.append(ModelMismatch(router.id, "changes", "other routers than known"))
            return
        for index, row in rows.items():
            path = mirror.paths.get(index)
            if path != router.engine.path(row.id) or mirror.keys[index] != router.engine.keys(index):
                found.append(ModelMismatch(router.id, row.id, "changes come to something else"))
