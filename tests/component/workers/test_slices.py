"""Expensive frames are processed in slices: the worst legal frame of one client delays no other client."""

from collections.abc import Callable, Iterator

import pytest

from sluice.router.amqp.scheduler import UNITS_PER_SLICE
from sluice.router.testing.output import octets_held
from tests.component.engine.host import InProcessPeer, InProcessRouter, configuration
from tests.peer.frames import ACCEPTED, RELEASED
from tests.peer.talk import (
    MANY,
    consumer,
    flow,
    frames,
    message,
    messages,
    of,
    producer,
    say,
    settle,
    start,
    transfer,
)
from tests.peer.types import Described, ULong

DELIVERIES = 4 * UNITS_PER_SLICE  # unsettled deliveries of one client
BATCH = 1000
LISTENER = f"linkCapacity: {DELIVERIES}; maxSessionFrames: {2 * DELIVERIES}"
#: Slices of one connection in a wake: one when its octets are read, one when it resumes at the end.
SLICES_A_WAKE = 2


class OneWorkerPair:
    """Producer and consumer on one worker, each on a connection of its own."""

    def __init__(self, router: InProcessRouter, address: str, credit: int = MANY) -> None:
        self.router = router
        self.receiving = router.connect(0)
        self.sending = router.connect(0)
        self.receiving.feed(start() + consumer(0, address, credit))
        router.settle()
        self.sending.feed(start() + producer(0, address))
        router.settle()
        self.drop_received()
        self.sent = 0

    def drop_received(self) -> None:
        """Drop what both ends have received."""
        frames(self.receiving)
        frames(self.sending)

    def send(self, count: int) -> None:
        """Send unsettled messages, which the consumer receives."""
        for first in range(self.sent, self.sent + count, BATCH):
            last = min(first + BATCH, self.sent + count)
            self.sending.feed(b"".join(transfer(0, number, message(b"x")) for number in range(first, last)))
            self.router.settle()
        self.sent += count
        self.drop_received()


def wakes(router: InProcessRouter, done: Callable[[], bool]) -> Iterator[int]:
    """Wake worker 0 until `done`; yield the cost units of each wake."""
    scheduler = router.workers[0].loop.scheduler
    while not done():
        before = scheduler.charged + scheduler.work
        router.wake(router.workers[0])
        yield scheduler.charged + scheduler.work - before


def unread(peer: InProcessPeer) -> bool:
    """Return True if octets of the peer wait in its socket or in the router."""
    return bool(peer.transport.readable_now()) or peer.connection.paused != 0


WIDE = {
    "outcomes of all": settle(0, DELIVERIES - 1, ACCEPTED),
    "states of all, repeatedly": (settle(0, DELIVERIES - 1, ACCEPTED, settled=False)
                                       + settle(0, DELIVERIES - 1, RELEASED, settled=False)) * 5,
    "ranges without deliveries": settle(DELIVERIES, DELIVERIES + (1 << 30), ACCEPTED) * 500,
    "a range far beyond all": settle(0, (1 << 31) - 1, ACCEPTED),
}  # fmt: skip


@pytest.mark.parametrize("wide", WIDE.values(), ids=WIDE.keys())
def test_wide_disposition_of_a_consumer_is_applied_in_slices(routers, wide: bytes) -> None:
    router = routers(1, configuration(LISTENER))
    attacker = OneWorkerPair(router, "balanced.attacked")
    bystander = OneWorkerPair(router, "balanced.quiet")
    attacker.send(DELIVERIES)
    attacker.receiving.put(wide)
    number = 0
    for units in wakes(router, lambda: not unread(attacker.receiving)):
        # A frame is charged after its work, so a slice is exceeded by the cost of one frame at most.
        assert units <= SLICES_A_WAKE * 2 * UNITS_PER_SLICE
        bystander.sending.put(transfer(0, number, message(b"%d" % number)))
        number += 1
        router.wake(router.workers[0])
        assert messages(frames(bystander.receiving)) == [message(b"%d" % (number - 1))]
    assert number > 1
    router.settle()


def test_wide_disposition_in_slices_settles_each_delivery_once(routers) -> None:
    router = routers(1, configuration(LISTENER))
    pair = OneWorkerPair(router, "balanced.attacked")
    pair.send(DELIVERIES)
    pair.receiving.feed(settle(0, DELIVERIES - 1, ACCEPTED))
    router.settle()
    settled: list[int] = []
    for report in of(frames(pair.sending), "disposition"):
        assert (report.settled, report.state) == (True, ACCEPTED)
        settled += range(report.first, (report.first if report.last is None else report.last) + 1)
    assert settled == list(range(DELIVERIES))


@pytest.mark.parametrize("settled", [True, False], ids=["settled", "state"])
def test_wide_disposition_of_a_producer_is_applied_in_slices(routers, settled: bool) -> None:
    router = routers(1, configuration(LISTENER))
    attacker = OneWorkerPair(router, "balanced.attacked")
    attacker.send(DELIVERIES)
    attacker.sending.put(settle(0, DELIVERIES - 1, ACCEPTED, role=False, settled=settled) * (1 if settled else 10))
    count = 0
    for units in wakes(router, lambda: not unread(attacker.sending)):
        assert units <= SLICES_A_WAKE * 2 * UNITS_PER_SLICE
        count += 1
    assert count > 1
    router.settle()


