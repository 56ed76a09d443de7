"""Deliveries that are aborted, or lose their consumer or producer, end in exactly one counted way.

Specification: routing-semantics.md 16.3.
"""

from __future__ import annotations

import pytest

from tests.peer import message
from tests.system.counters import Counters
from tests.system.deliveries import accounting
from tests.system.deliveries.accounting import LOSSES, OUTCOMES, STREAMING, TEN, settled_outcomes
from tests.system.fixtures import Connect, Fresh, bodies, pair, wait_address_table

WORKER_COUNTS = (1, 3)
SECTIONS = accounting.SECTIONS
counters = accounting.counters


# --- loss of a consumer ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", list(LOSSES))
@pytest.mark.parametrize("prefix", ["balanced", "closest", "multicast"])
def test_consumer_loss_counts_sent_and_queued(
    connect: Connect, fresh: Fresh, counters: Counters, way: str, prefix: str
) -> None:
    sender, receiver = pair(connect, fresh(prefix), credit=3)
    with counters.expect(
        ingress=8, egress=8, modified=3, released=2, presettled=3, dropped_presettled=3, dropped_consumerLost=3
    ):
        numbers = [sender.send(message.message(n)) for n in range(5)]
        for _ in range(3):
            sender.send(message.message("settled"), settled=True)
        receiver.receive(3)
        sender.peer.barrier()
        LOSSES[way](receiver)
        assert settled_outcomes(sender, numbers) == ["modified"] * 3 + ["released"] * 2
    counters.wait_gauges("all settled")


@pytest.mark.parametrize("way", list(LOSSES))
@pytest.mark.parametrize("settled", [True, False], ids=["presettled", "unsettled"])
def test_consumer_loss_during_stream_is_counted(
    connect: Connect, fresh: Fresh, counters: Counters, way: str, settled: bool
) -> None:
    sender, receiver = pair(connect, fresh())
    content = message.data(bytes(2 * STREAMING))
    ends = {"presettled": 1, "dropped_presettled": 1, "dropped_consumerLost": 1} if settled else {"released": 1}
    with counters.expect(ingress=1, egress=1, **ends):
        sender.send(content[:STREAMING], more=True, settled=settled)
        receiver.next(complete=False)
        LOSSES[way](receiver)
        wait_address_table(connect, fresh)
        sender.send(content[STREAMING:], settled=settled)
    counters.wait_gauges("all settled")


@pytest.mark.parametrize("way", list(LOSSES))
def test_presettled_stream_losing_both_ends_counts_once(
    connect: Connect, fresh: Fresh, counters: Counters, way: str
) -> None:
    """The delivery ends once. With the consumer on the producer's worker it ends when the consumer leaves."""
    before = counters.totals()
    sender, receiver = pair(connect, fresh())
    sender.send(message.data(bytes(2 * STREAMING))[:STREAMING], more=True, settled=True)
    receiver.next(complete=False)
    LOSSES[way](receiver)
    wait_address_table(connect, fresh)
    LOSSES[way](sender)
    grown = counters.wait_balance(before)
    assert grown["presettled"] + grown["dropped.producerLost"] == grown["ingress"] == 1
    assert (grown["dropped.consumerLost"], grown["dropped_presettled"]) == (1, 1)


@pytest.mark.parametrize("size", [10, 5000])
def test_consumer_detach_without_credit_releases_queue(
    connect: Connect, fresh: Fresh, counters: Counters, size: int
) -> None:
    """The consumer, on a link with a small queue, detaches without ever having granted credit."""
    address = fresh()
    receiver = connect("ten").receiver(address)
    sender = connect().sender(address)
    with counters.expect(ingress=30, egress=30, released=30):
        numbers = [sender.send(message.data(bytes(size))) for _ in range(3 * TEN)]
        sender.peer.barrier()
        receiver.detach()
        assert settled_outcomes(sender, numbers) == ["released"] * 3 * TEN
    sender.peer.barrier()
    counters.wait_gauges("all released")


def test_outcome_before_last_octet_counts_once(connect: Connect, fresh: Fresh, counters: Counters) -> None:
    sender, receiver = pair(connect, fresh())
    content = message.data(bytes(2 * STREAMING))
    with counters.expect(ingress=1, egress=1, rejected=1):
        number = sender.send(content[:STREAMING], more=True)
        receiver.next(complete=False).settle(OUTCOMES["rejected"])
        sender.outcome(number, settled=False)
        sender.send(content[STREAMING:])
        assert sender.outcome(number).name == "rejected"
    counters.wait_gauges("all settled")


