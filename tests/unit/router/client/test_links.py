"""Senders and receivers of a client: credit, settlement, and their end."""

import random
from typing import Any

import pytest

from sluice.router.amqp import codec
from sluice.router.client import (
    Accepted,
    ConnectionFailedError,
    LinkDetachedError,
    Message,
    Rejected,
    Released,
    StaleDeliveryError,
    UnsettledError,
)
from sluice.router.client.attach import Terminus
from tests.unit.router.client.exchange import CoreExchange

ACCEPTED = codec.encode_described(0x24, [])
RECEIVED = codec.encode_described(0x23, [codec.encode_uint(0), codec.encode_ulong(0)])
LONG = bytes(1 << 20)  # octets of a message that does not fit into the write buffer


def sending(credit: int = 10, **options: Any) -> tuple[CoreExchange, Any]:
    """Return a sender that has this credit."""
    exchange = CoreExchange()
    sender = exchange.core.session().sender(source=Terminus(), target=Terminus("q"), **options)
    exchange.connect()
    exchange.server.links[0].flow(credit)
    exchange.run()
    return exchange, sender


def receiving(**options: Any) -> tuple[CoreExchange, Any]:
    exchange = CoreExchange()
    receiver = exchange.core.session().receiver(source=Terminus("q"), target=Terminus(), **options)
    exchange.connect()
    return exchange, receiver


def give(exchange: CoreExchange, *bodies: object, **options: Any) -> None:
    """Let the server send messages to its first link."""
    for body in bodies:
        exchange.server.links[0].send(Message(body).encode(), **options)
    exchange.run()


# -- senders


def test_sender_is_ready_within_credit_only():
    exchange = CoreExchange()
    sender = exchange.core.session().sender(source=Terminus(), target=Terminus("q"))
    assert not sender.ready
    exchange.connect()
    assert not sender.ready
    exchange.server.links[0].flow(2)
    exchange.run()
    ready = []
    for body in range(3):
        ready.append(sender.ready)
        sender.send(Message(body))
    assert ready == [True, True, False]


@pytest.mark.parametrize(("fixed", "other"), [(True, False), (False, True)])
def test_mode_of_link_holds_for_all_messages(fixed, other):
    exchange, sender = sending(settled=fixed)
    sender.send(Message(1))
    exchange.run()
    assert [each.settled for each in exchange.server.deliveries] == [fixed]
    with pytest.raises(ValueError, match=f"the link was attached for {'settled' if fixed else 'unsettled'} messages"):
        sender.send(Message(2), settled=other)


def test_state_that_is_no_outcome_leaves_message_pending():
    exchange, sender = sending()
    sent = sender.send(Message(1))
    exchange.run()
    (arrived,) = exchange.server.deliveries
    exchange.server.links[0].settle(arrived, RECEIVED, settled=False)
    exchange.run()
    assert not sent.done
    exchange.server.links[0].settle(arrived, ACCEPTED, settled=False)
    exchange.run()
    assert sent.result() == Accepted()
    assert exchange.server.notes[-1] == ("settled", arrived.id)  # the sender answers with its settlement


def test_settlement_without_state_is_taken_as_released():
    """AMQP 1.0 part 3, 3.4.5: the sender does not know whether the receiver has processed the message."""
    exchange, sender = sending()
    sent = sender.send(Message(1))
    exchange.run()
    exchange.server.links[0].settle(exchange.server.deliveries[0], b"")
    exchange.run()
    assert sent.result() == Released()
    assert sender.waiting == set()


def test_settled_message_is_written_or_lost():
    exchange, sender = sending(credit=1)
    written, kept = (sender.send(Message(body), settled=True) for body in range(2))
    exchange.run()
    assert sender.written(written)
    assert not sender.written(kept)  # there is no credit for it
    exchange.core.lost("gone")
    assert sender.written(written)
    with pytest.raises(UnsettledError) as caught:
        sender.written(kept)
    assert not caught.value.sent


def test_sender_detached_before_the_close_reports_reason_of_the_close():
    exchange, sender = sending()
    exchange.server.links[0].detach(True)
    exchange.server.connection.close("amqp:connection:forced", "Message size exceeded")
    exchange.run()
    with pytest.raises(LinkDetachedError, match="amqp:connection:forced: Message size exceeded") as raised:
        sender.check()
    assert isinstance(raised.value.__cause__, ConnectionFailedError)


def test_sender_detached_on_an_earlier_transport_keeps_its_reason():
    exchange, sender = sending()
    exchange.server.links[0].detach(True)
    exchange.run()
    exchange.reconnect()
    exchange.server.connection.close("amqp:connection:forced", "later")
    exchange.run()
    with pytest.raises(LinkDetachedError, match="the peer has detached the link"):
        sender.check()


