"""Larger networks of both kinds of routers (line, star, ring): all routers reach each other on shortest paths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.interop.network.net import InteropNetwork, Sluice
from tests.peer import message
from tests.peer.router19.loop import Router19Loop
from tests.peer.router19.router import Router19

Fresh = Callable[..., str]


class MixedNetwork:
    """Network of routers under test and routers of 1.19, by name; small letters are of 1.19.

    `shape` has pairs of names: the first router connects to the second.
    """

    def __init__(self, network: InteropNetwork, shape: str) -> None:
        self.network = network
        self.shape = shape.split()
        self.ports: dict[str, int] = {}
        self.routers: dict[str, Sluice | Router19] = {}
        for name in sorted(set(shape.replace(" ", "")), reverse=True):
            if name.islower():
                original = network.router19(name)
                self.routers[name], self.ports[name] = original, original.listen()
        waiting = sorted({one for one in shape.replace(" ", "") if one.isupper()})
        while waiting:
            name = next(one for one in waiting if all(pair[1] in self.ports for pair in self.shape if pair[0] == one))
            waiting.remove(name)
            to = [(self.ports[pair[1]], 1) for pair in self.shape if pair[0] == name]
            sluice = network.sluice(name, to=to)
            self.routers[name], self.ports[name] = sluice, sluice.ports["ir"]
        for pair in self.shape:
            one = self.routers[pair[0]]
            if isinstance(one, Router19):
                one.connect(self.ports[pair[1]])
        network.wait_converged()

    def hops(self, start: str) -> dict[str, int]:
        """Return the number of hops on the shortest path to each other router."""
        found, edge = {start: 0}, [start]
        while edge:
            here = edge.pop(0)
            for pair in self.shape:
                for one, other in ((pair[0], pair[1]), (pair[1], pair[0])):
                    if one == here and other not in found:
                        found[other] = found[here] + 1
                        edge.append(other)
        del found[start]
        return found


SHAPES = {
    "line of four": "aB Bc cD",
    "star": "aH bH Hc DH",
    "ring of five": "aB Bc cD De ea",
}


@pytest.fixture(scope="module", params=SHAPES, ids=lambda name: name.replace(" ", "-"))
def mixed_network(
    request: pytest.FixtureRequest, router19_loop: Router19Loop, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MixedNetwork]:
    """Network of one shape; routers under test have one worker."""
    network = InteropNetwork(router19_loop, tmp_path_factory.mktemp("mixed"), 1)
    try:
        yield MixedNetwork(network, SHAPES[request.param])
    finally:
        network.stop()


def wait_costs(mixed_network: MixedNetwork, router: Sluice | Router19, costs: dict[str, int]) -> None:
    """Wait until a router has computed these costs."""
    if isinstance(router, Sluice):

        def right(rows: list[dict[str, Any]]) -> bool:
            return {row["id"]: row["cost"] for row in rows if row["id"] in costs} == costs

        router.wait_rows("router.node", right, f"costs are {costs}")
    else:
        mixed_network.network.world.wait(
            lambda: router.engine.paths.costs == costs, f"costs at {router.id} are {costs}"
        )


def wait_states(mixed_network: MixedNetwork, router: Sluice | Router19, states: dict[str, list[str]]) -> None:
    """Wait until a router has exactly these link states."""
    if isinstance(router, Sluice):

        def right(rows: list[dict[str, Any]]) -> bool:
            return {row["id"]: sorted(row["linkState"]) for row in rows} == states

        router.wait_rows("router.node", right, f"link states are {states}")
    else:
        others = {name: peers for name, peers in states.items() if name != router.id}

        def known() -> bool:
            return {node.id: sorted(node.peers) for node in router.engine.nodes.values()} == others

        mixed_network.network.world.wait(known, f"link states at {router.id} are {others}")


def test_costs_match_shortest_paths(mixed_network: MixedNetwork) -> None:
    for name, router in mixed_network.routers.items():
        wait_costs(mixed_network, router, mixed_network.hops(name))


def test_routers_reach_each_other(mixed_network: MixedNetwork, fresh: Fresh) -> None:
    for name, router in mixed_network.routers.items():
        address = fresh("closest")
        others = {other: mixed_network.routers[other] for other in mixed_network.routers if other != name}
        if isinstance(router, Sluice):
            receiver = router.client().receiver(address, credit=100)
        else:
            consumer = router.consumer(address)
        for from_there in others.values():
            if isinstance(from_there, Sluice):
                from_there.wait_remote("M0" + address, name)
            else:
                from_there.wait_key("M0" + address, name)
        for other, from_there in others.items():
            if isinstance(from_there, Sluice):
                sender = from_there.client().sender(address)
                number = sender.send(message.message(other))
                if isinstance(router, Sluice):
                    receiver.next().settle()
                assert sender.outcome(number).name == "accepted", (other, name)
            else:
                sent = from_there.send(address, message.message(other))
                if isinstance(router, Sluice):
                    receiver.next().settle()
                assert sent.outcome() == "accepted", (other, name)
        if isinstance(router, Sluice):
            assert len(receiver.deliveries) == len(others)
            router.drop_peers()
        else:
            assert sorted(one.body for one in consumer.arrivals) == sorted(others)


def test_routers_know_all_link_states(mixed_network: MixedNetwork) -> None:
    """Routers of both kinds have the actual link states of all others."""
    peers = {
        name: sorted({pair[0] if pair[1] == name else pair[1] for pair in mixed_network.shape if name in pair})
        for name in mixed_network.routers
    }
    for router in mixed_network.routers.values():
        wait_states(mixed_network, router, peers)
