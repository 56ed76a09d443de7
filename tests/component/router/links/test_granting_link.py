"""Capacity of incoming links: it grows while only credit limits the producer, and shrinks when consumers are slow."""

import pytest

from tests.component.engine.host import configuration
from tests.component.router.links.test_links import pair
from tests.peer.frames import ACCEPTED
from tests.peer.talk import consumer, flow, frames, message, of, settle, start, transfer
from tests.peer.talk import producer as attach_sender

LEAST, SHARED, LARGEST = 250, 4000, 4000
GROWN = 8 * LEAST  # after three rounds
SOON_MS, QUICK_MS, LATE_MS = 5, 100, 1000
IDLE_MS, WINDOW_MS = 10_000, 100


class CreditedProducer:
    """Producer that uses up its credit, and a consumer that settles what came."""

    def __init__(self, router, octets=10, **options):
        self.router = router
        self.octets = octets
        self.consuming, self.sending = pair(router, **options)
        self.link = next(record.link for record in self.sending.client.links.by_number.values())
        self.sent = self.settled = 0

    def send(self, count, *, settled=None):
        numbers = range(self.sent, self.sent + count)
        self.sending.feed(b"".join(transfer(0, each, message(b"m" * self.octets), settled=settled) for each in numbers))
        self.sent += count
        self.router.settle()

    def settle(self):
        self.consuming.feed(settle(self.settled, self.sent - 1, ACCEPTED))
        self.settled = self.sent
        self.router.settle()
        frames(self.consuming)

    def take_one(self):
        """Give the consumer credit for one delivery, settle the oldest, and use up the credit. Return the capacity."""
        self.consuming.feed(flow(0, 1, delivery_count=self.settled))
        self.consuming.feed(settle(self.settled, self.settled, ACCEPTED))
        self.settled += 1
        self.router.settle()
        capacity = self.link.capacity
        self.send(self.link.credit)
        return capacity

    def round(self, *, after_ms=0):
        """Use up the credit, let the time pass, and settle. Returns the new credit as the producer was told."""
        self.send(self.link.credit)
        self.router.pass_time(after_ms)
        self.settle()
        return of(frames(self.sending), "flow")[-1].link_credit


def test_capacity_grows_while_credit_limits_the_producer(routers):
    producer = CreditedProducer(routers())
    assert [producer.round() for _ in range(5)] == [500, 1000, 2000, LARGEST, LARGEST]


def test_withdrawn_credit_stays_withdrawn_and_late_deliveries_are_forwarded(routers):
    producer = CreditedProducer(routers())
    producer.send(10)
    producer.sending.client.links.withdraw_credit(None)
    producer.router.settle()
    assert [(each.link_credit, each.drain) for each in of(frames(producer.sending), "flow")][-1:] == [(0, False)]
    producer.send(5)
    assert len(of(frames(producer.consuming), "transfer")) == 15
    producer.settle()
    assert of(frames(producer.sending), "flow") == []
    assert (producer.link.withdrawn, producer.link.credit) == (True, 0)


