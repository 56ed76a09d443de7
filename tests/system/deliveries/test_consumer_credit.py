"""Consumers' credit and drain (routing-semantics.md 6)."""

import pytest

from tests.peer import message
from tests.peer.links import PeerReceiver, PeerSender
from tests.system.fixtures import Connect, Fresh, bodies, pair

pytestmark = pytest.mark.adversarial

WORKER_COUNTS = (1, 3)


def queue(sender: PeerSender, count: int, start: int = 0) -> None:
    """Send presettled messages, and wait until the router has read them."""
    for number in range(start, start + count):
        sender.send(message.message(number), settled=True)
    sender.peer.barrier()


def wait_drained(receiver: PeerReceiver) -> int:
    """Wait for the flow that ends a drain, and return its delivery-count."""
    receiver.peer.until(
        lambda: any(flow.drain and flow.link_credit == 0 for flow in receiver.flows), "flow(link-credit=0, drain=true)"
    )
    return int(receiver.flows[-1].delivery_count)


def test_transfers_stay_within_credit_and_in_order(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh(), credit=0)
    queue(sender, 9)
    for credit in (1, 3, 5):
        receiver.flow(credit)
        receiver.receive(credit)
        receiver.peer.barrier()
        assert len(receiver.deliveries) == receiver.taken, "more than the credit came"
    assert bodies(receiver.deliveries) == list(range(9))


def test_credit_is_absolute(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh(), credit=0)
    for _ in range(3):
        receiver.flow(2, delivery_count=0)
    queue(sender, 5)
    receiver.receive(2)
    receiver.flow(2, delivery_count=0)
    receiver.peer.barrier()
    assert len(receiver.deliveries) == 2


def test_lowered_credit_is_obeyed_until_raised(connect: Connect, fresh: Fresh) -> None:
    """After flow(5) and flow(0) a queued message moves with flow(1) (routing-semantics.md K-18)."""
    sender, receiver = pair(connect, fresh(), credit=5)
    receiver.flow(0)
    receiver.peer.barrier()
    queue(sender, 3)
    receiver.peer.barrier()
    assert not receiver.deliveries
    receiver.flow(1)
    receiver.next()
    receiver.peer.barrier()
    assert len(receiver.deliveries) == 1
    receiver.flow(2)
    receiver.receive(2)


def test_drain_without_queue_advances_delivery_count(connect: Connect, fresh: Fresh) -> None:
    _sender, receiver = pair(connect, fresh(), credit=0)
    receiver.flow(20, drain=True)
    assert wait_drained(receiver) == 20


def test_drain_with_queue_delivers_then_advances(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh(), credit=0)
    queue(sender, 4)
    receiver.flow(1)
    receiver.next()
    receiver.flow(20, drain=True)
    assert bodies(receiver.receive(3)) == [1, 2, 3]
    assert wait_drained(receiver) == 21


def test_drain_with_credit_zero_is_answered(connect: Connect, fresh: Fresh) -> None:
    _sender, receiver = pair(connect, fresh(), credit=0)
    receiver.flow(0, drain=True)
    assert wait_drained(receiver) == 0


def test_drain_with_credit_used_up_sends_exactly_credit(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh(), credit=0)
    queue(sender, 5)
    receiver.flow(3, drain=True)
    assert bodies(receiver.receive(3)) == [0, 1, 2]
    receiver.peer.barrier()
    assert len(receiver.deliveries) == 3


def test_repeated_drain_cycles_work(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh(), credit=0)
    for cycle in range(4):
        receiver.flows.clear()
        receiver.flow(10, drain=True)
        receiver.delivery_count = wait_drained(receiver)
        receiver.flow(2)
        queue(sender, 1, cycle)
        assert message.body(receiver.next().payload) == cycle


# routing-semantics.md 1.6.
def test_flow_has_no_available_count(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh(), credit=0)
    queue(sender, 3)
    receiver.flow(0, echo=True)
    receiver.peer.until(lambda: receiver.flows, "answer to echo")
    assert not receiver.flows[-1].available


def test_credit_of_one_moves_one_message(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh(), credit=0)
    queue(sender, 50)
    for number in range(50):
        receiver.flow(1)
        assert message.body(receiver.next().payload) == number