def test_sender_that_peer_detaches_reports_reason():
    exchange, sender = sending()
    sent = sender.send(Message(1))
    exchange.run()
    exchange.server.links[0].detach(True, "amqp:resource-deleted", "no q")
    exchange.run()
    with pytest.raises(UnsettledError, match="the outcome is unknown"):
        sent.result()
    with pytest.raises(LinkDetachedError, match="amqp:resource-deleted: no q"):
        sender.send(Message(2))
    assert sender.session.links == []
    exchange.reconnect()
    assert exchange.server.links == []  # a refused link is not attached again


def test_closed_sender_is_not_attached_again():
    exchange, sender = sending()
    sender.close()
    exchange.run()
    assert exchange.server.notes[-1] == ("detached", sender.name, None)
    with pytest.raises(LinkDetachedError, match="the link is closed"):
        sender.send(Message(1))
    assert sender.session.links == []
    exchange.reconnect()
    assert exchange.server.links == []


# -- receivers


@pytest.mark.parametrize("seed", range(5))
def test_credit_and_deliveries_not_taken_stay_within_window(seed):
    chance = random.Random(seed)
    exchange, receiver = receiving(window=8)
    (sender,) = exchange.server.links
    given, taken = 0, []
    for _ in range(200):
        if chance.random() < 0.5 and sender.credit:
            give(exchange, given)
            given += 1
        elif (delivery := receiver.take()) is not None:
            taken.append(delivery.message.body)
            exchange.run()
        assert sender.credit + len(receiver.arrived) <= 8
    assert taken == list(range(len(taken)))
    assert given > 20


def test_credit_is_granted_in_quarters_of_window():
    exchange, receiver = receiving(window=8)
    (sender,) = exchange.server.links
    give(exchange, *range(8))
    granted = []
    for _ in range(8):
        receiver.take()
        exchange.run()
        granted.append(sender.credit)
    assert granted == [0, 2, 2, 4, 4, 6, 6, 8]


def test_own_credit_is_granted_again_after_reconnection():
    exchange, receiver = receiving(window=0)
    assert exchange.server.links[0].credit == 0
    receiver.flow(5)
    exchange.run()
    give(exchange, 1, 2)
    exchange.reconnect()
    assert exchange.server.links[0].credit == 3


def test_drain_ends_when_sender_has_no_more():
    exchange, receiver = receiving(window=0)
    receiver.flow(5)
    exchange.run()
    exchange.server.links[0].send(Message(1).encode())
    receiver.drain()
    assert not receiver.drained
    exchange.run()
    assert receiver.drained
    assert (receiver.take().message.body, receiver.take()) == (1, None)
    receiver.drain()
    assert receiver.drained  # without credit there is nothing to wait for


def test_window_is_closed_while_draining():
    """A receiver that drains must not grant credit for the deliveries that it takes."""
    exchange, receiver = receiving(window=4)
    give(exchange, 1, 2)
    receiver.drain()
    assert receiver.take().message.body == 1
    exchange.run()
    assert (receiver.drained, exchange.server.links[0].credit) == (True, 0)
    receiver.take()
    exchange.run()
    assert exchange.server.links[0].credit == 4


def test_lost_transport_keeps_settled_deliveries_only():
    exchange, receiver = receiving()
    give(exchange, "mine", settled=True)
    give(exchange, "again")
    exchange.core.lost("gone")
    assert receiver.take().message.body == "mine"
    assert receiver.take() is None


def test_delivery_of_earlier_link_cannot_be_settled():
    exchange, receiver = receiving()
    give(exchange, 1, 2)
    first, second = receiver.take(), receiver.take()
    first.reject("a:b", "why")
    exchange.reconnect()
    first.accept()  # settled before: no effect
    with pytest.raises(StaleDeliveryError):
        second.accept()
    exchange.run()
    assert exchange.outcomes == []


def test_first_outcome_of_delivery_counts():
    exchange, receiver = receiving()
    give(exchange, 1)
    delivery = receiver.take()
    delivery.reject("a:b", "why")
    delivery.accept()
    exchange.run()
    rejected = codec.encode_described(Rejected.code, [codec.encode_error("a:b", "why")])
    assert exchange.outcomes == [(0, rejected, True)]


def test_message_beyond_size_limit_ends_receiver():
    exchange, receiver = receiving(max_message_size=1000)
    give(exchange, LONG)
    assert receiver.take() is None
    reason = "amqp:link:message-size-exceeded: a message has more than 1000 octets"
    with pytest.raises(LinkDetachedError, match=reason):
        receiver.flow(1)
