"""Loss of a producer (routing-semantics.md 9.5)."""

from collections.abc import Callable

import pytest

from tests.peer import message
from tests.peer.frames import state_name
from tests.peer.links import PeerSender
from tests.system.fixtures import Connect, Fresh, bodies, pair

pytestmark = pytest.mark.adversarial

WORKER_COUNTS = (1, 3)
LOSSES: dict[str, Callable[[PeerSender], object]] = {
    "detach": lambda sender: sender.detach(),
    "end": lambda sender: sender.session.end(),
    "close": lambda sender: sender.peer.close(),
    "drop": lambda sender: sender.peer.drop(),
}


@pytest.mark.parametrize("way", list(LOSSES))
@pytest.mark.parametrize("settled", [True, False], ids=["presettled", "unsettled"])
def test_queued_messages_of_lost_producer_are_delivered(
    connect: Connect, fresh: Fresh, way: str, settled: bool
) -> None:
    sender, receiver = pair(connect, fresh(), credit=0)
    for number in range(5):
        sender.send(message.message(number), settled=settled)
    sender.peer.barrier()
    LOSSES[way](sender)
    receiver.flow(10)
    deliveries = receiver.receive(5)
    assert bodies(deliveries) == list(range(5))
    for delivery in deliveries:
        delivery.settle()
    receiver.peer.barrier()
    assert receiver.detached is None


@pytest.mark.parametrize("way", list(LOSSES))
def test_settlement_after_producer_loss_is_absorbed(connect: Connect, fresh: Fresh, way: str) -> None:
    address = fresh()
    sender, receiver = pair(connect, address)
    sender.send(message.message("orphan"))
    orphan = receiver.next()
    LOSSES[way](sender)
    orphan.settle()
    again = connect().sender(address)
    number = again.send(message.message("after"))
    receiver.next().settle()
    assert again.outcome(number).name == "accepted"


@pytest.mark.parametrize("way", list(LOSSES))
def test_multicast_copies_of_lost_producer_are_settled_as_modified(connect: Connect, fresh: Fresh, way: str) -> None:
    address = fresh("multicast")
    receivers = [connect().receiver(address, 10) for _ in range(2)]
    sender = connect().sender(address)
    sender.send(message.message("orphan"))
    orphans = [receiver.next() for receiver in receivers]
    LOSSES[way](sender)
    for receiver, orphan in zip(receivers, orphans, strict=True):
        states = receiver.session.remote_settled
        receiver.peer.until(lambda t=states, o=orphan: o.id in t and t[o.id].settled, "settlement")  # type: ignore[misc]
        assert state_name(states[orphan.id].state) == "modified"


@pytest.mark.parametrize("way", list(LOSSES))
def test_queued_multicast_copies_of_a_lost_producer_stay_unsettled(connect: Connect, fresh: Fresh, way: str) -> None:
    address = fresh("multicast")
    waiting = [connect().receiver(address, 0) for _ in range(6)]
    served = [connect().receiver(address, 10) for _ in range(6)]
    sender = connect().sender(address)
    sender.send(message.message("orphan"))
    orphans = [receiver.next() for receiver in served]
    LOSSES[way](sender)
    for receiver, orphan in zip(served, orphans, strict=True):
        states = receiver.session.remote_settled
        receiver.peer.until(lambda t=states, o=orphan: o.id in t and t[o.id].settled, "settlement")  # type: ignore[misc]
    for receiver in waiting:
        receiver.flow(1)
        delivery = receiver.next()
        assert not delivery.settled
        assert bodies([delivery]) == ["orphan"]
        delivery.settle()


@pytest.mark.parametrize("way", ["detach", "drop"])
def test_incomplete_message_of_lost_producer_is_aborted(connect: Connect, fresh: Fresh, way: str) -> None:
    sender, receiver = pair(connect, fresh())
    sender.send(message.data(bytes(500_000))[:200_000], more=True)
    receiver.next(complete=False)
    LOSSES[way](sender)
    delivery = receiver.deliveries[0]
    receiver.peer.until(lambda: delivery.complete, "end of the delivery")
    assert delivery.aborted


def test_loss_of_producer_leaves_other_producers_unaffected(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    first, receiver = pair(connect, address, credit=20)
    second = connect().sender(address)
    first.send(message.message("from the first"))
    number = second.send(message.message("from the second"))
    deliveries = receiver.receive(2)
    first.peer.drop()
    for delivery in deliveries:
        delivery.settle()
    assert second.outcome(number).name == "accepted"
