"""Presettled deliveries without credit of their consumer (routing-semantics.md 8.6, attribute presettledOverflow)."""

import time
from typing import Any

import pytest

from tests.peer import message
from tests.peer.links import PeerReceiver, PeerSender
from tests.peer.management import Management
from tests.system.fixtures import CAPACITY, Connect, Fresh, bodies
from tests.system.router import Section, listener, poll

pytestmark = pytest.mark.adversarial

WORKER_COUNTS = (1, 3)
STREAM = message.data(bytes(400_000))
#: Seconds between two grants of credit; the router drops deliveries for a consumer without credit after 1 s.
GRANT_SECONDS = 0.7
SECTIONS: list[Section] = [
    listener("ten", linkCapacity=10),
    ("address", {"prefix": "throttle", "distribution": "balanced", "presettledOverflow": "throttle"}),
    ("address", {"prefix": "block", "distribution": "balanced", "presettledOverflow": "block"}),
    ("address", {"prefix": "drop", "distribution": "balanced", "presettledOverflow": "dropOldest"}),
]


def attach_pair(connect: Connect, address: str, credit: int = 0) -> tuple[PeerSender, PeerReceiver]:
    """Attach a producer with capacity 250 and a consumer with a queue of ten."""
    receiver = connect("ten").receiver(address, credit)
    return connect().sender(address), receiver


def dropped(management: Management, receiver: PeerReceiver) -> int:
    """Return the number of presettled deliveries that the router has dropped for a consumer."""
    row = management.one("router.link", owningAddr="M0" + receiver.address, linkDir="out")
    count = row["droppedPresettledCount"]
    assert isinstance(count, int)
    return count


def wait_dropped(management: Management, receiver: PeerReceiver, count: int) -> None:
    """Wait until `count` deliveries were dropped. The consumer's worker receives them later than the producer's
    worker."""
    for _ in range(100):
        if dropped(management, receiver) >= count:
            break
    assert dropped(management, receiver) == count


def test_drop_oldest_keeps_the_first_and_the_newest(connect: Connect, fresh: Fresh, management: Management) -> None:
    """Of 15 deliveries with capacity 10 and no credit, numbers 1 and 11 to 15 remain and 9 are counted as dropped."""
    sender, receiver = attach_pair(connect, fresh("drop"))
    for number in range(1, 16):
        sender.send(message.message(number), settled=True)
    wait_dropped(management, receiver, 9)
    receiver.flow(20)
    assert bodies(receiver.receive(6)) == [1, 11, 12, 13, 14, 15]


def test_drop_oldest_keeps_unsettled_deliveries(connect: Connect, fresh: Fresh, management: Management) -> None:
    sender, receiver = attach_pair(connect, fresh("drop"))
    for number in range(20):
        sender.send(message.message(number), settled=number >= 5)
    wait_dropped(management, receiver, 10)
    receiver.flow(30, drain=True)
    assert bodies(receiver.receive(10)) == [0, 1, 2, 3, 4, 15, 16, 17, 18, 19]


def test_queued_presettled_do_not_count_as_unsettled(connect: Connect, fresh: Fresh, management: Management) -> None:
    """Queued presettled deliveries occupy places, but count as unsettled at neither link (Dispatch 1.19 reports 0)."""
    sender, receiver = attach_pair(connect, fresh("block"), credit=10)
    for number in range(50):
        sender.send(message.message(number), settled=True)
    number = sender.send(message.message(50))
    receiver.receive(10)

    def row(direction: str) -> dict[str, Any]:
        return management.one("router.link", owningAddr="M0" + receiver.address, linkDir=direction)

    poll(lambda: row("out")["undeliveredCount"] == 41, "the others wait")
    assert (row("in")["unsettledCount"], row("out")["unsettledCount"]) == (1, 0)
    assert (row("in")["presettledCount"], row("in")["deliveryCount"]) == (50, 51)
    receiver.flow(100)
    receiver.receive(41)[-1].settle()
    assert sender.outcome(number).name == "accepted"
    assert (row("in")["unsettledCount"], row("in")["acceptedCount"]) == (0, 1)


