"""Outcomes of multicast deliveries (routing-semantics.md 9.4)."""

import itertools

import pytest

from tests.peer import message
from tests.peer.frames import ACCEPTED, RELEASED, modified, rejected
from tests.peer.links import PeerDelivery, PeerReceiver, PeerSender
from tests.peer.types import Described, ULong
from tests.system.fixtures import FIRST, SECOND, Connect, Fresh

pytestmark = pytest.mark.adversarial

WORKER_COUNTS = (1, 3)
STATES: dict[str, Described] = {
    "rejected": rejected("my:condition", "mine"),
    "accepted": ACCEPTED,
    "modified": modified(True),
    "released": RELEASED,
}
#: Outcomes, the strongest first: the combined outcome is the strongest outcome of the copies.
ORDER = list(STATES)


def send_copies(
    connect: Connect, fresh: Fresh, count: int = 2, mode: int = FIRST
) -> tuple[PeerSender, int, list[PeerReceiver], list[PeerDelivery]]:
    """Send an unsettled multicast message; return its sender, number, receivers and the copies that they received."""
    address = fresh("multicast")
    receivers = [connect().receiver(address, 10) for _ in range(count)]
    sender = connect().sender(address, rcv_settle_mode=mode)
    number = sender.send(message.message("copy"))
    return sender, number, receivers, [receiver.next() for receiver in receivers]


@pytest.mark.parametrize(("one", "two"), list(itertools.product(ORDER, ORDER)))
def test_outcome_of_two_copies_is_the_strongest(connect: Connect, fresh: Fresh, one: str, two: str) -> None:
    sender, number, _receivers, deliveries = send_copies(connect, fresh)
    deliveries[0].settle(STATES[one])
    deliveries[1].settle(STATES[two])
    outcome = sender.outcome(number)
    assert outcome.name == min(one, two, key=ORDER.index)
    if outcome.name == "rejected":
        assert outcome.error == ("my:condition", "mine")


def test_outcome_waits_for_all_copies(connect: Connect, fresh: Fresh) -> None:
    sender, number, receivers, deliveries = send_copies(connect, fresh, 3)
    for receiver, delivery in zip(receivers[:2], deliveries[:2], strict=True):
        delivery.settle()
        receiver.peer.barrier()
    sender.peer.barrier()
    assert number not in sender.session.outcomes
    deliveries[2].settle()
    outcome = sender.outcome(number)
    assert (outcome.name, outcome.settled) == ("accepted", True)


def test_outcome_accepted_unsettled_is_settled_later(connect: Connect, fresh: Fresh) -> None:
    sender, number, _receivers, deliveries = send_copies(connect, fresh, mode=SECOND)
    for delivery in deliveries:
        delivery.settle(ACCEPTED, settled=False)
    outcome = sender.outcome(number, settled=False)
    assert (outcome.name, outcome.settled) == ("accepted", False)
    for delivery in deliveries:
        delivery.settle(ACCEPTED)
    assert sender.outcome(number).name == "accepted"


@pytest.mark.parametrize("sent", [True, False], ids=["sent", "queued"])
@pytest.mark.parametrize("other", ORDER)
def test_lost_copy_counts_in_the_outcome(connect: Connect, fresh: Fresh, sent: bool, other: str) -> None:
    """A copy that is lost counts as modified if it was sent, as released if it was queued."""
    address = fresh("multicast")
    lost, staying = connect().receiver(address, 5 if sent else 0), connect().receiver(address, 5)
    sender = connect().sender(address)
    number = sender.send(message.message("copy"))
    if sent:
        lost.next()
    delivery = staying.next()
    lost.peer.drop()
    delivery.settle(STATES[other])
    counted = "modified" if sent else "released"
    assert sender.outcome(number).name == min(other, counted, key=ORDER.index)


def test_copy_settled_without_state_leaves_outcome_accepted(connect: Connect, fresh: Fresh) -> None:
    """The outcome is accepted because the other consumer accepted, in either order (routing-semantics.md D-9)."""
    for order in ((0, 1), (1, 0)):
        sender, number, receivers, deliveries = send_copies(connect, fresh)
        states = {0: None, 1: ACCEPTED}
        for index in order:
            deliveries[index].settle(states[index])
            receivers[index].peer.barrier()
        assert sender.outcome(number).name == "accepted"


def test_producer_settlement_first_settles_all_copies(connect: Connect, fresh: Fresh) -> None:
    sender, number, receivers, deliveries = send_copies(connect, fresh)
    sender.settle(number)
    for receiver, delivery in zip(receivers, deliveries, strict=True):
        states = receiver.session.remote_settled
        receiver.peer.until(lambda t=states, d=delivery: d.id in t and t[d.id].settled, "settlement")  # type: ignore[misc]


def test_producer_state_reaches_all_copies(connect: Connect, fresh: Fresh) -> None:
    sender, number, receivers, deliveries = send_copies(connect, fresh)
    sender.settle(number, ACCEPTED, settled=False)
    for receiver, delivery in zip(receivers, deliveries, strict=True):
        states = receiver.session.remote_settled
        receiver.peer.until(lambda t=states, d=delivery: d.id in t, "state")  # type: ignore[misc]
        assert states[delivery.id].name == "accepted"


def test_declared_state_counts_as_rejected(connect: Connect, fresh: Fresh) -> None:
    sender, number, _receivers, deliveries = send_copies(connect, fresh)
    deliveries[0].settle(Described(ULong(0x33), [b"txn"]))
    deliveries[1].settle()
    assert sender.outcome(number).name == "rejected"


def test_outcome_with_presettled_consumer_is_accepted(connect: Connect, fresh: Fresh) -> None:
    address = fresh("multicast")
    presettled = connect().receiver(address, 5, snd_settle_mode=1)
    ordinary = connect().receiver(address, 5)
    sender = connect().sender(address)
    number = sender.send(message.message("copy"))
    assert presettled.next().settled
    ordinary.next().settle(RELEASED)
    assert sender.outcome(number).name == "accepted"


def test_deliveries_settled_in_one_range_are_all_accepted(connect: Connect, fresh: Fresh) -> None:
    address = fresh("multicast")
    receivers = [connect().receiver(address, 200) for _ in range(3)]
    sender = connect().sender(address)
    numbers = [sender.send(message.message(n)) for n in range(150)]
    for receiver in receivers:
        deliveries = receiver.receive(150)
        receiver.session.disposition(deliveries[0].id, deliveries[-1].id)
    assert {sender.outcome(number).name for number in numbers} == {"accepted"}
