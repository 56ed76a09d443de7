"""Input from a neighbour router, valid and malformed (inter-router.md 10.2, 10.4, 11.1)."""

from random import Random

import pytest

from tests.peer.codec import encode
from tests.peer.frames import REJECTED, RELEASED, source, target
from tests.peer.talk import (
    ANNOTATIONS,
    MANY,
    consumer,
    frames,
    message,
    messages,
    of,
    producer,
    say,
    start,
    transfer,
)
from tests.peer.types import Described, Map, Symbol, ULong

CONTROL, DATA = "qd.router", "qd.router-data"


def attach(channel, handle, capability, *, receives):
    return say(
        "attach",
        channel=channel,
        name=f"qdlink.{channel}.{handle}",
        handle=handle,
        role=receives,
        snd_settle_mode=2,
        rcv_settle_mode=0,
        source=source(capabilities=capability),
        target=target(capabilities=capability),
        initial_delivery_count=0,
    )


@pytest.fixture
def router(networks):
    return networks("A")


def neighbour(network):
    """Connect a scripted router with control links, and data links on channel 1 with handles 0 (in) and 1 (out)."""
    peer = network["A"].connect(0, "between")
    octets = start()
    for channel, capability in ((0, CONTROL), (1, DATA)):
        octets += say("begin", channel=1, next_outgoing_id=0, incoming_window=MANY, outgoing_window=MANY) * channel
        for handle, receives in ((0, True), (1, False)):
            octets += attach(channel, handle, capability, receives=receives)
    peer.feed(octets)
    network.settle()
    frames(peer)
    return peer


def sent(peer, network, number, octets, **fields):
    """Send a delivery on the data link. Return the dispositions for it."""
    peer.feed(on_channel(transfer(1, number, octets, **fields), 1))
    network.settle()
    return of(frames(peer), "disposition")


def on_channel(octets, channel):
    """Move frames from channel 0 to another channel."""
    moved, at = bytearray(octets), 0
    while at < len(moved):
        moved[at + 6 : at + 8] = channel.to_bytes(2, "big")
        at += int.from_bytes(moved[at : at + 4], "big")
    return bytes(moved)


def routed(body, **pairs):
    """Return a message with router annotations."""
    return message(body, annotations=[(Symbol(f"x-opt-qd.{key}"), value) for key, value in pairs.items()])


@pytest.fixture
def receiving(router):
    peer = router["A"].connect()
    peer.feed(start() + consumer(0, "balanced.a"))
    router.settle()
    frames(peer)
    return peer


@pytest.mark.parametrize(
    ("pairs", "description"),
    [
        ({"to": Symbol("balanced.a")}, "to-override not a valid string type"),
        ({"to": "balanced.a", "ingress": 7}, "ingress router not a string type"),
        ({"to": "balanced.a", "trace": "0/B"}, "trace annotation is not a list"),
        ({"to": "balanced.a", "trace": ["0/B", 7]}, "trace list contains non-string entries"),
    ],
)
def test_message_with_malformed_annotations_is_rejected(router, receiving, pairs, description):
    peer = neighbour(router)
    (report,) = sent(peer, router, 0, routed(b"x", **pairs))
    assert report.settled
    assert report.state.descriptor == 0x25
    assert [str(item) for item in report.state.value[0].value[:2]] == ["amqp:invalid-field", description]
    assert not messages(frames(receiving))
    sent(peer, router, 1, routed(b"y", to="balanced.a"))
    assert messages(frames(receiving)) == [message(b"y")]


def test_map_with_odd_count_is_rejected(router):
    peer = neighbour(router)
    octets = encode(Described(ULong(ANNOTATIONS), Map([(Symbol("a"), 1)])))
    odd = octets[:5] + bytes([octets[5] - 1]) + octets[6:]
    (report,) = sent(peer, router, 0, odd + message(b"x"))
    assert report.state.descriptor == 0x25


def test_message_without_address_is_rejected(router):
    peer = neighbour(router)
    (report,) = sent(peer, router, 0, routed(b"x", ingress="0/B", trace=["0/B"]))
    assert report.state.descriptor == REJECTED.descriptor
    assert [str(item) for item in report.state.value[0].value[:2]] == [
        "amqp:precondition-failed",
        "Routing failure: no address present",
    ]


# inter-router.md 11.6.
def test_message_without_destination_is_released(router):
    peer = neighbour(router)
    (report,) = sent(peer, router, 0, routed(b"x", to="nobody.knows", ingress="0/B", trace=["0/B"]))
    assert (report.settled, report.state) == (True, RELEASED)


