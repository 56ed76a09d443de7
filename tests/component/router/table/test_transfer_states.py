"""Delivery states in a producer's transfers are relayed in the transfers to consumers (routing-semantics.md D-4)."""

from typing import Any

import pytest

from tests.peer.frames import ACCEPTED, modified, received, rejected
from tests.peer.talk import consumer, flow, frames, message, messages, of, producer, say, settle, start, transfer
from tests.peer.types import Described, Symbol, UInt, ULong

TRANSACTIONAL = Described(ULong(0x34), [b"txn-1", ACCEPTED])
STATES = [
    ACCEPTED,
    rejected("my:error", "a description"),
    modified(True, True, {Symbol("k"): "v"}),
    received(3, 1000),
    TRANSACTIONAL,
    Described(Symbol("not:known"), [UInt(1), "x"]),
    Described(ULong(0x34), [b"t" * 149]),  # octets around the longest short list
    Described(ULong(0x34), [b"t" * 240]),
    Described(ULong(0x34), [b"t" * 8000]),
]
SIZES = [10, 40_000, 300_000]  # octets of one frame, of several, of a stream


@pytest.fixture(params=[1, 2])
def clients_of_router(request, routers):
    """Return a router and a function that connects clients to its first or last worker."""
    router = routers(request.param)

    def client(last, *octets, max_frame=16384):
        peer = router.connect(request.param - 1 if last else 0)
        peer.feed(start(max_frame_size=UInt(max_frame)) + b"".join(octets))
        router.settle()
        frames(peer)
        return peer

    return router, client


def states(heard):
    """Return the state in the first transfer of each delivery. No other transfer may have one."""
    found: dict[Any, Any] = {}
    for frame in of(heard, "transfer"):
        if frame.delivery_id in (None, *found):
            assert frame.state is None
        else:
            found[frame.delivery_id] = frame.state
    return list(found.values())


@pytest.mark.parametrize("settled", [None, True])
@pytest.mark.parametrize("size", SIZES)
def test_state_of_transfer_is_relayed(clients_of_router, size, settled):
    router, client = clients_of_router
    receiving, sending = client(False, consumer(0, "balanced.a")), client(True, producer(0, "balanced.a"))
    for number, state in enumerate(STATES):
        sending.feed(transfer(0, number, message(b"x" * size), part=8000, state=state, settled=settled))
        router.settle()
        heard = frames(receiving)
        assert messages(heard) == [message(b"x" * size)]
        assert [of(heard, "transfer")[0].state] == [state]
        if not settled:
            receiving.feed(settle(number, state=ACCEPTED))
            router.settle()
            (report,) = of(frames(sending), "disposition")
            assert (report.first, report.settled, report.state) == (number, True, ACCEPTED)


@pytest.mark.parametrize("size", SIZES)
def test_state_of_waiting_message_is_relayed_later(clients_of_router, size):
    router, client = clients_of_router
    receiving, sending = client(False, consumer(0, "balanced.a", 0)), client(True, producer(0, "balanced.a"))
    for number, state in enumerate([TRANSACTIONAL, None, received(1, 2)]):
        sending.feed(transfer(0, number, message(b"x" * size), state=state))
    router.settle()
    receiving.feed(flow(0, 3))
    router.settle()
    heard = frames(receiving)
    assert len(messages(heard)) == 3
    assert states(heard) == [TRANSACTIONAL, None, received(1, 2)]


def test_state_of_multicast_reaches_its_consumers(clients_of_router):
    router, client = clients_of_router
    ready = [client(last, consumer(0, "multicast.a")) for last in (False, False, True)]
    waiting = [client(last, consumer(0, "multicast.a", 0)) for last in (False, True)]
    sending = client(True, producer(0, "multicast.a"))
    sending.feed(transfer(0, 0, message(b"x"), state=TRANSACTIONAL))
    router.settle()
    for receiving in waiting:
        receiving.feed(flow(0, 1))
    router.settle()
    for receiving in ready + waiting:
        assert states(frames(receiving)) == [TRANSACTIONAL]


def part(number, payload, **fields):
    first: dict[str, Any] = {"delivery_id": 0, "delivery_tag": b"t", "message_format": 0} if number == 0 else {}
    return say("transfer", payload=payload, handle=0, **first, **fields)


