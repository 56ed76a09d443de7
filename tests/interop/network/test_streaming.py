"""Messages that are forwarded before they are complete, on links of their own (inter-router.md 2.9)."""

from __future__ import annotations

from collections.abc import Callable

from tests.interop.network.conftest import Chain, Middle
from tests.peer import frames, message
from tests.peer.router19.connection import InterRouterConnection

WORKER_COUNTS = (1, 3)
Fresh = Callable[..., str]
#: More than what is collected before forwarding begins.
PART = 200_000
#: Numbers of data links that are there from the start.
PRIORITIES = 10


def begun(body: str) -> tuple[bytes, bytes]:
    """A large message in two parts."""
    whole = message.message(body)
    return whole[:PART], whole[PART:]


def stream_links(connection: InterRouterConnection) -> int:
    """Data links that S has opened besides those of the priorities."""
    return len(connection.data_in) - PRIORITIES


def from_s(middle: Middle) -> InterRouterConnection:
    """R's connection to S."""
    return middle.right.wait_neighbour("S")


def test_a_large_message_takes_a_link_of_its_own(middle: Middle, fresh: Fresh) -> None:
    address = fresh("closest")
    consumer = middle.right.consumer(address)
    middle.s.wait_remote(consumer.key, "R")
    sender = middle.s.client().sender(address)
    first, rest = begun("x" * 400_000)
    number = sender.send(first, more=True)
    middle.world.wait(lambda: consumer.arrivals and consumer.arrivals[0].payload, "it arrives while it is sent")
    assert not consumer.arrivals[0].complete
    connection = from_s(middle)
    _connection, link, _head = middle.right.forward.seen[-1]
    assert link is not None
    assert connection.data_in.index(link) >= PRIORITIES
    assert link.capability == "qd.router-data"
    assert link.session.channel not in range(11)
    sender.send(rest)
    assert consumer.next().body == "x" * 400_000
    assert sender.outcome(number).name == "accepted"


def test_small_messages_overtake_it(middle: Middle, fresh: Fresh) -> None:
    address = fresh("closest")
    consumer = middle.right.consumer(address)
    middle.s.wait_remote(consumer.key, "R")
    slow, quick = middle.s.client().sender(address), middle.s.client().sender(address)
    first, rest = begun("x" * 400_000)
    number = slow.send(first, more=True)
    middle.world.wait(lambda: consumer.arrivals, "the large one has begun")
    assert quick.request(message.message("small")).name == "accepted"
    assert [one.body for one in consumer.arrivals if one.complete] == ["small"]
    slow.send(rest)
    assert slow.outcome(number).name == "accepted"


def test_its_links_are_used_again(middle: Middle, fresh: Fresh) -> None:
    address = fresh("closest")
    consumer = middle.right.consumer(address)
    middle.s.wait_remote(consumer.key, "R")
    peer = middle.s.client()
    senders = [peer.begin().sender(address) for _ in range(3)]
    links = []
    for _ in range(3):
        for index, sender in enumerate(senders):
            first, rest = begun(str(index) * 400_000)
            before = len(consumer.arrivals)
            number = sender.send(first, more=True)
            consumer.wait_arrivals(before + 1)
            links.append(stream_links(from_s(middle)))
            sender.send(rest)
            assert sender.outcome(number).name == "accepted"
    assert links[-1] == links[0]


def test_several_at_once(middle: Middle, fresh: Fresh) -> None:
    address = fresh("closest")
    consumer = middle.right.consumer(address)
    middle.s.wait_remote(consumer.key, "R")
    senders = [middle.s.client().sender(address) for _ in range(4)]
    parts = [begun(str(index) * 400_000) for index in range(4)]
    numbers = [sender.send(first, more=True) for sender, (first, _rest) in zip(senders, parts, strict=True)]
    middle.world.wait(lambda: len(consumer.arrivals) == 4, "all four have begun")
    for sender, (_first, rest) in zip(senders, parts, strict=True):
        sender.send(rest)
    for sender, number in zip(senders, numbers, strict=True):
        assert sender.outcome(number).name == "accepted"
    assert {one.body[0] for one in consumer.arrivals} == set("0123")


def test_a_complete_message_stays_on_its_priority_link(middle: Middle, fresh: Fresh) -> None:
    address = fresh("closest")
    consumer = middle.right.consumer(address)
    middle.s.wait_remote(consumer.key, "R")
    body = "y" * 100_000
    assert middle.s.client().sender(address).request(message.message(body)).name == "accepted"
    assert consumer.next().body == body
    _connection, link, _head = middle.right.forward.seen[-1]
    assert link is not None
    assert from_s(middle).data_in.index(link) == 4


def test_a_stream_of_1_19_reaches_a_client(middle: Middle, fresh: Fresh) -> None:
    address = fresh("closest")
    receiver = middle.s.client().receiver(address, credit=10)
    middle.left.wait_key("M0" + address, "S")
    first, rest = begun("z" * 400_000)
    sent = middle.left.send(address, first, complete=False)
    got = receiver.next(complete=False)
    assert not got.complete
    sent.extend(rest)
    receiver.peer.until(lambda: got.complete, "the rest")
    assert message.body(got.payload) == "z" * 400_000
    got.settle()
    assert sent.outcome() == "accepted"


def test_a_stream_in_transit(middle: Middle, fresh: Fresh) -> None:
    address = fresh("closest")
    consumer = middle.right.consumer(address)
    middle.left.wait_key(consumer.key, "R")
    middle.s.wait_remote(consumer.key, "R")
    first, rest = begun("w" * 500_000)
    sent = middle.left.send(address, first, complete=False)
    middle.world.wait(lambda: consumer.arrivals, "it arrives while it is sent")
    sent.extend(rest)
    assert consumer.next().body == "w" * 500_000
    assert sent.outcome() == "accepted"


def test_an_aborted_stream_is_aborted_far_away(chain: Chain, fresh: Fresh) -> None:
    address = fresh("closest")
    receiver = chain.b.client().receiver(address, credit=10)
    sender = chain.a.client().sender(address)
    first, _rest = begun("v" * 400_000)
    sender.send(first, more=True)
    got = receiver.next(complete=False)
    sender.abort()
    receiver.peer.until(lambda: got.aborted, "the abortion")
    number = sender.send(message.message("next"))
    receiver.next().settle()
    assert sender.outcome(number).name == "accepted"


def test_a_producer_that_is_lost_amid_a_stream(chain: Chain, fresh: Fresh) -> None:
    address = fresh("closest")
    receiver = chain.b.client().receiver(address, credit=10)
    sender = chain.a.client().sender(address)
    sender.send(begun("u" * 400_000)[0], more=True)
    got = receiver.next(complete=False)
    sender.peer.drop()
    receiver.peer.until(lambda: got.aborted, "the abortion")


def test_streams_both_ways_through_1_19(chain: Chain, fresh: Fresh) -> None:
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
