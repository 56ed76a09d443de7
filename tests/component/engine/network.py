"""Several routers in this process, joined by inter-router connections.

Engines, cores and the inter-router protocol are the real ones. Octets are moved by hand, and the test sets the time.
"""

from collections.abc import Callable
from typing import Any

import sluice.router.testing.engine as engine
import sluice.supervisor.network.adapter
from sluice.supervisor.connections.connections import ConnectionEnd
from tests.component.engine.host import FaultError, InProcessPeer, InProcessRouter
from tests.peer.talk import frames, start

ROUNDS = 1000
SECONDS = 60  # most seconds that a network may take to converge
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

#: Listener of an interior router for edge routers.
EDGE_LISTENER = """
listener {
    name: edges
    host: 127.0.0.1
    port: 4
    role: edge
    idleTimeoutSeconds: 0
}
"""
#: Edge router with a connector to an interior router.
EDGE = """
router {
    mode: edge
    id: E
}
listener {
    name: main
    host: 127.0.0.1
    port: 0
    idleTimeoutSeconds: 0
}
listener {
    name: open
    host: 127.0.0.1
    port: 3
    idleTimeoutSeconds: 0
    stripAnnotations: no
}
connector {
    host: peer.example
    port: 1
    role: edge
    idleTimeoutSeconds: 0
}
address {
    prefix: multicast
    distribution: multicast
}
address {
    prefix: closest
    distribution: closest
}
"""


class VirtualTime:
    """Replacement for the module `time` in the inter-router protocol."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1_700_000_000.0 + self.now


class IgnoringObserver:
    """Connection observer that ignores all events."""

    def opened(self, connection: Any) -> None:
        pass

    def ended(self, connection: Any, ending: ConnectionEnd, text: str | None) -> None:
        pass


class RouterConnection:
    """Connection between two routers, which moves the octets of each to the other."""

    def __init__(self, network: "InProcessNetwork", first: InProcessPeer, second: InProcessPeer) -> None:
        self.network = network
        self.ends = (first, second)
        self.held = False  # True: nothing passes

    def move(self) -> bool:
        """Move the waiting octets. Return True if there were any."""
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
        """Reset the connection at both ends."""
        for end in self.ends:
            end.lose()


class InProcessNetwork:
    """In-process routers by id. Call `close` at the end."""

    def __init__(
        self, ids: str, workers: int = 1, *, monkeypatch: Any, slots: int | None = None, **options: str
    ) -> None:
        """slots: number of worker slots, see InProcessRouter."""
        self.time = VirtualTime()
        # receives the octets that a router sends to another router
        self.on_octets: Callable[[InProcessRouter, bytes], None] | None = None
        monkeypatch.setattr(sluice.supervisor.network.adapter, "time", self.time)
        fields = {"listener": "", "between": "", "more": "", **options}
        self.before = engine.live_objects()
        self.routers = {
            one: InProcessRouter(workers, CONFIGURATION % {"id": one, **fields}, slots=slots) for one in ids
        }
        self.joints: list[RouterConnection] = []

    def __getitem__(self, router_id: str) -> InProcessRouter:
        return self.routers[router_id]

    def join(
        self, first: str, second: str, *, workers: tuple[int, int] = (0, 0), connector: str = "to"
    ) -> RouterConnection:
        """Connect `first` to `second`, on the workers with these numbers."""
        a, b = self[first], self[second]
        config = next(one for one in a.configuration.connectors if one.name == connector)
        joint = RouterConnection(
            self, a.initiate(workers[0], config, IgnoringObserver()), b.connect(workers[1], "between")
        )
        self.joints.append(joint)
        self.settle()
        return joint

    def settle(self) -> None:
        """Run until nothing moves. Raises FaultError."""
        for _ in range(ROUNDS):
            for router in self.routers.values():
                router.settle()
            if not sum(joint.move() for joint in self.joints):
                break
        else:
            raise FaultError(f"still not quiet after {ROUNDS} rounds")
        self.joints = [joint for joint in self.joints if not all(end.gone for end in joint.ends)]

    def pass_seconds(self, seconds: int) -> None:
        """Let seconds pass for the inter-router protocol and settle after each."""
        for _ in range(seconds):
            self.time.now += 1
            self.settle()

    def until(self, what: Callable[[], object]) -> None:
        """Let time pass until the condition holds. Raises FaultError."""
        for _ in range(SECONDS):
            if what():
                return
            self.pass_seconds(1)
        raise FaultError(f"{what} is not so after {SECONDS} s")

    def converge(self) -> None:
        """Wait until each router can reach all other routers."""
        others = len(self.routers) - 1
        self.until(lambda: all(protocol(router).reachable == others for router in self.routers.values()))

    def known(self, key: str, *at: str) -> None:
        """Wait until every other router knows that the routers `at` have destinations of an address."""

        def all_know() -> bool:
            return all(remotes(router, key) == {*at} - {one} for one, router in self.routers.items())

        self.until(all_know)

    def close(self) -> None:
        """Disconnect all peers and check that nothing is left behind."""
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
        assert engine.live_objects() == self.before


def protocol(router: InProcessRouter) -> Any:
    """Return the router's end of the inter-router protocol."""
    return router.core.routers


def remotes(router: InProcessRouter, key: str) -> set[str]:
    """Return the ids of the remote routers that are destinations of an address."""
    record = router.core.table.records.get(key)
    found = record.remotes if record is not None else None
    return {protocol(router).id_of(index) for index in found or ()}


def client(
    network: InProcessNetwork, router_id: str, *octets: bytes, worker: int = 0, listener: str = "main"
) -> InProcessPeer:
    """Connect a client that sends these frames at once."""
    peer = network[router_id].connect(worker, listener)
    peer.feed(start() + b"".join(octets))
    network.settle()
    frames(peer)
    return peer
