"""Deliveries between routers: their consumers, their annotations and their outcomes (inter-router.md 10, 11)."""

import pytest

from tests.component.engine.network import client
from tests.peer.frames import ACCEPTED, FRAME_HEADER, REJECTED, RELEASED, modified, parse_frame, source, target
from tests.peer.talk import (
    ANNOTATIONS,
    consumer,
    flow,
    frames,
    message,
    messages,
    of,
    producer,
    say,
    sections,
    settle,
    transfer,
)
from tests.peer.types import Described, Symbol, UByte, ULong


def parsed(octets):
    """Return the frames in these octets."""
    found, at = [], 0
    while len(octets) - at >= FRAME_HEADER:
        size = int.from_bytes(octets[at : at + 4], "big")
        found.append(parse_frame(octets[at : at + size]))
        at += size
    return found


def test_message_reaches_remote_consumer_and_outcome_returns(router_pair):
    receiving = client(router_pair, "B", consumer(0, "balanced.a"))
    router_pair.known("M0balanced.a", "B")
    sending = client(router_pair, "A", producer(0, "balanced.a"))
    for number, state in enumerate([ACCEPTED, REJECTED, RELEASED, modified(True), modified(False)]):
        sending.feed(transfer(0, number, message(b"%d" % number)))
        router_pair.settle()
        heard = frames(receiving)
        assert messages(heard) == [message(b"%d" % number)]
        assert not of(heard, "transfer")[0].settled
        receiving.feed(settle(number, state=state))
        router_pair.settle()
        (report,) = of(frames(sending), "disposition")
        assert (report.first, report.settled, report.state) == (number, True, state)


def test_presettled_delivery_stays_presettled_between_routers(router_pair):
    receiving = client(router_pair, "B", consumer(0, "balanced.a"))
    router_pair.known("M0balanced.a", "B")
    sending = client(router_pair, "A", producer(0, "balanced.a"))
    for number in range(300):  # more than the credit
        sending.feed(transfer(0, number, message(b"%d" % number), settled=True))
    router_pair.settle()
    heard = frames(receiving)
    assert messages(heard) == [message(b"%d" % number) for number in range(300)]
    assert all(frame.settled for frame in of(heard, "transfer"))
    assert not of(frames(sending), "disposition")


def test_settlement_in_three_steps_crosses_routers(router_pair):
    """The consumer's state and the producer's settlement are separate."""
    receiving = client(router_pair, "B", consumer(0, "balanced.a"))
    router_pair.known("M0balanced.a", "B")
    sending = client(router_pair, "A", producer(0, "balanced.a", rcv_settle_mode=UByte(1)))
    sending.feed(transfer(0, 0, message(b"x")))
    router_pair.settle()
    receiving.feed(settle(0, state=ACCEPTED, settled=False))
    router_pair.settle()
    (report,) = of(frames(sending), "disposition")
    assert (bool(report.settled), report.state) == (False, ACCEPTED)
    sending.feed(settle(0, state=None, role=False))
    router_pair.settle()
    report = of(frames(receiving), "disposition")[-1]
    assert report.settled


def test_annotations_equal_those_of_dispatch(networks):
    """First of the vectors in inter-router.md 16.10, octet by octet (brokers-and-edge.md W-13).

    inter-router-protocol.md 6.1; inter-router.md 10.1.
    """
    network = networks("BA")
    network.join("B", "A")
    network.converge()
    said = []
    receiving = client(network, "A", consumer(0, "foo"))
    network.known("M0foo", "A")
    sending = client(network, "B", producer(0, "foo"))
    network.on_octets = lambda router, octets: said.append(octets) if router is network["B"] else None
    head = "00537045"
    rest = "005373c00401a10130005374d10000000a00000002a1016ba10176005377a1046d736730"
    users = "005372c11304a306782d75736572a1027531a3027a7a5505"
    sending.feed(transfer(0, 0, bytes.fromhex(head + users + rest)))
    network.settle()
    assert bytes.fromhex(
        head
        + "005372c1540aa306782d75736572a1027531a3027a7a5505a30b782d6f70742d71642e746fa103666f6fa310782d6f7074"
        + "2d71642e696e6772657373a103302f42a30e782d6f70742d71642e7472616365c00601a103302f42"
        + rest
    ) in b"".join(said)
    assert messages(frames(receiving)) == [bytes.fromhex(head + users + rest)]