def test_aborted_message_does_not_count_as_unsettled(connect: Connect, fresh: Fresh, management: Management) -> None:
    """Aborted deliveries are not counted as queued presettled ones either."""
    sender, receiver = attach_pair(connect, fresh("block"), credit=3)
    for _ in range(3):
        sender.send(bytes(STREAM[:200_000]), more=True)
        receiver.next(complete=False)
        sender.send(b"", aborted=True)
    for number in range(40):
        sender.send(message.message(number), settled=True)
    sender.peer.barrier()
    row = management.one("router.link", owningAddr="M0" + receiver.address, linkDir="in")
    assert (row["deliveryCount"], row["presettledCount"], row["unsettledCount"]) == (43, 40, 0)


def receive_in_time(sender: PeerSender, receiver: PeerReceiver, total: int) -> bool:
    """Send as credit allows and receive all in order; return False if the interval between two grants was too long.

    After a second without credit the router drops deliveries, and a loaded machine may stop this process so long.
    """
    sent, granted = 0, time.monotonic()
    while receiver.taken < total:
        while sent < total and sender.credit > 0:
            sender.send(message.message(sent), settled=True)
            sent += 1
        if sent < total:
            sender.peer.barrier()
        number = message.body(receiver.next().payload)
        if time.monotonic() - granted > GRANT_SECONDS:
            return False
        assert number == receiver.taken - 1
        if receiver.taken % 5 == 0:
            receiver.flow(5)
            before, granted = granted, time.monotonic()
            if granted - before > GRANT_SECONDS:
                return False
    assert sent == total
    return True


@pytest.mark.parametrize("prefix", ["throttle", "block", "balanced"])
def test_consumer_granting_credit_in_time_loses_nothing(connect: Connect, fresh: Fresh, prefix: str) -> None:
    """A burst far above the consumer's capacity arrives completely and in order, with credit granted in small
    amounts."""
    for _ in range(10):
        sender, receiver = attach_pair(connect, fresh(prefix), credit=5)
        if receive_in_time(sender, receiver, 600):
            return
        sender.peer.drop()
        receiver.peer.drop()
    raise AssertionError("this machine has never run the test fast enough")


def test_throttle_withholds_credit_while_the_queue_is_full(
    connect: Connect, fresh: Fresh, management: Management
) -> None:
    """While the consumer's queue is full the producer gets no credit; it gets credit again once the queue has room.

    Deliveries that were dropped, because this took a second, may be replaced by new ones.
    """
    sender, receiver = attach_pair(connect, fresh("throttle"))
    taken = 0
    while sender.credit > 0:
        sender.send(message.message(taken), settled=True)
        taken += 1
        if sender.credit == 0:
            sender.peer.barrier()
        if taken > CAPACITY + 20:
            gone = dropped(management, receiver)
            assert taken <= CAPACITY + 20 + gone, "credit was returned for deliveries that nobody took"
    receiver.flow(2000)
    first = message.body(receiver.next().payload)
    found = bodies(receiver.receive(taken - first - 1))
    assert found == list(range(first + 1, taken))
    assert first <= dropped(management, receiver)
    sender.wait_credit()


def test_throttle_drops_oldest_for_a_silent_consumer(connect: Connect, fresh: Fresh, management: Management) -> None:
    """After a second without credit the oldest deliveries are dropped one at a time and counted; the producer
    continues."""
    sender, receiver = attach_pair(connect, fresh("throttle"))
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


def test_block_without_credit_never_drops(connect: Connect, fresh: Fresh, management: Management) -> None:
    sender, receiver = attach_pair(connect, fresh("block"))
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


def test_multicast_burst_reaches_ready_consumers_completely(connect: Connect, fresh: Fresh) -> None:
    address = fresh("multicast")
    receivers = [connect("ten").receiver(address, 2000) for _ in range(2)]
    sender = connect().sender(address)
    for number in range(1000):
        sender.wait_credit()
        sender.send(message.message(number), settled=True)
    for receiver in receivers:
        assert bodies(receiver.receive(1000)) == list(range(1000))
