"""Types of the fixtures, and helpers for a pair of links."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.peer import message
from tests.peer.links import PeerDelivery, PeerReceiver, PeerSender
from tests.peer.peer import AmqpPeer
from tests.system.router import RouterProcess

Connect = Callable[..., AmqpPeer]
Fresh = Callable[..., str]
Start = Callable[..., RouterProcess]
#: Default credit of a producer link.
CAPACITY = 250


#: Values of rcv-settle-mode.
FIRST, SECOND = 0, 1


def pair(
    connect: Connect, address: str, credit: int = 10, into: str = "", out: str = "", mode: int = FIRST
) -> tuple[PeerSender, PeerReceiver]:
    """Attach a sender (on listener `into`) and a receiver (on `out`) to one address, each on its own connection.

    mode: rcv-settle-mode of the sender's link. With `SECOND` the router relays outcomes that are not settled.
    """
    receiver = connect(out).receiver(address, credit)
    return connect(into).sender(address, rcv_settle_mode=mode), receiver


def pass_one(sender: PeerSender, receiver: PeerReceiver, body: Any = "message", **fields: Any) -> PeerDelivery:
    """Send one message, accept it at the receiver, wait for the outcome, and return the received delivery."""
    number = sender.send(message.message(body, **fields))
    delivery = receiver.next()
    assert message.body(delivery.payload) == body
    delivery.settle()
    assert sender.outcome(number).name == "accepted"
    return delivery


def wait_address_table(connect: Connect, fresh: Fresh) -> None:
    """Wait until every worker has the present address table, including the loss of a consumer.

    The attach of a consumer is answered when all workers use a table that contains it, and so all earlier changes.
    """
    connect().receiver(fresh())


def bodies(deliveries: list[PeerDelivery]) -> list[Any]:
    """Return the bodies of the messages."""
    return [message.body(delivery.payload) for delivery in deliveries]