def annotations(octets):
    """Return a message's router annotations by name."""
    return {
        str(key).removeprefix("x-opt-qd."): value
        for code, section in sections(octets)
        if code == ANNOTATIONS
        for key, value in section.pairs
    }


def test_trace_names_routers_once_in_order(networks):
    network = networks("ABC", 2)
    network.join("A", "B", workers=(0, 1))
    network.join("B", "C", workers=(0, 1))  # through B, messages cross from one worker to the other
    network.converge()
    receiving = client(network, "C", consumer(0, "balanced.a"), listener="open")
    network.known("M0balanced.a", "C")
    sending = client(network, "A", producer(0, "balanced.a"), worker=1)
    sending.feed(transfer(0, 0, message(b"x")))
    network.settle()
    (came,) = messages(frames(receiving))
    assert annotations(came) == {"to": "balanced.a", "ingress": "0/A", "trace": ["0/A", "0/B", "0/C"]}


def test_anonymous_producer_is_routed_by_message_address(router_pair):
    receiving = client(router_pair, "B", consumer(0, "balanced.a"), listener="open")
    router_pair.known("M0balanced.a", "B")
    sending = client(router_pair, "A", producer(0, None))
    sending.feed(transfer(0, 0, message(b"x", to="balanced.a")))
    router_pair.settle()
    (came,) = messages(frames(receiving))
    assert annotations(came) == {"ingress": "0/A", "trace": ["0/A", "0/B"]}


@pytest.mark.parametrize(("address", "channel"), [("balanced.a", 5), ("urgent.a", 9)])
def test_delivery_uses_link_of_its_priority(networks, address, channel):
    """The priority is 4 by default, or configured for the address. Each priority has its own session.

    routing-semantics.md F-5, 11.5.
    """
    network = networks("AB")
    network.join("A", "B")
    network.converge()
    said = bytearray()
    client(network, "B", consumer(0, address))
    network.known("M0" + address, "B")
    sending = client(network, "A", producer(0, address))
    network.on_octets = lambda router, octets: said.extend(octets) if router is network["A"] else None
    sending.feed(transfer(0, 0, message(b"x")))
    network.settle()
    (sent,) = of(parsed(bytes(said)), "transfer")
    assert sent.channel == channel
    assert len(sent.delivery_tag) == 8


TOPOLOGIES = {
    "line": ("ABC", ["AB", "BC"]),
    "triangle": ("ABC", ["AB", "BC", "CA"]),
    "ring": ("ABCDE", ["AB", "BC", "CD", "DE", "EA"]),
    "mesh": ("ABCD", ["AB", "AC", "AD", "BC", "BD", "CD"]),
    "diamond": ("ABCD", ["AB", "AC", "BD", "CD"]),
    "double": ("ABC", ["AB", "AB", "BC"]),
}


def joined(networks, name, workers=1):
    ids, joints = TOPOLOGIES[name]
    network = networks(ids, workers)
    for joint in joints:
        network.join(joint[0], joint[1])
    network.converge()
    network.pass_seconds(3)
    return network


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_multicast_reaches_remote_consumers_once(networks, name):
    network = joined(networks, name)
    receiving = {one: [client(network, one, consumer(0, "multicast.a")) for _ in range(2)] for one in network.routers}
    network.known("M0multicast.a", *network.routers)
    for number, one in enumerate(network.routers):
        sending = client(network, one, producer(0, "multicast.a"))
        sending.feed(transfer(0, 0, message(b"%d" % number)))
        network.settle()
        for where, peers in receiving.items():
            for peer in peers:
                assert messages(frames(peer)) == [message(b"%d" % number)], f"from {one} to {where}"
                assert not of(frames(sending), "disposition")
                peer.feed(settle(number, state=ACCEPTED))
                network.settle()
        (report,) = of(frames(sending), "disposition")
        assert (report.settled, report.state) == (True, ACCEPTED)


