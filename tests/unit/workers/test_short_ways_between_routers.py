"""Comparison of fast paths and slow path between routers, where annotations change (delivery/plan.pxd). Random
scenarios run in a network of three interior routers in a line, A, B and C, and an edge router E at A."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import router.testing.engine as engine
from tests.peer.frames import ACCEPTED, FRAME_HEADER, parse_frame
from tests.unit.engine.host import InProcessRouter
from tests.unit.engine.network import IgnoringObserver, InProcessNetwork, RouterConnection, client
from tests.unit.engine.scenario import CONSUMERS, PRODUCERS, RandomScenario, action, all_counters, frames_by_delivery
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


class NetworkScenario(RandomScenario):
    """Scenario with the action `cut`, which breaks a connection between routers."""

    network: InProcessNetwork

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
                fields = frame.handle, frame.delivery_id, frame.settled, frame.more
                found.append((frame.channel, *fields, frame.payload))
        at += size
    return found


def play(
    fast: bool, address: str, attach: dict[str, Any], consuming: list[Any], sending: list[Any], steps: list[Any],
    between: str = "", checked: bool = False,
) -> list[Any]:  # fmt: skip
    """Return what each peer received, the counters of each router, and what each router has sent to others.

    between: attributes of the connections between interior routers. checked: compare each remembered plan with a
    fresh one. All objects of the run must be freed afterwards.
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
            receivers = [
                client(network, place, consumer(0, address, 60 if number else 1000, **attach), listener=listener)
                for number, (place, listener) in enumerate(consuming)
            ]
            network.pass_seconds(WAIT_SECONDS)
            senders = [client(network, place, producer(0, address), listener=listener) for place, listener in sending]
            network.pass_seconds(1)
            routers = [*network.routers.values()]
            if checked:
                engine.check_plans()
            scenario = NetworkScenario(routers, network.settle, receivers, senders)
            scenario.network = network
            for one in steps:
                scenario.act(*one)
            assert engine.plan_differences() == 0
            played = [
                [[*frames_by_delivery(octets)] for octets in scenario.heard],
                sent,
                *(all_counters(router, STORED) for router in routers),
            ]
        finally:
            engine.use_fast_paths(True)
            for router in network.routers.values():
                router.close()
    assert engine.live_objects() == alive
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
def test_fast_paths_between_routers_match_slow_path(
    address: str, attach: dict[str, Any], consuming: list[Any], sending: list[Any], steps: list[Any], between: str
) -> None:
    fast = play(True, address, attach, consuming, sending, steps, between)
    slow = play(False, address, attach, consuming, sending, steps, between)
    assert all(first == second for first, second in zip(fast, slow, strict=True))
    # Planning has no effect: with each plan made twice, everything is as before.
    assert play(True, address, attach, consuming, sending, steps, between, checked=True) == fast


@pytest.mark.parametrize("annotated", ["none", "same", "routers", "both"])
@pytest.mark.parametrize(
    ("sender_router", "receiver_router"), [("A", "C"), ("E", "A"), ("A", "E"), ("E", "C"), ("C", "E")]
)
@pytest.mark.parametrize("listener", ["main", "open"])
def test_messages_with_equal_sections_are_handled_alike(
    sender_router: str, receiver_router: str, listener: str, annotated: str
) -> None:
    content = {"size": 10, "header": None, "to": None, "annotated": annotated, "broken": False}
    steps = [
        ("send", 0, 40, False, content),
        ("send", 1, 40, True, content),
        ("settle", 0, 20, ACCEPTED),
        ("send", 0, 20, False, content),
        ("settle", 0, 100, ACCEPTED),
    ]
    sending = [(sender_router, listener), (sender_router, "main")]
    fast = play(True, "any.a", {}, [(receiver_router, listener)], sending, steps)
    same = fast == play(False, "any.a", {}, [(receiver_router, listener)], sending, steps)
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
    content = {"size": size, "header": None, "to": None, "annotated": "none", "broken": False}
    steps = [
        *[("send", number, 60, False, content) for number in (0, 1, 0, 1)],
        ("send", 0, 20, True, content),
        ("settle", 0, 30, ACCEPTED),
        ("lose", 1, True),
        ("settle", 0, 40, ACCEPTED),
        ("lose", 3, False),
        ("cut", 0),
        ("lose", 0, True),
    ]
    consuming = [(receiver_router, "open"), (receiver_router, "main")]
    sending = [(sender_router, "open"), (sender_router, "main")]
    fast = play(True, "any.a", {}, consuming, sending, steps, "linkCapacity: 10")
    same = fast == play(False, "any.a", {}, consuming, sending, steps, "linkCapacity: 10")
    assert same


@pytest.mark.parametrize(
    "kinds", [["none", "same"], ["none", "same", "routers"], ["none", "same", "others", "routers", "both"]]
)
def test_messages_with_various_sections_are_handled_alike(kinds: list[str]) -> None:
    """Deliveries of several producers are interleaved on a link between routers."""
    contents = [{"size": 10, "header": None, "to": None, "annotated": one, "broken": False} for one in kinds]
    steps: list[Any] = [
        ("send", number, 1, False, content) for _ in range(9) for content in contents for number in (0, 1)
    ]
    steps += [("settle", 0, 200, ACCEPTED), ("lose", 0, True)]
    steps += [("send", number, 3, True, content) for content in contents for number in (0, 1)]
    sending = [("A", "open"), ("A", "main")]
    receivers = [("C", "open"), ("C", "main")]
    fast = play(True, "any.a", {}, receivers, sending, steps)
    same = fast == play(False, "any.a", {}, receivers, sending, steps)
    assert same
