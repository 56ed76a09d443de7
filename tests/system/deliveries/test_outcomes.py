"""Outcomes between one producer and one consumer (routing-semantics.md 9.1, 9.2, 9.6)."""

from typing import Any

import pytest

from tests.peer import message
from tests.peer.frames import ACCEPTED, RELEASED, Performative, error_of, frame_octets, modified, received, rejected
from tests.peer.links import PeerDelivery, PeerReceiver, PeerSender
from tests.peer.types import Described, Map, Symbol, ULong
from tests.system.fixtures import FIRST, SECOND, Connect, Fresh, pair

pytestmark = pytest.mark.adversarial

WORKER_COUNTS = (1, 3)
TRANSACTIONAL = Described(ULong(0x34), [b"txn-1", Described(ULong(0x24), [])])


def send_unsettled(connect: Connect, fresh: Fresh, **fields: Any) -> tuple[PeerSender, int, PeerReceiver, PeerDelivery]:
    """Send a message; return sender, delivery number, receiver and the delivery, which is unsettled at both ends."""
    sender, receiver = pair(connect, fresh(), mode=fields.pop("mode", FIRST))
    number = sender.send(message.message("under way"), **fields)
    return sender, number, receiver, receiver.next()


@pytest.mark.parametrize(
    "state",
    [
        ACCEPTED,
        RELEASED,
        rejected("my:condition", "a description", {Symbol("k"): "v", Symbol("n"): 5}),
        rejected("my:condition", "x" * 3000),
        rejected("amqp:internal-error"),
        Described(ULong(0x25), []),
        TRANSACTIONAL,
    ],
    ids=["accepted", "released", "rejected", "long-error", "condition-only", "no-error", "transactional"],
)
def test_state_with_settlement_reaches_the_producer(connect: Connect, fresh: Fresh, state: Described) -> None:
    sender, number, _receiver, delivery = send_unsettled(connect, fresh)
    delivery.settle(state)
    outcome = sender.outcome(number)
    found = outcome.state
    assert found is not None
    assert found.descriptor == state.descriptor
    if state.descriptor == 0x25 and state.value:
        assert error_of(found.value[0]) == error_of(state.value[0])
        info = state.value[0].value[2]
        if info:
            assert found.value[0].value[2] == info
    elif state is TRANSACTIONAL:
        assert found == state


@pytest.mark.parametrize("failed", [True, False])
@pytest.mark.parametrize("undeliverable", [True, False])
def test_modified_keeps_its_fields(connect: Connect, fresh: Fresh, failed: bool, undeliverable: bool) -> None:
    sender, number, _receiver, delivery = send_unsettled(connect, fresh)
    delivery.settle(modified(failed, undeliverable, Map([(Symbol("x-why"), "because"), (Symbol("n"), 3)])))
    outcome = sender.outcome(number)
    assert outcome.name == "modified"
    assert outcome.state is not None
    fields = [*outcome.state.value, None, None, None]
    assert bool(fields[0]) is failed
    assert bool(fields[1]) is undeliverable
    assert fields[2] == {"x-why": "because", "n": 3}


def test_outcome_accepted_unsettled_is_settled_later(connect: Connect, fresh: Fresh) -> None:
    sender, number, _receiver, delivery = send_unsettled(connect, fresh, mode=SECOND)
    delivery.settle(ACCEPTED, settled=False)
    outcome = sender.outcome(number, settled=False)
    assert (outcome.name, outcome.settled) == ("accepted", False)
    delivery.settle(None)
    outcome = sender.outcome(number)
    assert (outcome.name, outcome.settled) == ("accepted", True)


def test_settlement_without_state_reaches_the_producer(connect: Connect, fresh: Fresh) -> None:
    sender, number, _receiver, delivery = send_unsettled(connect, fresh)
    delivery.settle(None)
    outcome = sender.outcome(number)
    assert (outcome.state, outcome.settled) == (None, True)


