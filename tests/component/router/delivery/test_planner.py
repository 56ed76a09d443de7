"""Comparison of fast paths and slow path between routers, where annotations change (delivery/plan.pxd). Random
scenarios run in a network of three interior routers in a line, A, B and C, and an edge router E at A."""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

import sluice.router.testing.engine as engine
from tests.component.engine.host import InProcessRouter
from tests.component.engine.network import (
    EDGE,
    EDGE_LISTENER,
    IgnoringObserver,
    InProcessNetwork,
    RouterConnection,
    client,
)
from tests.component.engine.path_comparison import ScriptedClients, all_counters, frames_by_delivery
from tests.peer.frames import ACCEPTED, FRAME_HEADER, parse_frame
from tests.peer.random_peer import Habits, RandomPeer
from tests.peer.talk import consumer, producer

WAIT_SECONDS = 3  # until all routers know all consumers
TRANSFER = 0x14
DESCRIPTOR_AT = 10  # offset in the frame of a performative: behind the codes of described type and small ulong
PROTOCOL = (b"/qd", b"_topo/")  # part of the addresses of routers' own messages, which contain random numbers
#: Counter that differs: octets of waiting messages. The fast path stores them as they will leave, the slow path as
#: they arrived.
STORED = "buffered"
ADDRESS = "any.a"  # of scripted clients
CLIENTS = 5
STEPS = 60
SEEDS = 40


class ScriptedNetwork(ScriptedClients):
    """Scripted clients with the action `cut`, which breaks a connection between routers."""

    network: InProcessNetwork

    def cut(self, number: int) -> None:
        self.network.joints[number].cut()


def transfers(octets: bytes) -> list[Any]:
    """Return the transfers of clients' messages in these octets, without tags, which depend on wakes."""
    found, at = [], 0
    while at < len(octets):
        if octets.startswith(b"AMQP", at):
            at += FRAME_HEADER
            continue
        size = int.from_bytes(octets[at : at + 4], "big")
        if size > DESCRIPTOR_AT and octets[at + DESCRIPTOR_AT] == TRANSFER:
            frame = parse_frame(octets[at : at + size])
            if not any(one in frame.payload for one in PROTOCOL):
                fields = frame.handle, frame.delivery_id, frame.settled, frame.more
                found.append((frame.channel, *fields, frame.payload))
        at += size
    return found


@contextmanager
def line_of_routers(fast: bool, between: str = "") -> Iterator[tuple[InProcessNetwork, dict[str, list[Any]]]]:
    """Yield the network, and the transfers that each router sends to others from then on.

    between: attributes of the connections between interior routers. All objects must be freed afterwards.
    """
    alive = engine.live_objects()
    with pytest.MonkeyPatch.context() as patch:
        network = InProcessNetwork(
            "ABC", monkeypatch=patch, listener="linkCapacity: 90", between=between, more=EDGE_LISTENER
        )
        engine.use_fast_paths(fast)
        try:
            network.join("A", "B")
            network.join("B", "C")
            e = network.routers["E"] = InProcessRouter(1, EDGE)
            (up,) = e.configuration.connectors
            network.joints.append(
                RouterConnection(network, e.initiate(0, up, IgnoringObserver()), network["A"].connect(0, "edges"))
            )
            network.pass_seconds(WAIT_SECONDS)
            sent: dict[str, list[Any]] = {one: [] for one in network.routers}
            names = {id(router): one for one, router in network.routers.items()}
            network.on_octets = lambda host, octets: sent[names[id(host)]].extend(transfers(octets))
            yield network, sent
        finally:
            engine.use_fast_paths(True)
            for router in network.routers.values():
                router.close()
    assert engine.live_objects() == alive


def effects(network: InProcessNetwork, sent: dict[str, list[Any]], heard: list[bytes]) -> list[Any]:
    """Return what each peer received, what each router has sent to others, and the counters of each router."""
    counters = [all_counters(router, STORED) for router in network.routers.values()]
    return [[[*frames_by_delivery(octets)] for octets in heard], sent, *counters]


def play(fast: bool, consuming: list[Any], sending: list[Any], steps: list[Any], between: str = "") -> list[Any]:
    """Return the effects of scripted clients of one address."""
    with line_of_routers(fast, between) as (network, sent):
        receivers = [
            client(network, place, consumer(0, ADDRESS, 60 if number else 1000), listener=listener)
            for number, (place, listener) in enumerate(consuming)
        ]
        network.pass_seconds(WAIT_SECONDS)
        senders = [client(network, place, producer(0, ADDRESS), listener=listener) for place, listener in sending]
        network.pass_seconds(1)
        scripted = ScriptedNetwork([*network.routers.values()], network.settle, receivers, senders)
        scripted.network = network
        for one in steps:
            scripted.act(*one)
        return effects(network, sent, scripted.heard)