# inter-router.md 11.4.
def test_closest_prefers_near_consumers(networks):
    network = networks("ABCD")
    for first, second, connector in ("A", "B", "to"), ("A", "C", "to"), ("A", "D", "dear"):
        network.join(first, second, connector=connector)
    network.converge()
    receiving = {one: client(network, one, consumer(0, "closest.a")) for one in "ABCD"}
    network.known("M0closest.a", *"ABCD")
    sending = client(network, "A", producer(0, "closest.a"))

    def send(number):
        sending.feed(transfer(0, number, message(b"x"), settled=True))
        network.settle()
        return "".join(one for one, peer in receiving.items() if one in near and messages(frames(peer)))

    near = "ABCD"
    assert [send(number) for number in range(4)] == ["A"] * 4
    receiving["A"].lose()
    near = "BCD"
    network.settle()
    assert sorted(send(number) for number in range(4, 8)) == ["B", "B", "C", "C"]
    for one in "BC":
        receiving[one].lose()
    near = "D"
    network.known("M0closest.a", "D")
    assert [send(number) for number in range(8, 10)] == ["D"] * 2


def spread(network, receiving, sender, count):
    sending = client(network, sender, producer(0, "balanced.a"))
    for number in range(count):
        sending.feed(transfer(0, number, message(b"x")))
        network.settle()
    return [len(messages(frames(receiving[one]))) for one in receiving]


@pytest.mark.parametrize(("at", "expected"), [("ABC", [55, 33, 12]), ("AC", [65, 35])])
def test_balanced_weighs_distance_against_unsettled_deliveries(networks, at, expected):
    """No delivery is settled: A - B - C with costs 10 and 20 (routing-semantics.md F-12; inter-router.md 11.5)."""
    network = networks("ABC", 2)
    network.join("A", "B", connector="dear", workers=(1, 0))
    network.join("B", "C", connector="dearer", workers=(1, 0))
    network.converge()
    receiving = {one: client(network, one, consumer(0, "balanced.a")) for one in at}
    network.known("M0balanced.a", *at)
    found = spread(network, receiving, "A", 100)
    assert sum(found) == 100
    assert all(abs(a - b) <= 1 for a, b in zip(found, expected, strict=True)), found


def test_remote_consumer_gives_credit_to_producer(router_pair):
    sending = client(router_pair, "A")
    sending.feed(producer(0, "balanced.a"))
    router_pair.settle()
    assert not of(frames(sending), "flow")
    receiving = client(router_pair, "B", consumer(0, "balanced.a"))
    router_pair.known("M0balanced.a", "B")
    (granted,) = of(frames(sending), "flow")
    assert granted.link_credit == 250
    receiving.lose()
    router_pair.settle()
    router_pair.known("M0balanced.a")
    sending.feed(transfer(0, 0, message(b"x")))
    router_pair.settle()
    heard = frames(sending)
    (report,) = of(heard, "disposition")
    assert (report.settled, report.state) == (True, RELEASED)
    assert of(heard, "flow")[-1].drain


def test_delivery_to_just_lost_remote_consumer_is_released(router_pair):
    """The other router does not know of the loss yet."""
    receiving = client(router_pair, "B", consumer(0, "balanced.a"))
    router_pair.known("M0balanced.a", "B")
    sending = client(router_pair, "A", producer(0, "balanced.a"))
    receiving.lose()
    router_pair.settle()
    sending.feed(transfer(0, 0, message(b"x")))
    router_pair.settle()
    (report,) = of(frames(sending), "disposition")
    assert (report.settled, report.state) == (True, RELEASED)


