"""Each delivery ends in exactly one counted way (routing-semantics.md 16.3, management.md 7, architecture).

accounting.py has the method; test_accounting_losses.py tests losses and aborts.
"""

from __future__ import annotations

import pytest

from tests.peer import frames, message
from tests.peer.links import PeerReceiver, PeerSender
from tests.system.counters import Counters
from tests.system.deliveries import accounting
from tests.system.deliveries.accounting import LOSSES, OUTCOMES, STREAMING, TEN, settled_outcomes
from tests.system.fixtures import CAPACITY, SECOND, Connect, Fresh, bodies, pair, wait_address_table

WORKER_COUNTS = (1, 3)
SECTIONS = accounting.SECTIONS
counters = accounting.counters


# --- one consumer ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["balanced", "closest", "multicast"])
@pytest.mark.parametrize("name", list(OUTCOMES))
def test_outcome_of_each_kind_is_counted(
    connect: Connect, fresh: Fresh, counters: Counters, prefix: str, name: str
) -> None:
    sender, receiver = pair(connect, fresh(prefix), credit=20)
    with counters.expect(ingress=20, egress=20, **{name: 20}):
        numbers = [sender.send(message.message(n)) for n in range(20)]
        for delivery in receiver.receive(20):
            delivery.settle(OUTCOMES[name])
        assert settled_outcomes(sender, numbers) == [name] * 20
    counters.wait_gauges("all settled")


def test_link_counters_agree_with_totals(connect: Connect, fresh: Fresh, counters: Counters) -> None:
    """The slots of both links count two of each outcome and three presettled deliveries."""
    sender, receiver = pair(connect, fresh(), credit=20)
    numbers = [sender.send(message.message(n)) for n in range(8)]
    for _ in range(3):
        sender.send(message.message("settled"), settled=True)
    deliveries = receiver.receive(11)
    for delivery, state in zip(deliveries, [*OUTCOMES.values(), *OUTCOMES.values()], strict=False):
        delivery.settle(state)
    settled_outcomes(sender, numbers)
    counters.wait_gauges("all settled")
    expected = {"deliveries": 11, "presettled": 3, "dropped_presettled": 0, **dict.fromkeys(OUTCOMES, 2)}
    found = {link["direction"]: {name: link[name] for name in expected} for link in counters.links()}
    assert found == {1: expected, 2: expected}


def test_settlement_without_state_is_counted(connect: Connect, fresh: Fresh, counters: Counters) -> None:
    sender, receiver = pair(connect, fresh())
    with counters.expect(ingress=5, egress=5, settled_no_state=5):
        numbers = [sender.send(message.message(n)) for n in range(5)]
        for delivery in receiver.receive(5):
            delivery.settle(None)
        assert settled_outcomes(sender, numbers) == [None] * 5


def test_outcome_before_settlement_counts_at_settlement(connect: Connect, fresh: Fresh, counters: Counters) -> None:
    """The delivery is counted once, when it is finished (management.md 7.2)."""
    sender, receiver = pair(connect, fresh(), mode=SECOND)
    with counters.expect(ingress=1, egress=1):
        number = sender.send(message.message("x"))
        delivery = receiver.next()
        delivery.settle(settled=False)
        assert sender.outcome(number, settled=False).name == "accepted"
    with counters.expect(accepted=1):
        sender.settle(number)


def test_last_of_two_outcomes_is_counted(connect: Connect, fresh: Fresh, counters: Counters) -> None:
    sender, receiver = pair(connect, fresh(), mode=SECOND)
    with counters.expect(ingress=1, egress=1, released=1):
        number = sender.send(message.message("x"))
        delivery = receiver.next()
        delivery.settle(settled=False)
        delivery.settle(frames.RELEASED)
        sender.outcome(number)


def test_settlement_by_producer_counts_without_state(connect: Connect, fresh: Fresh, counters: Counters) -> None:
    sender, receiver = pair(connect, fresh())
    with counters.expect(ingress=1, egress=1, settled_no_state=1):
        number = sender.send(message.message("x"))
        delivery = receiver.next()
        sender.settle(number)
        receiver.peer.until(lambda: delivery.id in receiver.session.remote_settled, "settlement")
        delivery.settle()
    counters.wait_gauges("settled")


@pytest.mark.parametrize("size", [10, 40_000, 400_000])
@pytest.mark.parametrize("prefix", ["balanced", "closest", "multicast"])
def test_presettled_deliveries_are_counted(
    connect: Connect, fresh: Fresh, counters: Counters, prefix: str, size: int
) -> None:
    sender, receiver = pair(connect, fresh(prefix), credit=20)
    with counters.expect(ingress=10, egress=10, presettled=10):
        for _ in range(10):
            sender.send(message.data(bytes(size)), settled=True)
        receiver.receive(10)
    counters.wait_gauges("all sent")


