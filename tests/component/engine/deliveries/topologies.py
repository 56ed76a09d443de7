"""Routers of a random conversation: the connection points of producers and consumers, and how the routers settle."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pytest

import sluice.router.testing.engine as engine
from tests.component.engine.host import InProcessPeer, InProcessRouter, configuration
from tests.component.engine.network import EDGE, EDGE_LISTENER, IgnoringObserver, InProcessNetwork, RouterConnection

CAPACITY: Final = 4000
LIMITS: Final = f"linkCapacity: {CAPACITY}; maxSessionFrames: {2 * CAPACITY}"
#: Seconds until routers know all consumers.
WAIT_SECONDS: Final = 3


@dataclass
class ConversationTopology:
    """Routers of one conversation; the producers' router is the first."""

    routers: list[InProcessRouter]
    settle: Callable[[], None]
    learn: Callable[[], None]  # wait until all routers know all consumers
    routed: bool = False

    def connect(self, router: int, worker: int, listener: str = "main") -> InProcessPeer:
        """Connect to a worker of a router; both numbers wrap around."""
        to = self.routers[router % len(self.routers)]
        return to.connect(worker % len(to.workers), listener)

    def check_quiet(self) -> None:
        for router in self.routers:
            router.check_quiet()


@contextmanager
def single_router(workers: int, *, routed: bool = False) -> Iterator[ConversationTopology]:
    before = engine.live_objects()
    router = InProcessRouter(workers, configuration(LIMITS))
    yield ConversationTopology([router], router.settle, router.settle, routed)
    for peer in list(router.peers):
        peer.lose()
    router.settle()
    router.check_empty()
    router.close()
    assert engine.live_objects() == before


@contextmanager
def two_routers(workers: int, *, edge: bool) -> Iterator[ConversationTopology]:
    """Yield two interior routers, or an interior and an edge router."""
    limits = LIMITS.replace("; ", "\n    ")
    with pytest.MonkeyPatch.context() as patch:
        made = InProcessNetwork("A" if edge else "AB", workers, monkeypatch=patch, listener=limits, more=EDGE_LISTENER)
        if edge:
            listener = f"port: 0\n    {limits}"
            other = made.routers["E"] = InProcessRouter(workers, EDGE.replace("port: 0", listener, 1))
            (uplink,) = other.configuration.connectors
            made.joints.append(
                RouterConnection(
                    made, other.initiate(0, uplink, IgnoringObserver()), made["A"].connect(workers - 1, "edges")
                )
            )
        else:
            made.join("A", "B", workers=(workers - 1, 0))
        made.pass_seconds(WAIT_SECONDS)
        yield ConversationTopology([*made.routers.values()], made.settle, lambda: made.pass_seconds(WAIT_SECONDS))
        made.close()


@contextmanager
def open_topology(name: str, workers: int) -> Iterator[ConversationTopology]:
    """Yield the topology called `name`: `router`, `hop`, `edge` or `routed`."""
    if name in ("hop", "edge"):
        with two_routers(workers, edge=name == "edge") as found:
            yield found
    else:
        with single_router(workers, routed=name == "routed") as found:
            yield found