def test_lost_connection_settles_its_deliveries(router_pair):
    """Deliveries that were sent may have arrived; unsent ones have not."""
    client(router_pair, "B", consumer(0, "balanced.a"))
    router_pair.known("M0balanced.a", "B")
    sending = client(router_pair, "A", producer(0, "balanced.a"))
    sending.feed(transfer(0, 0, message(b"x")))
    router_pair.settle()
    router_pair.joints[0].held = True
    for number in range(1, 240):
        sending.feed(transfer(0, number, message(b"x" * 2000)))
    router_pair.settle()
    router_pair.joints[0].cut()
    router_pair.settle()
    states = {}
    for report in of(frames(sending), "disposition"):
        assert report.settled
        for number in range(report.first, (report.first if report.last is None else report.last) + 1):
            states[number] = report.state
    assert sorted(states) == list(range(240))
    failed = Described(ULong(0x27), [True, False])
    assert states[0] == states[1] == failed
    assert states[239] in (failed, RELEASED)


def test_unsettled_deliveries_may_exceed_router_link_credit(router_pair):
    """Unsettled deliveries hold no credit between routers."""
    receiving = client(router_pair, "B", consumer(0, "balanced.a"))
    router_pair.known("M0balanced.a", "B")
    for _ in range(3):
        sending = client(router_pair, "A", producer(0, "balanced.a"))
        for number in range(250):
            sending.feed(transfer(0, number, message(b"x")))
        router_pair.settle()
    assert len(messages(frames(receiving))) == 750


def test_presettled_deliveries_wait_for_remote_credit(router_pair):
    """No message is lost: the producer waits, even across a router hop."""
    receiving = client(router_pair, "B", consumer(0, "balanced.a", credit=1))
    router_pair.known("M0balanced.a", "B")
    sending = client(router_pair, "A", producer(0, "balanced.a"))
    sent = came = 0
    credit = 250
    for _ in range(400):
        while sent < credit and sent < 2000:
            sending.feed(transfer(0, sent, message(b"%d" % sent), settled=True))
            sent += 1
        router_pair.settle()
        for heard in of(frames(sending), "flow"):
            if heard.handle is not None:
                credit = heard.delivery_count + heard.link_credit
        for octets in messages(frames(receiving)):
            assert octets == message(b"%d" % came)
            came += 1
        receiving.feed(flow(0, 10, delivery_count=came))
        router_pair.settle()
    assert sent == 2000
    assert came == 2000


def test_fallback_at_other_router_receives_delivery(router_pair):
    spare = client(
        router_pair,
        "B",
        say(
            "attach",
            name="f",
            handle=0,
            role=True,
            target=target(),
            source=source("spare.a", capabilities=[Symbol("qd.fallback")]),
        ),
        flow(0, 10),
        listener="open",
    )
    router_pair.known("MFspare.a", "B")
    sending = client(router_pair, "A", producer(0, "spare.a"))
    sending.feed(transfer(0, 0, message(b"x")))
    router_pair.settle()
    (came,) = messages(frames(spare))
    assert annotations(came) == {"phase": 22, "to": "spare.a", "ingress": "0/A", "trace": ["0/A", "0/B"]}
    spare.feed(settle(0, state=ACCEPTED))
    router_pair.settle()
    assert of(frames(sending), "disposition")[0].state == ACCEPTED


