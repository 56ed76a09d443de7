"""Presettled deliveries that a consumer does not take (routing-semantics 8.6, attribute presettledOverflow)."""

import pytest

from tests.peer import message
from tests.peer.management import Management
from tests.peer.peer import Receiver, Sender
from tests.system.fixtures import CAPACITY, Connect, Fresh, bodies
from tests.system.router import Section, listener

SECTIONS: list[Section] = [
    listener("ten", linkCapacity=10),
    ("address", {"prefix": "throttle", "distribution": "balanced", "presettledOverflow": "throttle"}),
    ("address", {"prefix": "block", "distribution": "balanced", "presettledOverflow": "block"}),
    ("address", {"prefix": "drop", "distribution": "balanced", "presettledOverflow": "dropOldest"}),
]


def arrange(connect: Connect, address: str, credit: int = 0) -> tuple[Sender, Receiver]:
    """A producer with capacity 250 and a consumer with a queue of ten."""
    receiver = connect("ten").receiver(address, credit)
    return connect().sender(address), receiver


def test_drop_oldest_as_before(connect: Connect, fresh: Fresh, management: Management) -> None:
    """15 presettled, capacity 10, no credit: messages 1, 11, 12, 13, 14, 15 are left and 9 are counted."""
    sender, receiver = arrange(connect, fresh("drop"))
    for number in range(1, 16):
        sender.send(message.message(number), settled=True)
    sender.peer.barrier()
    row = None

    def dropped() -> bool:
        nonlocal row
        row = management.one("router.link", owningAddr="M0" + receiver.address, linkDir="out")
        return bool(row["droppedPresettledCount"] == 9)

    for _ in range(100):
        if dropped():
            break
    assert row is not None
    assert row["droppedPresettledCount"] == 9
    receiver.flow(20)
    assert bodies(receiver.receive(6)) == [1, 11, 12, 13, 14, 15]


def test_drop_oldest_spares_unsettled(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = arrange(connect, fresh("drop"))
    for number in range(20):
        sender.send(message.message(number), settled=number >= 5)
    sender.peer.barrier()
    receiver.flow(30, drain=True)
    assert bodies(receiver.receive(10)) == [0, 1, 2, 3, 4, 15, 16, 17, 18, 19]


@pytest.mark.parametrize("prefix", ["throttle", "block", "balanced"])
def test_a_consumer_that_grants_credit_loses_nothing(connect: Connect, fresh: Fresh, prefix: str) -> None:
    """A burst far above the consumer's capacity, credit granted bit by bit: all arrive, in order."""
    sender, receiver = arrange(connect, fresh(prefix), credit=5)
    total, sent = 600, 0
    while receiver.taken < total:
        while sent < total and sender.credit > 0:
            sender.send(message.message(sent), settled=True)
            sent += 1
        if sent < total:
            sender.peer.barrier()
        assert message.body(receiver.next().payload) == receiver.taken - 1
        if receiver.taken % 5 == 0:
            receiver.flow(5)
    assert sent == total


def test_throttle_holds_back_the_producers_credit(connect: Connect, fresh: Fresh) -> None:
    """The producer gets no more credit while the consumer's queue is full, and credit again when it has room."""
    sender, receiver = arrange(connect, fresh("throttle"))
    taken = 0
    while sender.credit > 0:
        sender.send(message.message(taken), settled=True)
        taken += 1
        if sender.credit == 0:
            sender.peer.barrier()
        assert taken <= CAPACITY + 20, "credit was returned for deliveries that nobody took"
    receiver.flow(1000)
    assert bodies(receiver.receive(taken))[:10] == list(range(10))
    sender.wait_credit()


def test_throttle_drops_oldest_for_a_consumer_that_stays_silent(
    connect: Connect, fresh: Fresh, management: Management
) -> None:
    """No credit for a second: then the oldest go, one at a time, counted; the producer goes on."""
    sender, receiver = arrange(connect, fresh("throttle"))
    total, sent = 300, 0
    while sent < total:
        sender.wait_credit(timeout=20)
        sender.send(message.message(sent), settled=True)
        sent += 1
    sender.peer.barrier()
    row = management.one("router.link", owningAddr="M0" + receiver.address, linkDir="out")
    receiver.flow(1000, drain=True)
    receiver.peer.until(lambda: any(f.drain and not f.link_credit for f in receiver.flows), "drained")
    found = bodies(receiver.deliveries)
    assert found[-1] == total - 1, "the newest was lost"
    assert found == sorted(found)
    assert found[-10:] == list(range(total - 10, total)), "not the oldest were dropped"
    assert row["droppedPresettledCount"] > 0
    assert row["droppedPresettledCount"] + len(found) <= total


def test_block_never_drops(connect: Connect, fresh: Fresh, management: Management) -> None:
    sender, receiver = arrange(connect, fresh("block"))
    sent = 0
    while sender.credit > 0:
        sender.send(message.message(sent), settled=True)
        sent += 1
        if sender.credit == 0:
            sender.peer.barrier()
        assert sent <= CAPACITY + 20
    row = management.one("router.link", owningAddr="M0" + receiver.address, linkDir="out")
    assert row["droppedPresettledCount"] == 0
    receiver.flow(1000)
    assert bodies(receiver.receive(sent)) == list(range(sent))


def test_multicast_burst_to_ready_consumers(connect: Connect, fresh: Fresh) -> None:
    address = fresh("multicast")
    receivers = [connect("ten").receiver(address, 2000) for _ in range(2)]
    sender = connect().sender(address)
    for number in range(1000):
        sender.wait_credit()
        sender.send(message.message(number), settled=True)
    for receiver in receivers:
        assert bodies(receiver.receive(1000)) == list(range(1000))
