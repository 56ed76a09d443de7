"""Multicast and unavailable distribution (routing-semantics.md 8.4, 8.5)."""

import pytest

from tests.peer import message
from tests.system.fixtures import Connect, Fresh, bodies

pytestmark = pytest.mark.adversarial

WORKER_COUNTS = (1, 3)


def test_multicast_copies_arrive_in_order(connect: Connect, fresh: Fresh) -> None:
    address = fresh("multicast")
    receivers = [connect().receiver(address, 50) for _ in range(4)]
    sender = connect().sender(address)
    for number in range(20):
        sender.send(message.message(number), settled=True)
    for receiver in receivers:
        assert bodies(receiver.receive(20)) == list(range(20))


def test_links_of_one_connection_get_separate_copies(connect: Connect, fresh: Fresh) -> None:
    address = fresh("multicast")
    peer = connect()
    receivers = [peer.receiver(address, 5), peer.receiver(address, 5), peer.begin().receiver(address, 5)]
    peer.sender(address).send(message.message("to all"), settled=True)
    for receiver in receivers:
        assert message.body(receiver.next().payload) == "to all"


def test_later_consumer_gets_later_messages_only(connect: Connect, fresh: Fresh) -> None:
    address = fresh("multicast")
    early = connect().receiver(address, 5)
    sender = connect().sender(address)
    sender.send(message.message("early"), settled=True)
    early.next()
    late = connect().receiver(address, 5)
    sender.send(message.message("late"), settled=True)
    assert message.body(late.next().payload) == "late"
    assert message.body(early.next().payload) == "late"


def test_consumer_without_credit_delays_no_copy(connect: Connect, fresh: Fresh) -> None:
    address = fresh("multicast")
    ready, stalled = connect().receiver(address, 5), connect().receiver(address, 0)
    sender = connect().sender(address)
    number = sender.send(message.message("both"))
    ready.next().settle()
    ready.peer.barrier()
    sender.peer.barrier()
    assert number not in sender.session.outcomes
    stalled.flow(1)
    stalled.next().settle()
    outcome = sender.outcome(number)
    assert (outcome.name, outcome.settled) == ("accepted", True)


def test_stalled_consumer_detach_completes_outcome(connect: Connect, fresh: Fresh) -> None:
    address = fresh("multicast")
    ready, stalled = connect().receiver(address, 5), connect().receiver(address, 0)
    sender = connect().sender(address)
    number = sender.send(message.message("both"))
    ready.next().settle()
    stalled.detach()
    assert sender.outcome(number).name == "accepted"


def test_anonymous_multicast_combines_outcomes(connect: Connect, fresh: Fresh) -> None:
    address = fresh("multicast")
    receivers = [connect().receiver(address, 5) for _ in range(2)]
    sender = connect().sender()
    number = sender.send(message.message("x", to=address))
    for receiver in receivers:
        receiver.next().settle()
    assert sender.outcome(number).name == "accepted"


def test_large_multicast_message_arrives_at_each_consumer(connect: Connect, fresh: Fresh) -> None:
    address = fresh("multicast")
    receivers = [connect().receiver(address, 5) for _ in range(3)]
    sender = connect().sender(address)
    body = bytes(range(256)) * 2000
    number = sender.send(message.data(body))
    for receiver in receivers:
        delivery = receiver.next()
        assert message.body(delivery.payload) == body
        delivery.settle()
    assert sender.outcome(number).name == "accepted"


def test_unavailable_address_on_anonymous_link_is_rejected(connect: Connect) -> None:
    sender = connect().sender()
    outcome = sender.request(message.message("x", to="unavailable/x"))
    assert outcome.error == ("amqp:not-found", "Deliveries cannot be sent to an unavailable address")
    sender.send(message.message("x", to="unavailable/x"), settled=True)
    for _ in range(300):
        sender.wait_credit()
        sender.request(message.message("x", to="unavailable/x"))