def test_bundle_keeps_order_of_producers(networks):
    """Both connections to one neighbour are used; each producer keeps to one of them."""
    network = networks("AB", 2)
    first = network.join("A", "B", workers=(0, 0))
    network.join("A", "B", workers=(1, 1))
    network.converge()
    network.pass_seconds(3)
    receiving = client(network, "B", consumer(0, "balanced.a"))
    network.known("M0balanced.a", "B")
    # The connection is chosen by hash of the producer. Sixteen producers are enough to hit both.
    peers = [client(network, "A", producer(0, "balanced.a"), worker=number % 2) for number in range(16)]

    def send(numbers):
        for number in numbers:
            for which, peer in enumerate(peers):
                peer.feed(transfer(0, number, message(b"%d %d" % (which, number)), settled=True))
        network.settle()
        came = [tuple(map(int, octets[5:].split())) for octets in messages(frames(receiving))]
        assert sorted(came) == [(which, number) for which in range(16) for number in numbers]
        for which in range(16):
            assert [number for one, number in came if one == which] == list(numbers)

    send(range(10))
    used = [sum(counters["deliveries"] for counters in outgoing(network["A"], worker)) for worker in (0, 1)]
    assert all(used), used
    first.cut()
    network.settle()
    network.pass_seconds(1)
    send(range(10, 20))


def outgoing(router, worker):
    """Return the counters of a worker's data links to other routers."""
    links = router.workers[worker].links
    return [
        router.region.link_counters(worker, index)
        for index, link in links.items()
        if type(link).__name__ == "RouterOut"
    ]


def test_delivery_is_counted_at_ingress_transit_and_egress(networks):
    network = networks("ABC")
    network.join("A", "B")
    network.join("B", "C")
    network.converge()
    client(network, "C", consumer(0, "balanced.a"))
    network.known("M0balanced.a", "C")
    sending = client(network, "A", producer(0, "balanced.a"))
    for number in range(3):
        sending.feed(transfer(0, number, message(b"x")))
    network.settle()
    counted = {}
    for router_id, router in network.routers.items():
        record = router.core.table.records["M0balanced.a"]
        totals = router.region.address_totals(record.id)
        counted[router_id] = [totals[name] for name in ("ingress", "transit", "egress")]
        if record.remotes:
            (counters,) = record.remotes.values()
            assert router.region.remote_unsettled(counters) == 3
    assert counted == {"A": [3, 3, 0], "B": [0, 3, 0], "C": [0, 0, 3]}


def test_reused_counters_start_without_earlier_deliveries(router_pair):
    receiving = client(router_pair, "B", consumer(0, "balanced.a"))
    router_pair.known("M0balanced.a", "B")
    sending = client(router_pair, "A", producer(0, "balanced.a"))
    for number in range(3):
        sending.feed(transfer(0, number, message(b"x")))
    router_pair.settle()
    router = router_pair["A"]
    table = router.core.table
    record = table.records["M0balanced.a"]
    ((index, counters),) = record.remotes.items()
    assert router.region.remote_unsettled(counters) == 3
    table.remove_remote(record, index)
    router_pair.settle()
    table.add_remote(record, index)
    assert record.remotes == {index: counters}
    router_pair.settle()
    sending.feed(transfer(0, 3, message(b"x")))
    router_pair.settle()
    assert router.region.remote_unsettled(counters) == 1
    receiving.feed(settle(0, 2))
    router_pair.settle()
    assert len(of(frames(sending), "disposition")) > 0
    assert router.region.remote_unsettled(counters) == 1
    receiving.feed(settle(3))
    router_pair.settle()
    assert router.region.remote_unsettled(counters) == 0


def test_error_text_of_outcome_crosses_hops(networks):
    network = networks("ABC", 2)
    network.join("A", "B", workers=(1, 0))
    network.join("B", "C", workers=(1, 0))
    network.converge()
    receiving = client(network, "C", consumer(0, "balanced.a"))
    network.known("M0balanced.a", "C")
    sending = client(network, "A", producer(0, "balanced.a"))
    error = Described(ULong(0x1D), [Symbol("x:no"), "because", {Symbol("k"): 1}])
    states = [Described(ULong(0x25), [error]), Described(ULong(0x27), [True, True, {Symbol("why"): "x"}])]
    for number, state in enumerate(states):
        sending.feed(transfer(0, number, message(b"x")))
        network.settle()
        receiving.feed(settle(number, state=state))
        network.settle()
        (report,) = of(frames(sending), "disposition")
        assert (report.settled, report.state) == (True, state)
