"""Comparison of fast paths and slow path between routers, where annotations change (forwarding/short_way.pyx). Random
scenarios run in a network of three interior routers in a line, A, B and C, and an edge router E at A."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import router.testing.engine as engine
from tests.peer.frames import ACCEPTED, FRAME_HEADER, parse_frame
from tests.unit.engine.host import Router
from tests.unit.engine.network import Joint, Network, Quiet, client
from tests.unit.engine.scenario import CONSUMERS, PRODUCERS, Scenario, action, counted, spread
from tests.unit.engine.talk import consumer, producer

EDGE_LISTENER = """
listener {
    name: edges
    host: 127.0.0.1
    port: 4
    role: edge
    idleTimeoutSeconds: 0
}
"""
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
WAIT_SECONDS = 3  # until all routers know all consumers
TRANSFER = 0x14
DESCRIPTOR_AT = 10  # offset in the frame of a performative: behind the codes of described type and small ulong
PROTOCOL = (b"/qd", b"_topo/")  # part of the addresses of routers' own messages, which contain random numbers
#: Counter that differs: octets of waiting messages. The fast path stores them as they will leave, the slow path as
#: they arrived.
STORED = "buffered"
MOST_MS = 1100  # bound for one passage of time: edge routers miss heartbeats otherwise

places = st.tuples(st.sampled_from("ABCE"), st.sampled_from(["main", "main", "open"]))
actions = st.one_of(
    action.filter(lambda one: one[0] != "time" or one[1] <= MOST_MS),
    st.tuples(st.just("cut"), st.integers(0, 9)),
)


class Between(Scenario):
    """Scenario with the action `cut`, which breaks a connection between routers."""

    network: Network

    def cut(self, number: int) -> None:
        # Most numbers name no existing connection, so cuts are rare.
        if number < len(self.network.joints):
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
                said = frame.handle, frame.delivery_id, frame.settled, frame.more
                found.append((frame.channel, *said, frame.payload))
        at += size
    return found


def play(
    short: bool, address: str, attach: dict[str, Any], consuming: list[Any], sending: list[Any], steps: list[Any],
    between: str = "",
) -> list[Any]:  # fmt: skip
    """Return what each peer received, the counters of each router, and what each router has sent to others.

    between: attributes of the connections between interior routers. All objects of the run must be freed afterwards.
    """
    alive = engine.alive()
    with pytest.MonkeyPatch.context() as patch:
        network = Network("ABC", monkeypatch=patch, listener="linkCapacity: 90", between=between, more=EDGE_LISTENER)
        engine.use_short_ways(short)
        try:
            network.join("A", "B")
            network.join("B", "C")
            e = network.routers["E"] = Router(1, EDGE)
            (up,) = e.configuration.connectors
            network.joints.append(Joint(network, e.initiate(0, up, Quiet()), network["A"].connect(0, "edges")))
            network.pass_seconds(WAIT_SECONDS)
            sent: dict[str, list[Any]] = {one: [] for one in network.routers}
            names = {id(router): one for one, router in network.routers.items()}
            network.on_octets = lambda host, octets: sent[names[id(host)]].extend(transfers(octets))
            receivers = [
                client(network, place, consumer(0, address, 60 if number else 1000, **attach), listener=listener)
                for number, (place, listener) in enumerate(consuming)
            ]
            network.pass_seconds(WAIT_SECONDS)
            senders = [client(network, place, producer(0, address), listener=listener) for place, listener in sending]
            network.pass_seconds(1)
            routers = [*network.routers.values()]
            scenario = Between(routers, network.settle, receivers, senders)
            scenario.network = network
            for one in steps:
                scenario.act(*one)
            played = [
                [[*spread(octets)] for octets in scenario.heard],
                sent,
                *(counted(router, STORED) for router in routers),
            ]
        finally:
            engine.use_short_ways(True)
            for router in network.routers.values():
                router.close()
    assert engine.alive() == alive
    return played


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    address=st.sampled_from(["any.a", "any.a", "closest.a", "multicast.a", "urgent.a"]),
    attach=st.sampled_from([{}, {}, {"snd_settle_mode": 1}]),
    consuming=st.lists(places, min_size=1, max_size=CONSUMERS),
    sending=st.lists(places, min_size=PRODUCERS, max_size=PRODUCERS),
    steps=st.lists(actions, min_size=1, max_size=15),
    between=st.sampled_from(["", "linkCapacity: 10"]),
)
def test_like_the_general_way(
    address: str, attach: dict[str, Any], consuming: list[Any], sending: list[Any], steps: list[Any], between: str
) -> None:
    short = play(True, address, attach, consuming, sending, steps, between)
    general = play(False, address, attach, consuming, sending, steps, between)
    assert all(mine == theirs for mine, theirs in zip(short, general, strict=True))


@pytest.mark.parametrize("annotated", ["none", "same", "routers", "both"])
@pytest.mark.parametrize(("there", "back"), [("A", "C"), ("E", "A"), ("A", "E"), ("E", "C"), ("C", "E")])
@pytest.mark.parametrize("listener", ["main", "open"])
def test_messages_that_begin_alike(there: str, back: str, listener: str, annotated: str) -> None:
    what = {"size": 10, "header": None, "to": None, "annotated": annotated, "broken": False}
    steps = [
        ("send", 0, 40, False, what),
        ("send", 1, 40, True, what),
        ("settle", 0, 20, ACCEPTED),
        ("send", 0, 20, False, what),
        ("settle", 0, 100, ACCEPTED),
    ]
    sending = [(there, listener), (there, "main")]
    short = play(True, "any.a", {}, [(back, listener)], sending, steps)
    same = short == play(False, "any.a", {}, [(back, listener)], sending, steps)
    assert same
    arrived = [one for one in short[0][0] if isinstance(one, bytes) and one[DESCRIPTOR_AT] == TRANSFER]
    # A listener that does not strip annotations trusts the trace of a client, here one that is too long.
    assert len(arrived) == 100 or (listener == "open" and annotated in ("routers", "both") and len(arrived) == 40)


@pytest.mark.parametrize("size", [10, 2000])
@pytest.mark.parametrize(("there", "back"), [("A", "B"), ("A", "C"), ("E", "C")])
def test_messages_that_wait_for_credit(there: str, back: str, size: int) -> None:
    """There are more messages than credit between two routers and at the consumer. Some peers and a connection are
    lost meanwhile."""
    what = {"size": size, "header": None, "to": None, "annotated": "none", "broken": False}
    steps = [
        *[("send", who, 60, False, what) for who in (0, 1, 0, 1)],
        ("send", 0, 20, True, what),
        ("settle", 0, 30, ACCEPTED),
        ("lose", 1, True),
        ("settle", 0, 40, ACCEPTED),
        ("lose", 3, False),
        ("cut", 0),
        ("lose", 0, True),
    ]
    consuming = [(back, "open"), (back, "main")]
    sending = [(there, "open"), (there, "main")]
    short = play(True, "any.a", {}, consuming, sending, steps, "linkCapacity: 10")
    same = short == play(False, "any.a", {}, consuming, sending, steps, "linkCapacity: 10")
    assert same


@pytest.mark.parametrize(
    "kinds", [["none", "same"], ["none", "same", "routers"], ["none", "same", "others", "routers", "both"]]
)
def test_messages_that_begin_in_several_ways(kinds: list[str]) -> None:
    """Deliveries of several producers are interleaved on a link between routers."""
    whats = [{"size": 10, "header": None, "to": None, "annotated": one, "broken": False} for one in kinds]
    steps: list[Any] = [("send", who, 1, False, what) for _ in range(9) for what in whats for who in (0, 1)]
    steps += [("settle", 0, 200, ACCEPTED), ("lose", 0, True)]
    steps += [("send", who, 3, True, what) for what in whats for who in (0, 1)]
    sending = [("A", "open"), ("A", "main")]
    receivers = [("C", "open"), ("C", "main")]
    short = play(True, "any.a", {}, receivers, sending, steps)
    same = short == play(False, "any.a", {}, receivers, sending, steps)
    assert same