def test_mixed_settlement_counts_both_kinds(connect: Connect, fresh: Fresh, counters: Counters) -> None:
    sender, receiver = pair(connect, fresh(), credit=40)
    with counters.expect(ingress=40, egress=40, presettled=20, accepted=20):
        for number in range(40):
            sender.send(message.message(number), settled=number % 2 == 0)
        deliveries = receiver.receive(40)
        receiver.session.disposition(deliveries[0].id, deliveries[-1].id)


@pytest.mark.parametrize("size", [10, 40_000, 400_000])
def test_consumer_of_settled_deliveries_counts_accepted(
    connect: Connect, fresh: Fresh, counters: Counters, size: int
) -> None:
    """For snd-settle-mode settled, writing the delivery gives the producer accepted (routing-semantics.md 8.1)."""
    address = fresh()
    connect().receiver(address, 10, snd_settle_mode=1)
    sender = connect().sender(address)
    with counters.expect(ingress=5, egress=5, accepted=5):
        numbers = [sender.send(message.data(bytes(size))) for _ in range(5)]
        assert settled_outcomes(sender, numbers) == ["accepted"] * 5
    counters.wait_gauges("all sent")


def test_stream_settled_on_last_frame_becomes_presettled(connect: Connect, fresh: Fresh, counters: Counters) -> None:
    """The delivery becomes presettled (routing-semantics.md M-15): no outcome is sent or counted."""
    address = fresh()
    receiver = connect().receiver(address, 10, snd_settle_mode=1)
    sender = connect().sender(address)
    content = message.data(bytes(2 * STREAMING))
    with counters.expect(ingress=1, egress=1, presettled=1):
        number = sender.send(content[:STREAMING], more=True)
        receiver.next(complete=False)
        sender.send(content[STREAMING:], settled=True)
        receiver.peer.until(lambda: receiver.deliveries[0].complete, "the whole message")
        sender.peer.barrier()
    assert number not in sender.session.outcomes


# --- several consumers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("consumers", [1, 2, 3, 5])
def test_multicast_copies_count_one_outcome(connect: Connect, fresh: Fresh, counters: Counters, consumers: int) -> None:
    """Each delivery counts one outcome, and one egress for each copy."""
    address = fresh("multicast")
    receivers = [connect().receiver(address, 50) for _ in range(consumers)]
    sender = connect().sender(address)
    with counters.expect(ingress=20, egress=20 * consumers, presettled=10, accepted=10):
        for number in range(20):
            sender.send(message.message(number), settled=number % 2 == 0)
        for receiver in receivers:
            deliveries = receiver.receive(20)
            assert bodies(deliveries) == list(range(20))
            receiver.session.disposition(deliveries[0].id, deliveries[-1].id)
    counters.wait_gauges("all settled")


def test_multicast_outcomes_are_combined(connect: Connect, fresh: Fresh, counters: Counters) -> None:
    """The outcome of highest rank (rejected, accepted, modified, released) is counted once, as the producer sees it."""
    address = fresh("multicast")
    receivers = [connect().receiver(address, 10) for _ in range(4)]
    sender = connect().sender(address)
    with counters.expect(ingress=4, egress=16, rejected=1, accepted=1, modified=1, released=1):
        numbers = [sender.send(message.message(n)) for n in range(4)]
        for worst, receiver in zip(["rejected", "accepted", "modified", "released"], receivers, strict=True):
            for number, delivery in enumerate(receiver.receive(4)):
                ranked = ["rejected", "accepted", "modified", "released"]
                name = worst if ranked.index(worst) >= number else ranked[number]
                delivery.settle(OUTCOMES[name])
        assert settled_outcomes(sender, numbers) == ["rejected", "accepted", "modified", "released"]
    counters.wait_gauges("all settled")


@pytest.mark.parametrize("way", list(LOSSES))
def test_multicast_with_lost_consumer_counts_dropped_copy(
    connect: Connect, fresh: Fresh, counters: Counters, way: str
) -> None:
    """A consumer of three leaves with two copies sent, two queued and a presettled one queued; the others accept."""
    address = fresh("multicast")
    lost = connect().receiver(address, 2)
    staying = [connect().receiver(address, 10) for _ in range(2)]
    sender = connect().sender(address)
    with counters.expect(ingress=5, egress=15, accepted=4, presettled=1, dropped_presettled=1, dropped_consumerLost=1):
        numbers = [sender.send(message.message(n)) for n in range(4)]
        sender.send(message.message("settled"), settled=True)
        lost.receive(2)
        sender.peer.barrier()
        for receiver in staying:
            for delivery in receiver.receive(5)[:4]:
                delivery.settle()
        LOSSES[way](lost)
        assert settled_outcomes(sender, numbers) == ["accepted"] * 4
    counters.wait_gauges("all settled")