# --- loss of a producer, aborts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", list(LOSSES))
@pytest.mark.parametrize("prefix", ["balanced", "multicast"])
def test_producer_loss_counts_all_deliveries(
    connect: Connect, fresh: Fresh, counters: Counters, way: str, prefix: str
) -> None:
    """Sent and queued deliveries, also presettled ones, are counted although their outcomes have no receiver."""
    sender, receiver = pair(connect, fresh(prefix), credit=2)
    before = counters.totals()
    for number in range(6):
        sender.send(message.message(number), settled=number % 2 == 1)
    receiver.receive(2)
    sender.peer.barrier()
    LOSSES[way](sender)
    receiver.flow(10)
    for delivery in receiver.receive(4):
        delivery.settle()
    for delivery in receiver.deliveries[:2]:
        delivery.settle()
    receiver.peer.barrier()
    grown = counters.wait_balance(before)
    assert (grown["ingress"], grown["egress"], grown["presettled"]) == (6, 6, 3)
    counters.wait_gauges("all settled")


@pytest.mark.parametrize("way", list(LOSSES))
def test_producer_loss_with_full_queue_keeps_deliveries(
    connect: Connect, fresh: Fresh, counters: Counters, way: str
) -> None:
    """Presettled deliveries that hold back credit are counted and delivered."""
    address = fresh("block")
    receiver = connect("ten").receiver(address)
    sender = connect().sender(address)
    with counters.expect(ingress=3 * TEN, egress=3 * TEN, presettled=3 * TEN):
        for number in range(3 * TEN):
            sender.send(message.message(number), settled=True)
        sender.peer.barrier()
        LOSSES[way](sender)
        receiver.flow(100)
        assert bodies(receiver.receive(3 * TEN)) == list(range(3 * TEN))
    counters.wait_gauges("all sent")


@pytest.mark.parametrize("way", ["abort", *LOSSES])
@pytest.mark.parametrize("prefix", ["balanced", "multicast"])
@pytest.mark.parametrize("settled", [True, None], ids=["presettled", "unsettled"])
def test_aborted_stream_is_counted_as_dropped(
    connect: Connect, fresh: Fresh, counters: Counters, way: str, prefix: str, settled: bool | None
) -> None:
    """A forwarded delivery without end is dropped; an aborted delivery that was not forwarded is not counted."""
    address = fresh(prefix)
    receivers = [connect().receiver(address, 10) for _ in range(2 if prefix == "multicast" else 1)]
    sender = connect().sender(address)
    with counters.expect(ingress=1, egress=len(receivers), dropped_producerLost=1):
        sender.send(message.data(bytes(2 * STREAMING))[:STREAMING], more=True, settled=settled)
        for receiver in receivers:
            receiver.next(complete=False)
        if way == "abort":
            sender.abort()
        else:
            LOSSES[way](sender)
        for receiver in receivers:
            receiver.peer.until(lambda r=receiver: r.deliveries[0].complete, "end of the delivery")  # type: ignore[misc]
            assert receiver.deliveries[0].aborted
    counters.wait_gauges("all settled")


@pytest.mark.parametrize("way", ["abort", *LOSSES])
def test_abort_before_forwarding_is_not_counted(connect: Connect, fresh: Fresh, counters: Counters, way: str) -> None:
    sender, _receiver = pair(connect, fresh())
    with counters.expect():
        sender.send(message.data(bytes(1000))[:500], more=True)
        sender.peer.barrier()
        if way == "abort":
            sender.abort()
        else:
            LOSSES[way](sender)
        wait_address_table(connect, fresh)
    counters.wait_gauges("nothing is left")


@pytest.mark.parametrize("way", ["abort", "drop"])
@pytest.mark.parametrize("settled", [True, None], ids=["presettled", "unsettled"])
def test_abort_without_destination_counts_once(
    connect: Connect, fresh: Fresh, counters: Counters, way: str, settled: bool | None
) -> None:
    """The outcome is decided at routing; the later abort is not counted."""
    sender = connect().sender()
    before = counters.totals()
    payload = message.properties(to=fresh()) + message.data(bytes(2 * STREAMING))
    sender.send(payload[:STREAMING], more=True, settled=settled)
    sender.peer.barrier()
    if way == "abort":
        sender.abort()
        sender.peer.barrier()
    else:
        sender.peer.drop()
    wait_address_table(connect, fresh)
    grown = counters.wait_balance(before)
    assert grown["ingress"] == 1


@pytest.mark.parametrize("settled", [True, None], ids=["presettled", "unsettled"])
def test_abort_in_queue_without_credit_leaves_link_idle(
    connect: Connect, fresh: Fresh, counters: Counters, settled: bool | None
) -> None:
    """A delivery is aborted in the queue of a consumer without credit, more follow, and the link becomes idle."""
    address = fresh("drop")
    receiver = connect("ten").receiver(address)
    other, sender = connect().sender(address), connect().sender(address)
    other.send(message.message("first"), settled=True)
    other.peer.barrier()
    sender.send(message.data(bytes(2 * STREAMING))[:STREAMING], more=True, settled=settled)
    sender.peer.barrier()
    sender.abort()
    sender.peer.barrier()
    for number in range(2 * TEN):
        other.send(message.message(number), settled=True)
    other.peer.barrier()
    receiver.flow(100, drain=True)
    receiver.peer.until(lambda: any(f.drain and not f.link_credit for f in receiver.flows), "drained")
    counters.wait_gauges("the queue is empty")