def test_received_state_reaches_the_producer(connect: Connect, fresh: Fresh) -> None:
    sender, number, _receiver, delivery = send_unsettled(connect, fresh)
    delivery.settle(received(3, 1000), settled=False)
    outcome = sender.outcome(number, settled=False)
    assert outcome.name == "received"
    assert outcome.state is not None
    assert outcome.state.value == [3, 1000]
    assert not outcome.settled
    delivery.settle()
    assert sender.outcome(number).name == "accepted"


def test_terminal_state_after_accepted_reaches_the_producer(connect: Connect, fresh: Fresh) -> None:
    sender, number, _receiver, delivery = send_unsettled(connect, fresh, mode=SECOND)
    delivery.settle(ACCEPTED, settled=False)
    sender.outcome(number, settled=False)
    delivery.settle(RELEASED)
    outcome = sender.outcome(number)
    assert (outcome.name, outcome.settled) == ("released", True)


@pytest.mark.parametrize("state", [ACCEPTED, RELEASED, rejected("my:range"), modified(True)])
def test_settled_ranges_settle_each_delivery_once(connect: Connect, fresh: Fresh, state: Described) -> None:
    sender, receiver = pair(connect, fresh(), credit=100)
    numbers = [sender.send(message.message(n)) for n in range(100)]
    deliveries = receiver.receive(100)
    receiver.session.disposition(deliveries[0].id, deliveries[49].id, state)
    receiver.session.disposition(deliveries[50].id, deliveries[99].id, state)
    for number in numbers:
        outcome = sender.outcome(number)
        assert outcome.state is not None
        assert outcome.state.descriptor == state.descriptor
        assert len([step for step in outcome.steps if step[1]]) == 1, "settled twice"


def test_settlement_in_reverse_order_keeps_states(connect: Connect, fresh: Fresh) -> None:
    sender, receiver = pair(connect, fresh(), credit=100)
    numbers = [sender.send(message.message(n)) for n in range(100)]
    deliveries = receiver.receive(100)
    states = [ACCEPTED, RELEASED, rejected("my:odd"), modified(True)]
    for n in reversed(range(100)):
        deliveries[n].settle(states[n % 4])
    names = ["accepted", "released", "rejected", "modified"]
    assert [sender.outcome(number).name for number in numbers] == [names[n % 4] for n in range(100)]


def test_range_over_two_links_settles_both(connect: Connect, fresh: Fresh) -> None:
    """Delivery-ids belong to the session, so one disposition may settle deliveries of several links."""
    peer, one, two = connect(), fresh(), fresh()
    first, second = peer.receiver(one, 10), peer.receiver(two, 10)
    senders = [connect().sender(one), connect().sender(two)]
    numbers = []
    for _ in range(5):
        for sender, receiver in zip(senders, (first, second), strict=True):
            numbers.append((sender, sender.send(message.message("x"))))
            receiver.next()
    peer.session.disposition(0, 9)
    for sender, number in numbers:
        assert sender.outcome(number).name == "accepted"


# --- 9.2 ------------------------------------------------------------------------------------------------------------


def test_producer_settlement_reaches_the_consumer(connect: Connect, fresh: Fresh) -> None:
    sender, number, receiver, delivery = send_unsettled(connect, fresh)
    sender.settle(number)
    receiver.peer.until(lambda: delivery.id in receiver.session.remote_settled, "settlement at the consumer")
    assert receiver.session.remote_settled[delivery.id].settled
    delivery.settle(RELEASED)
    receiver.peer.barrier()
    sender.peer.barrier()
    assert number not in sender.session.outcomes
    sender.send(message.message("next"), settled=True)
    receiver.next()


def test_producer_state_reaches_the_consumer(connect: Connect, fresh: Fresh) -> None:
    sender, number, receiver, delivery = send_unsettled(connect, fresh)
    sender.settle(number, ACCEPTED, settled=False)
    receiver.peer.until(lambda: delivery.id in receiver.session.remote_settled, "state at the consumer")
    found = receiver.session.remote_settled[delivery.id]
    assert (found.name, found.settled) == ("accepted", False)