@pytest.mark.parametrize("prefix", ["balanced", "closest"])
def test_anycast_over_several_consumers_is_counted(
    connect: Connect, fresh: Fresh, counters: Counters, prefix: str
) -> None:
    address = fresh(prefix)
    receivers = [connect().receiver(address, 100) for _ in range(5)]
    sender = connect().sender(address)
    with counters.expect(ingress=100, egress=100, accepted=100):
        numbers = [sender.send(message.message(n)) for n in range(100)]
        sender.peer.barrier()
        left = set(range(100))
        while left:
            for receiver in receivers:
                receiver.peer.read_available()
                for delivery in receiver.deliveries[receiver.taken :]:
                    if delivery.complete:
                        left.remove(message.body(delivery.payload))
                        delivery.settle()
                        receiver.taken += 1
        settled_outcomes(sender, numbers)
    counters.wait_gauges("all settled")


# --- no destination, refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("settled", [True, False], ids=["presettled", "unsettled"])
@pytest.mark.parametrize("size", [10, 40_000, 400_000])
def test_targeted_delivery_without_destination_is_counted(
    connect: Connect, fresh: Fresh, counters: Counters, settled: bool, size: int
) -> None:
    """Deliveries after the consumer's detach are released or dropped (routing-semantics.md 16.3)."""
    sender, receiver = pair(connect, fresh())
    receiver.detach()
    wait_address_table(connect, fresh)
    ends = {"presettled": 4, "dropped_presettled": 4, "dropped_noDestination": 4} if settled else {"released": 4}
    with counters.expect(ingress=4, **ends):
        numbers = [sender.send(message.data(bytes(size)), settled=settled) for _ in range(4)]
        if not settled:
            assert settled_outcomes(sender, numbers) == ["released"] * 4


@pytest.mark.parametrize("settled", [True, False], ids=["presettled", "unsettled"])
@pytest.mark.parametrize("size", [10, 400_000])
def test_anonymous_delivery_without_destination_is_counted(
    connect: Connect, fresh: Fresh, counters: Counters, settled: bool, size: int
) -> None:
    sender = connect().sender()
    ends = {"presettled": 4, "dropped_presettled": 4, "dropped_noDestination": 4} if settled else {"released": 4}
    with counters.expect(ingress=4, **ends):
        payload = message.properties(to=fresh()) + message.data(bytes(size))
        numbers = [sender.send(payload, settled=settled) for _ in range(4)]
        if not settled:
            assert settled_outcomes(sender, numbers) == ["released"] * 4


@pytest.mark.parametrize("settled", [True, False], ids=["presettled", "unsettled"])
def test_anonymous_delivery_to_consumer_is_counted(
    connect: Connect, fresh: Fresh, counters: Counters, settled: bool
) -> None:
    address = fresh()
    receiver = connect().receiver(address, 10)
    sender = connect().sender()
    with counters.expect(ingress=4, egress=4, **{"presettled" if settled else "accepted": 4}):
        for number in range(4):
            sender.send(message.message(number, to=address), settled=settled)
        deliveries = receiver.receive(4)
        receiver.session.disposition(deliveries[0].id, deliveries[-1].id)


def test_anonymous_delivery_to_unavailable_address_is_rejected(
    connect: Connect, fresh: Fresh, counters: Counters
) -> None:
    sender = connect().sender()
    with counters.expect(ingress=2, rejected=1, presettled=1, dropped_presettled=1, dropped_rejected=1):
        payload = message.message("x", to=fresh("unavailable"))
        sender.send(payload, settled=True)
        assert sender.request(payload).name == "rejected"


@pytest.mark.parametrize("payload", [b"", message.value("no address")], ids=["empty", "no-address"])
def test_rejection_before_routing_is_not_counted(connect: Connect, counters: Counters, payload: bytes) -> None:
    sender = connect().sender()
    with counters.expect():
        sender.send(payload, settled=True)
        assert sender.request(payload).name == "rejected"


