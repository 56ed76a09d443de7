"""Credit given to producers (routing-semantics.md 5)."""

import pytest

from tests.peer import message
from tests.peer.frames import ACCEPTED, received
from tests.peer.links import PeerSender
from tests.system.fixtures import CAPACITY, SECOND, Connect, Fresh, bodies, pair, pass_one, wait_address_table
from tests.system.router import Section, listener

pytestmark = pytest.mark.adversarial

WORKER_COUNTS = (1, 3)
SECTIONS: list[Section] = [
    listener("ten", linkCapacity=10),
    listener("zero", linkCapacity=0),
    ("exchange", {"name": "xcredit", "address": "x.credit"}),
]


# brokers-and-edge.md W-14.
def test_anonymous_link_has_credit_at_once(connect: Connect) -> None:
    assert connect().sender().credit == CAPACITY
    assert connect("ten").sender().credit == 10
    assert connect("zero").sender().credit == CAPACITY


@pytest.mark.parametrize("prefix", ["balanced", "closest", "multicast"])
def test_targeted_link_waits_for_a_consumer(connect: Connect, fresh: Fresh, prefix: str) -> None:
    address = fresh(prefix)
    sender = connect("ten").sender(address, credit=False)
    sender.peer.barrier()
    assert not sender.flows
    connect().receiver(address)
    sender.wait_credit(10)
    flow = sender.flows[-1]
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (0, 10, False)
    assert (flow.available, flow.echo) in ((None, None), (None, False))


def test_consumer_without_credit_gives_the_producer_credit(connect: Connect, fresh: Fresh) -> None:
    sender, _receiver = pair(connect, fresh(), credit=0)
    assert sender.credit == CAPACITY


def test_exchange_and_management_have_credit_at_once(connect: Connect) -> None:
    assert connect().sender("x.credit").credit == CAPACITY
    assert connect().sender("$management").credit == CAPACITY


def wait_replenished(sender: PeerSender, capacity: int = 10) -> None:
    """Wait until most of the capacity is granted again; the router may grant in batches."""
    sender.peer.until(lambda: sender.credit > capacity // 2, "credit is replenished")


def test_presettled_deliveries_return_credit(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh(), credit=1000, into="ten")
    for number in range(60):
        sender.wait_credit()
        sender.send(message.message(number), settled=True)
    receiver.receive(60)
    wait_replenished(sender)
    assert sender.credit <= 10


def test_unsettled_returns_credit_with_settlement(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh(), credit=1000, into="ten", mode=SECOND)
    numbers = [sender.send(message.message(n)) for n in range(10)]
    deliveries = receiver.receive(10)
    sender.peer.barrier()
    assert sender.credit == 0
    for delivery in deliveries:
        delivery.settle(ACCEPTED, settled=False)
    sender.outcome(numbers[-1], settled=False)
    sender.peer.barrier()
    assert sender.credit == 0, "an outcome without settlement returned credit"
    for delivery in deliveries:
        delivery.settle()
    sender.outcome(numbers[-1])
    sender.wait_credit(10)


def test_received_state_returns_no_credit(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh(), credit=100, into="ten")
    numbers = [sender.send(message.message(n)) for n in range(10)]
    for delivery in receiver.receive(10):
        delivery.settle(received(0, 0), settled=False)
    sender.outcome(numbers[-1], settled=False)
    sender.peer.barrier()
    assert sender.credit == 0


def test_settlement_by_the_producer_returns_credit(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh(), credit=100, into="ten")
    numbers = [sender.send(message.message(n)) for n in range(10)]
    receiver.receive(10)
    for number in numbers:
        sender.settle(number)
    sender.wait_credit(10)


def test_anonymous_sender_gets_credit_for_released_and_rejected(connect: Connect) -> None:
    sender = connect("ten").sender()
    for _ in range(15):
        sender.wait_credit()
        assert sender.request(message.message(to="nobody.here")).name == "released"
        sender.wait_credit()
        assert sender.request(message.message()).name == "rejected"
        sender.wait_credit()
        sender.send(message.message(to="nobody.here"), settled=True)
    assert not any(flow.drain for flow in sender.flows)


@pytest.mark.parametrize("answer", [True, False], ids=["drain-answered", "drain-not-answered"])
def test_drain_after_last_consumer_is_requested_once(connect: Connect, fresh: Fresh, answer: bool) -> None:
    address = fresh()
    sender, receiver = pair(connect, address, into="ten")
    before = len(sender.flows)
    receiver.detach()
    sender.peer.barrier()
    wait_address_table(connect, fresh)
    assert len(sender.flows) == before, "the loss of the consumer alone sends nothing"
    assert sender.request(message.message("nobody")).name == "released"
    sender.peer.until(lambda: sender.draining, "drain")
    flow = sender.flows[-1]
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (1, 9, True)
    flows = len(sender.flows)
    assert sender.request(message.message("nobody")).name == "released"
    sender.peer.barrier()
    assert len(sender.flows) == flows, "drain is asked for once"
    if answer:
        sender.delivery_count = sender.limit
        sender.session.flow(handle=sender.handle, delivery_count=sender.limit, link_credit=0, drain=True)
    again = connect().receiver(address, 10)
    sender.peer.until(lambda: not sender.draining, "end of drain")
    sender.wait_credit(10)
    assert sender.credit == 10
    assert sender.flows[-1].drain is False
    pass_one(sender, again)


def test_presettled_without_consumer_leads_to_drain(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    sender, receiver = pair(connect, address, into="ten")
    receiver.detach()
    wait_address_table(connect, fresh)
    sender.send(message.message("dropped"), settled=True)
    sender.peer.until(lambda: sender.draining, "drain")
    connect().receiver(address, 10)
    sender.peer.until(lambda: not sender.draining, "end of drain")
    assert sender.credit == 10


def test_credit_overrun_is_clamped(connect: Connect, fresh: Fresh) -> None:
    """A few deliveries beyond the credit are delivered, and the credit never wraps around (routing-semantics.md
    K-10)."""
    sender, receiver = pair(connect, fresh(), credit=100, into="ten")
    numbers = [sender.send(message.message(n)) for n in range(13)]
    deliveries = receiver.receive(13)
    assert bodies(deliveries) == list(range(13))
    for delivery in deliveries:
        delivery.settle()
    assert [sender.outcome(number).name for number in numbers] == ["accepted"] * 13
    sender.wait_credit(10)
    assert sender.detached is None
    assert all(flow.link_credit <= 10 for flow in sender.flows)


def test_second_consumer_changes_no_credit(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    sender, _receiver = pair(connect, address)
    flows = len(sender.flows)
    connect().receiver(address, 10)
    sender.peer.barrier()
    assert len(sender.flows) == flows


def test_credit_overrun_beyond_bound_detaches_the_link_only(connect: Connect, fresh: Fresh) -> None:
    """At twice the capacity the link is detached and its session stays usable (bound of routing-semantics.md K-10)."""
    address = fresh()
    receiver = connect().receiver(address, 0)
    peer = connect()
    sender = peer.sender(address)
    capacity = sender.credit
    for _ in range(2 * capacity + 20):
        peer.raw(
            sender.session.transfer_octets(
                message.message("too much"), handle=0, delivery_id=sender.session.take_delivery_id(), delivery_tag=b"t"
            )
        )
    error = sender.wait_detached()
    assert error is not None
    assert error[0] == "amqp:link:transfer-limit-exceeded"
    other = peer.sender(fresh(), credit=False)
    assert other.remote is not None
    del receiver