def test_settlement_in_three_steps_is_relayed(connect: Connect, fresh: Fresh) -> None:
    address = fresh()
    receiver = connect().receiver(address, 10, rcv_settle_mode=1)
    sender = connect().sender(address, rcv_settle_mode=1)
    number = sender.send(message.message("three-way"))
    delivery = receiver.next()
    delivery.settle(ACCEPTED, settled=False)
    outcome = sender.outcome(number, settled=False)
    assert (outcome.name, outcome.settled) == ("accepted", False)
    sender.settle(number, ACCEPTED)
    receiver.peer.until(lambda: delivery.id in receiver.session.remote_settled, "settlement at the consumer")
    found = receiver.session.remote_settled[delivery.id]
    assert found.settled
    assert found.name in (None, "accepted")
    sender.wait_credit(1)


@pytest.mark.parametrize("state", [ACCEPTED, TRANSACTIONAL, received(3, 1000), rejected("my:error", "why")])
@pytest.mark.parametrize("prefix", ["balanced", "multicast"])
def test_state_inside_a_transfer_reaches_consumers(
    connect: Connect, fresh: Fresh, prefix: str, state: Described
) -> None:
    address = fresh(prefix)
    receivers = [connect().receiver(address, 1) for _ in range(4 if prefix == "multicast" else 1)]
    number = (sender := connect().sender(address)).send(message.message("x"), state=state)
    for receiver in receivers:
        delivery = receiver.next()
        assert delivery.state == state
        delivery.settle()
    assert sender.outcome(number).name == "accepted"


def test_dispositions_for_unknown_deliveries_are_ignored(connect: Connect, fresh: Fresh) -> None:
    sender, number, receiver, delivery = send_unsettled(connect, fresh)
    receiver.session.disposition(delivery.id + 1, delivery.id + 5000)
    sender.settle(number + 7)
    delivery.settle()
    delivery.settle(RELEASED)
    outcome = sender.outcome(number)
    sender.peer.barrier()
    assert outcome.name == "accepted"


def test_outcome_precedes_the_detach_of_its_link(connect: Connect, fresh: Fresh) -> None:
    """A disposition after the detach would name no delivery: the producer would ignore it and send the message
    again."""
    sender = connect().sender()
    session, number = sender.session, sender.session.take_delivery_id()
    fields = {"handle": sender.handle, "delivery_id": number, "delivery_tag": b"1", "message_format": 0}
    transfer = session.transfer_octets(message.message("for nobody", to=fresh()), **fields)
    detach = frame_octets(Performative("detach", handle=sender.handle, closed=True).encode(), session.channel)
    sender.peer.raw(transfer + detach)
    sender.wait_detached()
    assert sender.outcome(number).name == "released"
    names = [frame.name for frame in sender.peer.frames]
    assert names.index("disposition") < names.index("detach")


# --- 9.6 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [ACCEPTED, RELEASED, rejected("my:early")], ids=["accepted", "released", "rejected"])
def test_stream_settled_early_settles_when_complete(connect: Connect, fresh: Fresh, state: Described) -> None:
    """If the consumer settles before the last octet, the producer's delivery is settled once the message is
    complete."""
    sender, receiver = pair(connect, fresh())
    content = message.data(bytes(300_000))
    number = sender.send(content[:200_000], more=True)
    delivery = receiver.next(complete=False)
    delivery.settle(state)
    receiver.peer.barrier()
    sender.send(content[200_000:])
    outcome = sender.outcome(number)
    assert outcome.state is not None
    assert outcome.state.descriptor == state.descriptor
    receiver.detach()
    sender.peer.barrier()
    assert sender.outcome(number).state.descriptor == state.descriptor  # type: ignore[union-attr]
    sender.peer.until(lambda: sender.credit == 250 or sender.credit > 125, "credit")