# Time passes here while the loops wait. A loop is not taken for idle before the end of its first window.
@pytest.mark.parametrize(("waited_ms", "reached"), [(IDLE_MS, LARGEST), (0, SHARED // 2)], ids=["idle", "busy"])
def test_capacity_exceeds_its_share_for_distant_consumers_while_loop_is_idle(routers, waited_ms, reached):
    router = routers()
    crowd = [CreditedProducer(router, address=f"balanced.{name}") for name in "ab"]
    for producer in crowd:
        producer.round()
    router.pass_time(waited_ms)
    for _ in range(5):
        for producer in crowd:
            producer.send(producer.link.credit)
        router.pass_time(SOON_MS + 1)
        for producer in crowd:
            producer.settle()
    assert [producer.link.capacity for producer in crowd] == [reached] * 2


def test_presettled_deliveries_that_leave_at_once_let_capacity_grow(routers):
    producer = CreditedProducer(routers())
    for expected in (500, 1000, 2000, LARGEST, LARGEST):
        producer.send(producer.link.credit, settled=True)
        assert producer.link.capacity == expected


def test_configured_capacity_stays(routers):
    producer = CreditedProducer(routers(text=configuration(listener="linkCapacity: 250")))
    assert [producer.round() for _ in range(3)] == [LEAST] * 3


def test_capacity_stays_while_credit_is_left(routers):
    producer = CreditedProducer(routers())
    for _ in range(5):
        producer.send(LEAST - 1)
        producer.settle()
    assert producer.link.capacity == LEAST


def test_capacity_stays_while_deliveries_wait_long(routers):
    producer = CreditedProducer(routers())
    assert [producer.round(after_ms=QUICK_MS + 10) for _ in range(3)] == [LEAST] * 3


def test_capacity_shrinks_when_consumer_becomes_slow(routers):
    producer = CreditedProducer(routers())
    for _ in range(3):
        producer.round()
    assert [producer.round(after_ms=LATE_MS + 10) for _ in range(4)] == [1000, 500, LEAST, LEAST]


def test_capacity_shrinks_while_deliveries_wait_for_credit_of_consumer(routers):
    producer = CreditedProducer(routers())
    for _ in range(3):
        producer.round()
    producer.consuming.feed(flow(0, 0, delivery_count=producer.sent))
    producer.send(GROWN)
    sizes = [producer.take_one() for _ in range(12)]
    assert sizes == [GROWN] * 3 + [1500, 1125, 844, 633, 475, 357, 268, LEAST, LEAST]


def test_capacity_that_was_too_large_for_consumer_grows_by_quarters(routers):
    producer = CreditedProducer(routers())
    for _ in range(3):
        producer.round()
    producer.consuming.feed(flow(0, 0, delivery_count=producer.sent))
    producer.send(GROWN)
    assert [producer.take_one() for _ in range(4)][-1] == 1500
    producer.consuming.feed(flow(0, 2**31 - 1, delivery_count=producer.settled))
    producer.settle()
    assert {producer.round() for _ in range(100)} == {1500, 1875, 2343, 2928, 3660, LARGEST}


def test_capacity_stays_for_long_messages(routers):
    producer = CreditedProducer(routers(), octets=1500)
    assert [producer.round() for _ in range(3)] == [500] * 3, "500 of them have nearly a megabyte"


def test_capacity_returns_when_memory_is_scarce(routers):
    producer = CreditedProducer(routers(text=configuration(listener="maxBufferedMegabytes: 1")))
    assert [producer.round() for _ in range(3)] == [500, 1000, 2000]
    producer.send(2000)
    producer.consuming.feed(settle(producer.settled, producer.settled + 9, ACCEPTED))
    producer.router.settle()
    assert (producer.link.capacity, producer.link.credit) == (LEAST, 0), "1,990 deliveries take half of a megabyte"
    producer.settle()
    assert producer.link.credit == LEAST


def test_deliveries_for_withdrawn_credit_arrive_after_capacity_has_shrunk(routers):
    producer = CreditedProducer(routers())
    for _ in range(3):
        producer.round()
    producer.consuming.feed(flow(0, 0, delivery_count=producer.sent))
    producer.octets = 2 << 20  # so much of a stream is held that credit is withdrawn
    producer.send(1)
    assert (producer.link.capacity, producer.link.credit) == (LEAST, 0)
    producer.octets = 10
    producer.send(SHARED - 1)
    assert producer.link.occupied == SHARED
    assert not of(frames(producer.sending), "detach")


@pytest.mark.parametrize(("producers", "expected"), [(2, SHARED // 2), (3, SHARED // 3), (20, LEAST)])
def test_producers_that_run_out_of_credit_share_capacity(routers, producers, expected):
    router = routers()
    crowd = [CreditedProducer(router, address=f"balanced.{number}") for number in range(producers)]
    for _ in range(5):
        for producer in crowd:
            producer.round()
    assert [producer.link.capacity for producer in crowd] == [expected] * producers


def test_capacity_grows_again_when_others_no_longer_run_out_of_credit(routers):
    router = routers()
    one, other = (CreditedProducer(router, address=f"balanced.{name}") for name in "ab")
    for _ in range(5):
        one.round()
        other.round()
    assert one.round() == SHARED // 2
    router.pass_time(2 * WINDOW_MS)
    assert [one.round() for _ in range(2)] == [SHARED] * 2


class ManyProducers:
    """Connection with many producers of one address, which another of its links consumes, and the credit of each."""

    def __init__(self, router, links):
        self.router = router
        self.peer = router.connect()
        self.peer.feed(start() + consumer(links, "balanced.many"))
        router.settle()
        self.counts = [0] * links
        self.sent = 0
        self.peer.feed(b"".join(attach_sender(handle, "balanced.many") for handle in range(links)))
        router.settle()
        self.credit = {}
        self.read()

    def read(self):
        for each in of(frames(self.peer), "flow"):
            if each.handle is not None and each.handle < len(self.counts):
                self.credit[each.handle] = each.delivery_count + each.link_credit - self.counts[each.handle]

    def use_up(self, *, leaving=0):
        """Send settled deliveries for all credit of each link, except `leaving`."""
        for handle, credit in self.credit.items():
            count = credit - leaving
            numbers = range(self.sent, self.sent + count)
            self.peer.feed(b"".join(transfer(handle, each, message(b"m"), settled=True) for each in numbers))
            self.counts[handle] += count
            self.sent += count
        if not leaving:
            self.credit.clear()
        self.router.settle()
        self.read()

    def give_back(self):
        """Give the credit of each link back."""
        for handle, credit in self.credit.items():
            self.counts[handle] += credit
            self.peer.feed(flow(handle, 0, delivery_count=self.counts[handle]))
        self.credit.clear()
        self.router.settle()
        self.read()

    def capacities(self):
        links = [record.link for record in self.peer.client.links.by_number.values()]
        return {link.capacity for link in links if hasattr(link, "flowing")}


def test_links_of_one_connection_divide_its_share(routers):
    router = routers()
    bystander = CreditedProducer(router)
    for _ in range(5):
        bystander.round()
    crowd = ManyProducers(router, 40)
    for _ in range(5):
        crowd.use_up()
        bystander.round()
    assert bystander.link.capacity == SHARED // 2
    assert max(crowd.capacities()) <= 2 * LEAST


@pytest.mark.parametrize("leaving", [LEAST, 1], ids=["all", "one"])
def test_producers_that_give_credit_back_take_no_share(routers, leaving):
    router = routers()
    bystander = CreditedProducer(router)
    for _ in range(5):
        bystander.round()
    crowd = ManyProducers(router, 40)
    for _ in range(3):
        crowd.use_up(leaving=leaving)
        crowd.give_back()
        bystander.round()
    assert set(crowd.credit.values()) == {LEAST}
    assert (bystander.link.capacity, crowd.capacities()) == (LARGEST, {LEAST})