def test_looping_message_is_released(router, receiving):
    """The trace has more entries than radius + 1. This router knows no other, so its radius is 0.

    inter-router-protocol.md 6.4.
    """
    peer = neighbour(router)
    assert not sent(peer, router, 0, routed(b"x", to="balanced.a", ingress="0/B", trace=["0/B"]))
    (report,) = sent(peer, router, 1, routed(b"y", to="balanced.a", ingress="0/C", trace=["0/C", "0/B"]))
    assert (report.settled, report.state) == (True, RELEASED)
    assert messages(frames(receiving)) == [message(b"x")]


@pytest.mark.parametrize("octets", [b"", b"\x00", b"\xff" * 40, bytes.fromhex("005372c10b02")])
def test_invalid_message_is_rejected(router, octets):
    peer = neighbour(router)
    (report,) = sent(peer, router, 0, octets)
    assert report.state.descriptor == REJECTED.descriptor


def test_messages_with_different_addresses_share_a_link(router):
    """Each message finds its own address, repeatedly, and also after table changes."""
    peers = [router["A"].connect() for _ in range(40)]
    for number, one in enumerate(peers):
        one.feed(start() + consumer(0, f"balanced.{number}"))
        router.settle()
        frames(one)
    peer = neighbour(router)
    for turn in range(3):
        for number, one in enumerate(peers):
            sent(peer, router, turn * 40 + number, routed(b"%d" % number, to=f"balanced.{number}"), settled=True)
            assert messages(frames(one)) == [message(b"%d" % number)]
        other = router["A"].connect()
        other.feed(start() + producer(0, f"balanced.more{turn}"))
        router.settle()


def test_stream_is_forwarded_as_it_arrives(router, receiving):
    """Links after the first ten carry streams: their messages do not wait for 128 KiB."""
    peer = neighbour(router)
    for handle in range(2, 12):
        peer.feed(attach(1, handle, DATA, receives=False))
    router.settle()
    octets = transfer(11, 0, routed(b"x" * 3000, to="balanced.a"), part=1000, settled=True)
    first = int.from_bytes(octets[:4], "big")
    peer.feed(on_channel(octets[:first], 1))
    router.settle()
    heard = frames(receiving)
    assert [bool(frame.more) for frame in of(heard, "transfer")] == [True]
    peer.feed(on_channel(octets[first:], 1))
    router.settle()
    assert messages(heard + frames(receiving)) == [message(b"x" * 3000)]


REPEATED = [
    routed(b"", to="balanced.a"),
    routed(b"", to="balanced.b"),
    routed(b"", to="balanced.b", ingress="0/B", trace=["0/B"]),
    routed(b"", to="balanced.b", ingress="0/B", trace=["0/B", "0/C"], phase=1),
    routed(b"", to="nowhere"),
    encode(Described(ULong(0x70), [None, None, 7])) + routed(b"", to="balanced.b"),
    message(b"", annotations=[(Symbol("x-opt-qd.to"), "balanced.b"), (Symbol("x-user"), 1)]),
    message(b"", to="balanced.a", annotations=[(Symbol("x-opt-qd.to"), "balanced.b")]),
    message(b"", to="balanced.b"),
    message(b"", to="balanced.a"),
]


@pytest.mark.parametrize("seed", range(3))
def test_remembered_decision_equals_fresh_decision(router, receiving, seed):
    other = router["A"].connect(0, "main")
    other.feed(start() + consumer(0, "balanced.b"))
    router.settle()
    frames(other)

    def result(peer, number, octets):
        said = sent(peer, router, number, octets, settled=None)
        got = [messages(frames(one)) for one in (receiving, other) if not one.gone]
        return [(report.settled, report.state) for report in said], got

    alone = [result(neighbour(router), 0, octets) for octets in REPEATED]
    assert [sum(map(len, got)) for _, got in alone] == [1, 1, 1, 0, 0, 1, 1, 1, 1, 1]
    peer = neighbour(router)
    random = Random(seed)
    number = 0
    for _ in range(30):
        one = random.randrange(len(REPEATED))
        for _ in range(random.choice([1, 2, 12])):
            assert result(peer, number, REPEATED[one]) == alone[one]
            number += 1
    for _ in range(20):
        result(peer, number, REPEATED[1])
        number += 1
    other.lose()
    router.settle()
    frames(peer)  # drop the reports about its deliveries
    (report,), got = result(peer, number, REPEATED[1])
    assert (report, got) == ((True, RELEASED), [[]])