def test_state_in_later_transfer_is_relayed(clients_of_router):
    """A message forwarded whole has the state in its first transfer. A message that has begun to leave gets a
    disposition."""
    router, client = clients_of_router
    receiving, sending = client(False, consumer(0, "balanced.a")), client(True, producer(0, "balanced.a"))
    body = message(b"x" * 20_000)
    sending.feed(part(0, body[:15_000], more=True) + part(1, body[15_000:], state=TRANSACTIONAL))
    router.settle()
    heard = frames(receiving)
    assert (messages(heard), states(heard)) == ([body], [TRANSACTIONAL])
    body = message(b"x" * 200_000)
    pieces = [body[at : at + 15_000] for at in range(0, len(body), 15_000)]
    begin = say("transfer", payload=pieces[0], handle=0, delivery_id=1, delivery_tag=b"t", message_format=0, more=True)
    sending.feed(begin + b"".join(part(1, piece, more=True) for piece in pieces[1:10]))
    router.settle()
    assert of(frames(receiving), "transfer"), "it has begun to leave"
    sending.feed(part(1, pieces[10], more=True, state=ACCEPTED))
    router.settle()
    (told,) = of(frames(receiving), "disposition")
    assert (told.role, told.first, told.settled or False, told.state) == (False, 1, False, ACCEPTED)
    sending.feed(b"".join(part(1, piece, more=index < 2) for index, piece in enumerate(pieces[11:])))
    router.settle()
    assert of(frames(receiving), "transfer")[-1].more is not True


def test_disposition_for_waiting_message_is_relayed_in_transfer(clients_of_router):
    """The producer's disposition becomes part of the transfer."""
    router, client = clients_of_router
    receiving, sending = client(False, consumer(0, "balanced.a", 0)), client(True, producer(0, "balanced.a"))
    sending.feed(transfer(0, 0, message(b"x")) + transfer(0, 1, message(b"y"), state=received(0, 0)))
    router.settle()
    sending.feed(settle(0, 1, state=TRANSACTIONAL, role=False, settled=False))
    router.settle()
    receiving.feed(flow(0, 2))
    router.settle()
    assert states(frames(receiving)) == [TRANSACTIONAL, TRANSACTIONAL]


def test_state_too_long_for_peers_frames_is_reduced_to_kind(clients_of_router):
    router, client = clients_of_router
    receiving = client(False, consumer(0, "balanced.a"), max_frame=512)
    sending = client(True, producer(0, "balanced.a"))
    long = rejected("my:error", "x" * 1000)
    for number, (state, size) in enumerate([(long, 10), (long, 1000), (Described(ULong(0x34), [b"t" * 1000]), 10)]):
        sending.feed(transfer(0, number, message(b"x" * size), state=state))
        router.settle()
        heard = frames(receiving)
        assert messages(heard) == [message(b"x" * size)]
        (told,) = states(heard)
        assert (told is None) if number == 2 else (told.descriptor, told.value) == (0x25, [])


def test_state_too_long_for_other_workers_is_reduced_to_kind(clients_of_router):
    router, client = clients_of_router
    receiving = client(False, consumer(0, "balanced.a"), max_frame=16384)
    sending = client(True, producer(0, "balanced.a"))
    sending.feed(transfer(0, 0, message(b"x"), state=rejected("my:error", "x" * 9000)))
    router.settle()
    (told,) = states(frames(receiving))
    assert (told.descriptor, told.value) == (0x25, [])


def test_invalid_state_closes_connection_of_sender_only(clients_of_router):
    router, client = clients_of_router
    receiving, sending = client(False, consumer(0, "balanced.a")), client(True, producer(0, "balanced.a"))
    good = transfer(0, 0, message(b"x"), state=Described(ULong(0x34), [b"abcdefgh", "text"]))
    sending.feed(good.replace(b"text", b"te\xff\xff"))
    router.settle()
    assert of(frames(sending), "close")
    assert of(frames(receiving), "transfer") == []


def test_state_of_transfer_crosses_routers(networks):
    network = networks("AB", 2)
    network.join("A", "B", workers=(1, 0))
    network.converge()

    def client(router, *octets):
        peer = network[router].connect(0)
        peer.feed(start() + b"".join(octets))
        network.settle()
        frames(peer)
        return peer

    receiving = [client("B", consumer(0, f"{way}.a", 1)) for way in ("balanced", "multicast", "multicast")]
    for way in ("balanced", "multicast"):
        network.known(f"M0{way}.a", "B")
    for way, there in (("balanced", receiving[:1]), ("multicast", receiving[1:])):
        sending = client("A", producer(0, f"{way}.a"))
        for number, (state, size) in enumerate([(TRANSACTIONAL, 10), (received(3, 1000), 300_000)]):
            sending.feed(transfer(0, number, message(b"x" * size), state=state))
            network.settle()
            for each in there:
                assert states(frames(each)) == [state]
                each.feed(settle(number, state=ACCEPTED) + flow(0, 1, delivery_count=number + 1))
            network.settle()