def test_stream_settled_after_release_counts_once(connect: Connect, fresh: Fresh, counters: Counters) -> None:
    """A delivery released while streaming and settled by the producer with the last frame is counted once."""
    sender = connect().sender()
    payload = message.properties(to=fresh()) + message.data(bytes(2 * STREAMING))
    with counters.expect(ingress=1, released=1):
        number = sender.send(payload[:STREAMING], more=True)
        assert sender.outcome(number, settled=False).name == "released"
        sender.send(payload[STREAMING:], settled=True)


def test_fallback_delivery_counts_as_redirected(connect: Connect, fresh: Fresh, counters: Counters) -> None:
    address = fresh("fallback")
    receiver = connect().receiver(credit=10, source=frames.source(address, capabilities="qd.fallback"))
    sender = connect().sender(address)
    with counters.expect(ingress=2, egress=2, redirected=2, accepted=1, presettled=1):
        sender.send(message.message("settled"), settled=True)
        sender.send(message.message("unsettled"))
        for delivery in receiver.receive(2):
            delivery.settle()


# --- overflow -------------------------------------------------------------------------------------------------------


def overflow(connect: Connect, address: str, count: int) -> tuple[PeerSender, PeerReceiver]:
    """Send `count` presettled messages to a consumer with a link capacity of ten and no credit."""
    receiver = connect("ten").receiver(address)
    sender = connect().sender(address)
    for number in range(count):
        sender.send(message.message(number), settled=True)
    sender.peer.barrier()
    return sender, receiver


def test_drop_oldest_counts_overflow(connect: Connect, fresh: Fresh, counters: Counters) -> None:
    """Nine of fifteen are dropped, as in the example of routing-semantics.md 8.6."""
    with counters.expect(ingress=15, egress=15, presettled=15, dropped_presettled=9, dropped_overflow=9):
        _sender, receiver = overflow(connect, fresh("drop"), 15)
        receiver.flow(100)
        receiver.receive(6)
    (link,) = [link for link in counters.links() if link["direction"] == 2]
    assert (link["deliveries"], link["presettled"], link["dropped_presettled"]) == (6, 15, 9)


def test_drop_oldest_of_multicast_spares_ready_consumer(connect: Connect, fresh: Fresh, counters: Counters) -> None:
    """Copies are dropped at the consumer with a full queue; the other consumer receives all messages."""
    address = fresh("many")
    ready = connect("ten").receiver(address, 100)
    with counters.expect(ingress=15, egress=30, presettled=15, dropped_presettled=9, dropped_overflow=9):
        overflow(connect, address, 15)
        assert bodies(ready.receive(15)) == list(range(15))


@pytest.mark.parametrize("prefix", ["block", "balanced"])
def test_held_deliveries_are_delivered_and_counted(
    connect: Connect, fresh: Fresh, counters: Counters, prefix: str
) -> None:
    with counters.expect(ingress=3 * TEN, egress=3 * TEN, presettled=3 * TEN):
        sender, receiver = overflow(connect, fresh(prefix), 3 * TEN)
        receiver.flow(100)
        assert bodies(receiver.receive(3 * TEN)) == list(range(3 * TEN))
        sender.wait_credit(CAPACITY - TEN)
    counters.wait_gauges("all sent")


def test_held_deliveries_count_as_ended_for_producer(connect: Connect, fresh: Fresh, counters: Counters) -> None:
    """The producer link counts held deliveries as ended, as 1.19 does, which never holds any."""
    with counters.expect(ingress=3 * TEN, egress=3 * TEN, presettled=3 * TEN):
        _sender, receiver = overflow(connect, fresh("block"), 3 * TEN)
    (link,) = [link for link in counters.links() if link["direction"] == 1 and link["deliveries"] == 3 * TEN]
    assert (link["presettled"], link["held"], link["unsettled"]) == (3 * TEN, 2 * TEN, 0)
    with counters.expect():
        receiver.flow(100)
        receiver.receive(3 * TEN)
    (link,) = [link for link in counters.links() if link["direction"] == 2]
    assert (link["deliveries"], link["presettled"]) == (3 * TEN, 3 * TEN)


def test_throttle_with_silent_consumer_drops_oldest(connect: Connect, fresh: Fresh, counters: Counters) -> None:
    with counters.expect(
        ingress=3 * TEN, egress=3 * TEN, presettled=3 * TEN, dropped_presettled=2 * TEN, dropped_overflow=2 * TEN
    ):
        sender, receiver = overflow(connect, fresh(), 3 * TEN)
        sender.wait_credit(CAPACITY - TEN)
        receiver.flow(100)
        assert bodies(receiver.receive(TEN)) == list(range(2 * TEN, 3 * TEN))


