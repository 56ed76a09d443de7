"""Several routers in this process, joined by inter-router connections: engines, cores and the routers' protocol are
real; octets are moved by hand, and time is what the test says.
"""

from collections.abc import Callable
from typing import Any

import router.testing.engine as engine
import supervisor.network.adapter
from supervisor.connections.connections import Ending
from tests.unit.engine.host import FaultError, Peer, Router
from tests.unit.engine.talk import frames, start

ROUNDS = 1000
SECONDS = 60  # until a network must know itself
CONFIGURATION = """
router {
    mode: interior
    id: %(id)s
}
listener {
    name: main
    host: 127.0.0.1
    port: 0
    idleTimeoutSeconds: 0
    %(listener)s
}
listener {
    name: open
    host: 127.0.0.1
    port: 3
    idleTimeoutSeconds: 0
    stripAnnotations: no
}
listener {
    name: between
    host: 127.0.0.1
    port: 1
    role: inter-router
    idleTimeoutSeconds: 0
    %(between)s
}
connector {
    name: to
    host: peer.example
    port: 1
    role: inter-router
    idleTimeoutSeconds: 0
    %(between)s
}
connector {
    name: dear
    host: peer.example
    port: 1
    role: inter-router
    idleTimeoutSeconds: 0
    cost: 10
    %(between)s
}
connector {
    name: dearer
    host: peer.example
    port: 1
    role: inter-router
    idleTimeoutSeconds: 0
    cost: 20
    %(between)s
}
address {
    prefix: multicast
    distribution: multicast
}
address {
    prefix: closest
    distribution: closest
}
address {
    prefix: spare
    enableFallback: yes
}
address {
    prefix: urgent
    priority: 8
}
address {
    prefix: waypoint
    waypoint: yes
}
%(more)s
"""


class VirtualTime:
    """In the place of the module `time`, for the protocol between routers."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1_700_000_000.0 + self.now


class Quiet:
    """Nobody cares what becomes of a connection."""

    def opened(self, connection: Any) -> None:
        pass

    def ended(self, connection: Any, ending: Ending, text: str | None) -> None:
        pass


class Joint:
    """A connection between two routers: what one says the other hears."""

    def __init__(self, network: "Network", first: Peer, second: Peer) -> None:
        self.network = network
        self.ends = (first, second)
        self.held = False  # nothing gets through

    def move(self) -> bool:
        """Let what was said be heard. True: there was something."""
        moved = False
        if self.held:
            return False
        for here, there in (self.ends, reversed(self.ends)):
            octets = here.take()
            if octets:
                moved = True
                if self.network.on_octets is not None:
                    self.network.on_octets(here.host, octets)
                there.feed(octets)
            elif here.gone and not there.gone:
                moved = True
                there.lose()
        return moved

    def cut(self) -> None:
        """The socket is gone, for both."""
        for end in self.ends:
            end.lose()


class Network:
    """Routers by id. `close` it."""

    def __init__(
        self, ids: str, workers: int = 1, *, monkeypatch: Any, slots: int | None = None, **options: str
    ) -> None:
        """slots: of workers, see Router."""
        self.time = VirtualTime()
        self.on_octets: Callable[[Router, bytes], None] | None = None  # what a router says to another one
        monkeypatch.setattr(supervisor.network.adapter, "time", self.time)
        fields = {"listener": "", "between": "", "more": "", **options}
        self.before = engine.alive()
        self.routers = {one: Router(workers, CONFIGURATION % {"id": one, **fields}, slots=slots) for one in ids}
        self.joints: list[Joint] = []

    def __getitem__(self, router_id: str) -> Router:
        return self.routers[router_id]

    def join(self, first: str, second: str, *, workers: tuple[int, int] = (0, 0), connector: str = "to") -> Joint:
        """A connection from `first` to `second`, on these workers of theirs."""
        a, b = self[first], self[second]
        config = next(one for one in a.configuration.connectors if one.name == connector)
        joint = Joint(self, a.initiate(workers[0], config, Quiet()), b.connect(workers[1], "between"))
        self.joints.append(joint)
        self.settle()
        return joint

    def settle(self) -> None:
        """Until nothing moves. Raises FaultError."""
        for _ in range(ROUNDS):
            for router in self.routers.values():
                router.settle()
            if not sum(joint.move() for joint in self.joints):
                break
        else:
            raise FaultError(f"still not quiet after {ROUNDS} rounds")
        self.joints = [joint for joint in self.joints if not all(end.gone for end in joint.ends)]

    def pass_seconds(self, seconds: int) -> None:
        """Let so much time pass for the protocol, and be done with what it says."""
        for _ in range(seconds):
            self.time.now += 1
            self.settle()

    def until(self, what: Callable[[], object]) -> None:
        """Let time pass until that is so. Raises FaultError."""
        for _ in range(SECONDS):
            if what():
                return
            self.pass_seconds(1)
        raise FaultError(f"{what} is not so after {SECONDS} s")

    def converge(self) -> None:
        """Until each router knows a way to each other one."""
        others = len(self.routers) - 1
        self.until(lambda: all(protocol(router).reachable == others for router in self.routers.values()))

    def known(self, key: str, *at: str) -> None:
        """Until every other router knows that those have destinations of an address."""

        def all_know() -> bool:
            return all(remotes(router, key) == {*at} - {one} for one, router in self.routers.items())

        self.until(all_know)

    def close(self) -> None:
        """Everybody leaves, and nothing may be left behind."""
        for router in self.routers.values():
            router.check_quiet()
        for router in self.routers.values():
            for peer in list(router.peers):
                peer.lose()
        self.settle()
        self.pass_seconds(70)  # until routers are forgotten
        for router in self.routers.values():
            router.check_empty()
            router.close()
        assert engine.alive() == self.before


def protocol(router: Router) -> Any:
    """Its end of the protocol between routers."""
    return router.core.routers


def remotes(router: Router, key: str) -> set[str]:
    """Ids of the other routers that an address of this one has as destinations."""
    record = router.core.table.records.get(key)
    found = record.remotes if record is not None else None
    return {protocol(router).id_of(index) for index in found or ()}


def client(network: Network, router_id: str, *octets: bytes, worker: int = 0, listener: str = "main") -> Peer:
    """A client that says this at once."""
    peer = network[router_id].connect(worker, listener)
    peer.feed(start() + b"".join(octets))
    network.settle()
    frames(peer)
    return peer