def play_randomly(fast: bool, seed: int, *, checked: bool = False) -> list[Any]:
    """Return the effects of random clients, most of whose links are for one address.

    checked: compare each remembered plan with a fresh one.
    """
    rng = Random(seed)
    address = rng.choice(("any.a", "any.a", "closest.a", "multicast.a", "urgent.a"))
    habits = Habits.steady(address)
    with line_of_routers(fast, rng.choice(("", "linkCapacity: 10"))) as (network, sent):
        peers, clients = [], []
        for number in range(CLIENTS):
            peers.append(network[rng.choice("ABCE")].connect(0, rng.choice(("main", "main", "open"))))
            clients.append(RandomPeer(rng, number, rudeness=0.0))
            clients[-1].habits = habits
            peers[-1].feed(clients[-1].begin_connection())
        heard = [b""] * CLIENTS
        lost: set[int] = set()
        for _ in range(STEPS):
            number, choice = rng.randrange(CLIENTS), rng.random()
            if number not in lost and choice < 0.85:
                peers[number].feed(clients[number].act())
            if number not in lost and (choice > 0.99 or not clients[number].open):
                peers[number].lose()
                lost.add(number)
            elif choice > 0.98 and network.joints:
                rng.choice(network.joints).cut()
            elif choice > 0.9:
                network.pass_seconds(1)
            network.settle()
            if checked:
                engine.check_plans()
            for router in network.routers.values():
                router.check_quiet()
            heard = [octets + peer.take() for octets, peer in zip(heard, peers, strict=True)]
        assert engine.plan_differences() == 0
        return effects(network, sent, heard)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_fast_paths_between_routers_match_slow_path(seed: int) -> None:
    fast = play_randomly(True, seed)
    assert fast == play_randomly(False, seed)
    # Planning has no effect: with each plan made twice, everything is as before.
    assert fast == play_randomly(True, seed, checked=True)


@pytest.mark.parametrize("annotated", ["none", "same", "routers", "both"])
@pytest.mark.parametrize(
    ("sender_router", "receiver_router"), [("A", "C"), ("E", "A"), ("A", "E"), ("E", "C"), ("C", "E")]
)
@pytest.mark.parametrize("listener", ["main", "open"])
def test_messages_with_equal_sections_are_handled_alike(
    sender_router: str, receiver_router: str, listener: str, annotated: str
) -> None:
    content = {"size": 10, "header": None, "to": None, "annotated": annotated}
    steps = [
        ("send", 0, 40, False, content),
        ("send", 1, 40, True, content),
        ("settle", 0, 20, ACCEPTED),
        ("send", 0, 20, False, content),
        ("settle", 0, 100, ACCEPTED),
    ]
    sending = [(sender_router, listener), (sender_router, "main")]
    fast = play(True, [(receiver_router, listener)], sending, steps)
    same = fast == play(False, [(receiver_router, listener)], sending, steps)
    assert same
    arrived = [one for one in fast[0][0] if isinstance(one, bytes) and one[DESCRIPTOR_AT] == TRANSFER]
    # A listener that does not strip annotations trusts the trace of a client, here one that is too long.
    assert len(arrived) == 100 or (listener == "open" and annotated in ("routers", "both") and len(arrived) == 40)


@pytest.mark.parametrize("size", [10, 2000])
@pytest.mark.parametrize(("sender_router", "receiver_router"), [("A", "B"), ("A", "C"), ("E", "C")])
def test_messages_waiting_between_routers_are_handled_alike(
    sender_router: str, receiver_router: str, size: int
) -> None:
    """There are more messages than credit between two routers and at the consumer. Some peers and a connection are
    lost meanwhile."""
    content = {"size": size, "header": None, "to": None, "annotated": "none"}
    steps = [
        *[("send", number, 60, False, content) for number in (0, 1, 0, 1)],
        ("send", 0, 20, True, content),
        ("settle", 0, 30, ACCEPTED),
        ("lose", 1, True),
        ("settle", 0, 40, ACCEPTED),
        ("lose", 2, False),
        ("cut", 0),
        ("lose", 0, True),
    ]
    consuming = [(receiver_router, "open"), (receiver_router, "main")]
    sending = [(sender_router, "open"), (sender_router, "main")]
    fast = play(True, consuming, sending, steps, "linkCapacity: 10")
    same = fast == play(False, consuming, sending, steps, "linkCapacity: 10")
    assert same


@pytest.mark.parametrize(
    "kinds", [["none", "same"], ["none", "same", "routers"], ["none", "same", "others", "routers", "both"]]
)
def test_messages_with_various_sections_are_handled_alike(kinds: list[str]) -> None:
    """Deliveries of several producers are interleaved on a link between routers."""
    contents = [{"size": 10, "header": None, "to": None, "annotated": one} for one in kinds]
    steps: list[Any] = [
        ("send", number, 1, False, content) for _ in range(9) for content in contents for number in (0, 1)
    ]
    steps += [("settle", 0, 200, ACCEPTED), ("lose", 0, True)]
    steps += [("send", number, 3, True, content) for content in contents for number in (0, 1)]
    sending = [("A", "open"), ("A", "main")]
    receivers = [("C", "open"), ("C", "main")]
    fast = play(True, receivers, sending, steps)
    same = fast == play(False, receivers, sending, steps)
    assert same