@pytest.mark.parametrize("way", list(LOSSES))
def test_consumer_loss_with_full_queue_drops_deliveries(
    connect: Connect, fresh: Fresh, counters: Counters, way: str
) -> None:
    with counters.expect(
        ingress=3 * TEN,
        egress=3 * TEN,
        presettled=3 * TEN,
        dropped_presettled=3 * TEN,
        dropped_consumerLost=3 * TEN,
    ):
        sender, receiver = overflow(connect, fresh("block"), 3 * TEN)
        LOSSES[way](receiver)
    sender.wait_credit(CAPACITY - TEN)
    counters.wait_gauges("nothing is left")


# --- exchanges ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settled", [True, False], ids=["presettled", "unsettled"])
def test_exchange_delivery_counts_copies(connect: Connect, counters: Counters, settled: bool) -> None:
    """Two next hops get presettled copies; the producer gets accepted."""
    receivers = [connect().receiver(address, 10) for address in ("ex.one", "ex.two")]
    sender = connect().sender("ex")
    with counters.expect(ingress=3, egress=6, **{"presettled" if settled else "accepted": 3}):
        for _ in range(3):
            sender.send(message.message("x", subject="a.b"), settled=settled)
        for receiver in receivers:
            receiver.receive(3)
    counters.wait_gauges("all sent")


@pytest.mark.parametrize("size", [10, 40_000])
def test_exchange_with_lost_consumers_drops_copies(connect: Connect, counters: Counters, size: int) -> None:
    """The producer gets accepted; the copies are counted as dropped."""
    receivers = [connect().receiver(address) for address in ("ex.one", "ex.two")]
    sender = connect().sender("ex")
    with counters.expect(ingress=3, egress=6, accepted=3, dropped_presettled=6, dropped_consumerLost=6):
        payload = message.properties(subject="a.b") + message.data(bytes(size))
        numbers = [sender.send(payload) for _ in range(3)]
        settled_outcomes(sender, numbers)
        for receiver in receivers:
            receiver.detach()
    counters.wait_gauges("nothing is left")


@pytest.mark.parametrize("settled", [True, False], ids=["presettled", "unsettled"])
def test_exchange_without_match_counts_no_destination(connect: Connect, counters: Counters, settled: bool) -> None:
    connect().receiver("ex.one", 10)
    sender = connect().sender("ex")
    ends = {"presettled": 2, "dropped_presettled": 2, "dropped_noDestination": 2} if settled else {"released": 2}
    with counters.expect(ingress=2, **ends):
        numbers = [sender.send(message.message("x", subject="b"), settled=settled) for _ in range(2)]
        if not settled:
            settled_outcomes(sender, numbers)


def test_exchange_alternate_receives_unmatched_messages(connect: Connect, counters: Counters) -> None:
    receiver = connect().receiver("other.alternate", 10)
    sender = connect().sender("other")
    with counters.expect(ingress=2, egress=2, accepted=1, presettled=1):
        sender.send(message.message("x", subject="b"), settled=True)
        sender.send(message.message("x", subject="b"))
        receiver.receive(2)


# --- gauges ---------------------------------------------------------------------------------------------------------


def test_gauges_follow_queue_and_settlement(connect: Connect, fresh: Fresh, counters: Counters) -> None:
    """Five deliveries are queued, three of them sent, two settled."""
    sender, receiver = pair(connect, fresh(), credit=0)
    numbers = [sender.send(message.message(n)) for n in range(5)]
    counters.wait_gauges("queued", undelivered=5, unsettled=5, connections=2, links=2, buffered=None)
    receiver.flow(3)
    deliveries = receiver.receive(3)
    counters.wait_gauges("sent", undelivered=2, unsettled=8, buffered=None)
    receiver.session.disposition(deliveries[0].id, deliveries[1].id)
    settled_outcomes(sender, numbers[:2])
    counters.wait_gauges("settled", undelivered=2, unsettled=4, buffered=None)
    receiver.detach()
    settled_outcomes(sender, numbers)
    counters.wait_gauges("gone", links=1)


def test_gauges_with_withheld_credit_are_zero(connect: Connect, fresh: Fresh, counters: Counters) -> None:
    """Released deliveries that withhold credit are not unsettled, before and after a consumer attaches again."""
    address = fresh()
    sender, receiver = pair(connect, address)
    receiver.detach()
    wait_address_table(connect, fresh)
    numbers = [sender.send(message.message(n)) for n in range(4)]
    settled_outcomes(sender, numbers)
    counters.wait_gauges("all released")
    connect().receiver(address)
    sender.wait_credit(CAPACITY)
    counters.wait_gauges("reachable again")