ENDS = {
    "detach": lambda peer: peer.put(say("detach", handle=0, closed=True)),
    "end": lambda peer: peer.put(say("end")),
    "close": lambda peer: peer.put(say("close")),
    "loss": lambda peer: peer.transport.lose(),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
@pytest.mark.parametrize("credit", [0, MANY], ids=["queued", "sent"])
def test_consumer_with_many_deliveries_is_lost_in_slices(
    routers, end: Callable[[InProcessPeer], object], credit: int
) -> None:
    router = routers(1, configuration(LISTENER))
    attacker = OneWorkerPair(router, "balanced.attacked", credit)
    bystander = OneWorkerPair(router, "balanced.quiet")
    attacker.send(DELIVERIES)
    end(attacker.receiving)
    settled_ranges: list[range] = []
    number = 0
    for units in wakes(router, lambda: sum(map(len, settled_ranges)) == DELIVERIES):
        assert units <= SLICES_A_WAKE * 2 * UNITS_PER_SLICE
        router.decide()
        bystander.sending.put(transfer(0, number, message(b"%d" % number)))
        number += 1
        router.wake(router.workers[0])
        assert messages(frames(bystander.receiving)) == [message(b"%d" % (number - 1))]
        for report in of(frames(attacker.sending), "disposition"):
            assert report.settled
            assert report.state == (Described(ULong(0x27), [True, False]) if credit else RELEASED)
            settled_ranges.append(range(report.first, (report.first if report.last is None else report.last) + 1))
    assert number > 1
    assert sorted(each for one in settled_ranges for each in one) == list(range(DELIVERIES))
    router.settle()


def test_detach_of_ended_link_leaves_new_owner_of_slot(routers) -> None:
    router = routers(1, configuration(LISTENER), links=2)
    worker = router.workers[0]
    leaving = router.connect(0)
    leaving.feed(start() + consumer(0, "balanced.left"))
    router.settle()
    ((slot, link),) = worker.links.items()
    link.close_with("a:b", "closed by the router")
    router.settle()
    pair = OneWorkerPair(router, "balanced.attacked")
    assert slot in worker.links
    pair.send(DELIVERIES)
    leaving.feed(say("detach", handle=0, closed=True))
    assert not unread(leaving)
    router.settle()


RECEIVERS = 200  # links of one connection
MESSAGES = 240  # within the credit of one producer
COPY_OCTETS = 256  # octets charged for a queued copy (router/message/content.pxd)
DELIVERY_OCTETS = 512  # octets charged for a delivery with one copy (router/amqp/meter.pxd)


def test_multicast_copies_are_charged_and_counted(routers) -> None:
    router = routers(1)
    subscribers = router.connect(0)
    subscribers.feed(start() + b"".join(consumer(handle, "multicast.crowd", 0) for handle in range(RECEIVERS)))
    router.settle()
    sending = router.connect(0)
    sending.feed(start() + producer(0, "multicast.crowd"))
    router.settle()
    sending.put(b"".join(transfer(0, number, message(b"x")) for number in range(MESSAGES)))
    count = 0
    for units in wakes(router, lambda: not unread(sending)):
        assert units <= SLICES_A_WAKE * 2 * UNITS_PER_SLICE
        count += 1
    assert count > MESSAGES * RECEIVERS * 3 // (4 * UNITS_PER_SLICE)
    router.settle()
    assert octets_held(sending.connection) >= MESSAGES * RECEIVERS * COPY_OCTETS
    subscribers.feed(b"".join(flow(handle, 100) for handle in range(RECEIVERS)))
    router.settle()
    # Copies live until they are settled.
    assert octets_held(sending.connection) >= MESSAGES * RECEIVERS * COPY_OCTETS
    subscribers.feed(settle(0, 100 * RECEIVERS - 1, ACCEPTED))
    router.settle()
    left = (MESSAGES - 100) * (RECEIVERS * COPY_OCTETS + DELIVERY_OCTETS)
    assert left <= octets_held(sending.connection) <= left + MESSAGES * 100
    subscribers.feed(b"".join(flow(handle, 1000, delivery_count=100) for handle in range(RECEIVERS)))
    router.settle()
    subscribers.feed(settle(100 * RECEIVERS, MESSAGES * RECEIVERS - 1, ACCEPTED))
    router.settle()
    assert octets_held(sending.connection) == 0


def test_stream_reaches_many_consumers_on_other_worker(routers) -> None:
    """Octets charged for waiting copies do not count towards the octets that open the stream's window."""
    many = 1100  # their copies are charged more than the window of a stream between workers
    router = routers(2, links=2 * many)
    subscribers = router.connect(0)
    subscribers.feed(start() + b"".join(consumer(handle, "multicast.crowd", 0) for handle in range(many)))
    router.settle()
    assert len(of(frames(subscribers), "attach")) == many
    sending = router.connect(1)
    sending.feed(start() + producer(0, "multicast.crowd"))
    router.settle()
    octets = message(bytes(300_000))
    sending.feed(transfer(0, 0, octets, settled=True))
    router.settle()
    subscribers.feed(b"".join(flow(handle, 1) for handle in range(many)))
    ended = 0
    while sent := of(frames(subscribers), "transfer"):
        ended += sum(frame.more is not True for frame in sent)
        router.settle()
    assert ended == many
