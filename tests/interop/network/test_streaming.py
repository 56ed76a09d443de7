"""Streamed messages, which are forwarded before they are complete, on links of their own (inter-router.md 2.9)."""

from __future__ import annotations

from collections.abc import Callable

from tests.interop.network.conftest import ChainNetwork, MiddleNetwork
from tests.peer import frames, message
from tests.peer.router19.connection import InterRouterConnection

WORKER_COUNTS = (1, 3)
Fresh = Callable[..., str]
#: Octets of a first part: more than the router collects before it starts to forward.
PART = 200_000
#: Data links that exist from the start, one for each priority.
PRIORITIES = 10


def split_message(body: str) -> tuple[bytes, bytes]:
    """Return a large message in two parts."""
    whole = message.message(body)
    return whole[:PART], whole[PART:]


def stream_links(connection: InterRouterConnection) -> int:
    """Return the number of data links that S has attached besides those of the priorities."""
    return len(connection.data_in) - PRIORITIES


def connection_from_s(middle: MiddleNetwork) -> InterRouterConnection:
    """Return R's connection to S."""
    return middle.right.wait_neighbour("S")


def test_large_message_takes_own_link(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh("closest")
    consumer = middle.right.consumer(address)
    middle.s.wait_remote(consumer.key, "R")
    sender = middle.s.client().sender(address)
    first, rest = split_message("x" * 400_000)
    number = sender.send(first, more=True)
    middle.world.wait(
        lambda: consumer.arrivals and consumer.arrivals[0].payload, "the message arrives while it is sent"
    )
    assert not consumer.arrivals[0].complete
    connection = connection_from_s(middle)
    _connection, link, _head = middle.right.forward.seen[-1]
    assert link is not None
    assert connection.data_in.index(link) >= PRIORITIES
    assert link.capability == "qd.router-data"
    assert link.session.channel not in range(11)
    sender.send(rest)
    assert consumer.next().body == "x" * 400_000
    assert sender.outcome(number).name == "accepted"


def test_small_messages_overtake_stream(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh("closest")
    consumer = middle.right.consumer(address)
    middle.s.wait_remote(consumer.key, "R")
    slow, quick = middle.s.client().sender(address), middle.s.client().sender(address)
    first, rest = split_message("x" * 400_000)
    number = slow.send(first, more=True)
    middle.world.wait(lambda: consumer.arrivals, "the stream has begun")
    assert quick.request(message.message("small")).name == "accepted"
    assert [one.body for one in consumer.arrivals if one.complete] == ["small"]
    slow.send(rest)
    assert slow.outcome(number).name == "accepted"


def test_stream_links_are_reused(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh("closest")
    consumer = middle.right.consumer(address)
    middle.s.wait_remote(consumer.key, "R")
    peer = middle.s.client()
    senders = [peer.begin().sender(address) for _ in range(3)]
    links = []
    for _ in range(3):
        for index, sender in enumerate(senders):
            first, rest = split_message(str(index) * 400_000)
            before = len(consumer.arrivals)
            number = sender.send(first, more=True)
            consumer.wait_arrivals(before + 1)
            links.append(stream_links(connection_from_s(middle)))
            sender.send(rest)
            assert sender.outcome(number).name == "accepted"
    assert links[-1] == links[0]


def test_concurrent_streams_arrive_whole(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh("closest")
    consumer = middle.right.consumer(address)
    middle.s.wait_remote(consumer.key, "R")
    senders = [middle.s.client().sender(address) for _ in range(4)]
    parts = [split_message(str(index) * 400_000) for index in range(4)]
    numbers = [sender.send(first, more=True) for sender, (first, _rest) in zip(senders, parts, strict=True)]
    middle.world.wait(lambda: len(consumer.arrivals) == 4, "all four streams have begun")
    for sender, (_first, rest) in zip(senders, parts, strict=True):
        sender.send(rest)
    for sender, number in zip(senders, numbers, strict=True):
        assert sender.outcome(number).name == "accepted"
    assert {one.body[0] for one in consumer.arrivals} == set("0123")


def test_complete_message_stays_on_priority_link(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh("closest")
    consumer = middle.right.consumer(address)
    middle.s.wait_remote(consumer.key, "R")
    body = "y" * 100_000
    assert middle.s.client().sender(address).request(message.message(body)).name == "accepted"
    assert consumer.next().body == body
    _connection, link, _head = middle.right.forward.seen[-1]
    assert link is not None
    assert connection_from_s(middle).data_in.index(link) == 4


def test_stream_from_1_19_reaches_client(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh("closest")
    receiver = middle.s.client().receiver(address, credit=10)
    middle.left.wait_key("M0" + address, "S")
    first, rest = split_message("z" * 400_000)
    sent = middle.left.send(address, first, complete=False)
    got = receiver.next(complete=False)
    assert not got.complete
    sent.extend(rest)
    receiver.peer.until(lambda: got.complete, "the rest of the message")
    assert message.body(got.payload) == "z" * 400_000
    got.settle()
    assert sent.outcome() == "accepted"


def test_stream_in_transit_is_forwarded(middle: MiddleNetwork, fresh: Fresh) -> None:
    address = fresh("closest")
    consumer = middle.right.consumer(address)
    middle.left.wait_key(consumer.key, "R")
    middle.s.wait_remote(consumer.key, "R")
    first, rest = split_message("w" * 500_000)
    sent = middle.left.send(address, first, complete=False)
    middle.world.wait(lambda: consumer.arrivals, "the message arrives while it is sent")
    sent.extend(rest)
    assert consumer.next().body == "w" * 500_000
    assert sent.outcome() == "accepted"


def test_aborted_stream_is_aborted_at_remote_consumer(chain: ChainNetwork, fresh: Fresh) -> None:
    address = fresh("closest")
    receiver = chain.b.client().receiver(address, credit=10)
    sender = chain.a.client().sender(address)
    first, _rest = split_message("v" * 400_000)
    sender.send(first, more=True)
    got = receiver.next(complete=False)
    sender.abort()
    receiver.peer.until(lambda: got.aborted, "the aborted transfer")
    number = sender.send(message.message("next"))
    receiver.next().settle()
    assert sender.outcome(number).name == "accepted"


def test_stream_of_lost_producer_is_aborted(chain: ChainNetwork, fresh: Fresh) -> None:
    address = fresh("closest")
    receiver = chain.b.client().receiver(address, credit=10)
    sender = chain.a.client().sender(address)
    sender.send(split_message("u" * 400_000)[0], more=True)
    got = receiver.next(complete=False)
    sender.peer.drop()
    receiver.peer.until(lambda: got.aborted, "the aborted transfer")


def test_streams_both_ways_pass_1_19_router(chain: ChainNetwork, fresh: Fresh) -> None:
    addresses = fresh("closest"), fresh("closest")
    at_b = chain.b.client().receiver(addresses[0], credit=10)
    at_a = chain.a.client().receiver(addresses[1], credit=10)
    senders = chain.a.client().sender(addresses[0]), chain.b.client().sender(addresses[1])
    body = "t" * 3_000_000
    numbers = [sender.send(message.message(body)) for sender in senders]
    for receiver in (at_b, at_a):
        got = receiver.next()
        assert message.body(got.payload) == body
        got.settle(frames.ACCEPTED)
    for sender, number in zip(senders, numbers, strict=True):
        assert sender.outcome(number).name == "accepted"
