"""Simulated routers of version 1.19 among themselves: they must form a network before other routers are tested with
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.peer import frames, message
from tests.peer.router19.engine import Router19Timers
from tests.peer.router19.loop import Router19Loop
from tests.peer.router19.paths import compute
from tests.peer.router19.router import Router19

#: Short timers, but the full hello age, so that a busy processor does not make routers lose their neighbours.
FAST = replace(Router19Timers().scaled(0.05), hello_max_age=Router19Timers().hello_max_age)
TREATMENTS = {name: name for name in ("multicast", "closest", "balanced")}


@pytest.fixture
def router19_loop() -> Iterator[Router19Loop]:
    """Yield the world whose thread runs the routers."""
    router19_loop = Router19Loop()
    yield router19_loop
    router19_loop.close()


class Router19Network:
    """Routers by name, connected by `link`."""

    def __init__(self, router19_loop: Router19Loop, names: str) -> None:
        self.routers = {name: Router19(router19_loop, name, FAST, addresses=TREATMENTS) for name in names}
        self.ports = {name: router.listen() for name, router in self.routers.items()}

    def link(self, *pairs: str) -> None:
        """Connect the first router of each pair to the second, and wait until each router knows the whole network.

        A router that merely reaches all others may lack a link state, and then releases messages from there: 1.19 does
        not forward from an unknown origin.
        """
        for pair in pairs:
            self.routers[pair[0]].connect(self.ports[pair[1]])
        router19_loop = next(iter(self.routers.values())).world
        peers: dict[str, dict[str, int]] = {name: {} for name in self.routers}
        for pair in pairs:
            peers[pair[0]][pair[1]] = peers[pair[1]][pair[0]] = 1
        paths = {name: compute(name, peers) for name in self.routers}
        router19_loop.wait(
            lambda: {name: router.engine.paths for name, router in self.routers.items()} == paths,
            "everybody knows the whole network",
        )

    def __getitem__(self, name: str) -> Router19:
        return self.routers[name]

    def stop(self) -> None:
        """Stop all routers."""
        for router in self.routers.values():
            router.stop()


def payload(body: str = "hello") -> bytes:
    """Return a message."""
    return message.message(body)


def test_chain_carries_messages_and_outcomes(router19_loop: Router19Loop) -> None:
    net = Router19Network(router19_loop, "ABC")
    net.link("AB", "BC")
    consumer = net["C"].consumer("balanced/x", accept=False)
    net["A"].wait_key("M0balanced/x", "C")
    sent = net["A"].send("balanced/x", payload())
    arrival = consumer.next()
    assert arrival.body == "hello"
    trace = message.annotation(arrival.payload, "x-opt-qd.trace")
    assert trace == ["0/A", "0/B", "0/C"]
    arrival.settle(frames.rejected("test:error", "text"))
    assert sent.outcome() == "rejected"
    assert net["A"].engine.nodes["C"].cost == 2
    net.stop()


def test_triangle_duplicates_multicast_like_original(router19_loop: Router19Loop) -> None:
    net = Router19Network(router19_loop, "ABC")
    net.link("AB", "BC", "CA")
    router19_loop.wait(
        lambda: all(node.cost == 1 for router in net.routers.values() for node in router.engine.nodes.values()),
        "every router is a neighbour of every other",
    )
    consumers = {name: net[name].consumer("multicast/x") for name in "ABC"}
    for name in "ABC":
        net[name].wait_key("M0multicast/x", *(set("ABC") - {name}))
    sent = net["A"].send("multicast/x", payload())
    assert sent.outcome() == "accepted"
    router19_loop.wait(lambda: len(consumers["B"].arrivals) == len(consumers["C"].arrivals) == 2, "two copies each")
    assert len(consumers["A"].arrivals) == 1
    net.stop()


def test_large_message_is_streamed(router19_loop: Router19Loop) -> None:
    net = Router19Network(router19_loop, "ABC")
    net.link("AB", "BC")
    consumer = net["C"].consumer("closest/x")
    net["A"].wait_key("M0closest/x", "C")
    whole = message.message("x" * 300_000)
    sent = net["A"].send("closest/x", whole[:200_000], complete=False)
    router19_loop.wait(lambda: consumer.arrivals and len(consumer.arrivals[0].payload) > 100_000, "the first part")
    sent.extend(whole[200_000:])
    assert consumer.next().body == "x" * 300_000
    assert sent.outcome() == "accepted"
    net.stop()


def test_lost_connection_settles_unsettled_deliveries(router19_loop: Router19Loop) -> None:
    net = Router19Network(router19_loop, "AB")
    net.link("AB")
    net["B"].consumer("closest/x", credit=1, accept=False)
    net["A"].wait_key("M0closest/x", "B")
    sent = net["A"].send("closest/x", payload())
    router19_loop.wait(lambda: net["A"].connections[0].data_out[4].unsettled, "one unsettled")
    router19_loop.call(net["A"].connections[0].drop)
    assert sent.outcome() == "modified"
    net.stop()
