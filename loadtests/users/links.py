"""Links of a user: senders that wait for credit and report outcomes, receivers that settle and replenish credit."""

from __future__ import annotations

from collections.abc import Callable

import proton
from proton import Delivery, Endpoint, Link, Terminus

from loadtests.users.connection import GeventConnection
from loadtests.users.errors import NotAccepted, RefusedByPeer, outcome_of

#: Callback for an outcome: the error, or None if the message was accepted.
Settled = Callable[[NotAccepted | None], None]
#: Callback for the octets of a message. Returns the outcome, for example Delivery.ACCEPTED.
Arrived = Callable[[bytes], int]


class AttachedLink:
    """Base class of sender and receiver: attaching, and being detached by the peer."""

    def __init__(self, connection: GeventConnection, link: proton.Link) -> None:
        self.connection = connection
        self.link = link
        link.owner = self

    def attach(self) -> None:
        """Attach, and wait for the peer's attach. Raises Refused if the peer detaches instead, or AmqpError."""
        self.link.open()
        self.connection.flush()
        self.connection.wait(self._answered, "attach")
        if self.detached:
            self.link.close()
            raise self.reason()

    def _answered(self) -> bool:
        """Return True if the peer has answered. A refusal is an attach without a terminus, followed by a detach."""
        if not self.link.state & (Endpoint.REMOTE_ACTIVE | Endpoint.REMOTE_CLOSED):
            return False
        terminus = self.link.remote_target if self.link.is_sender else self.link.remote_source
        return self.detached or terminus.type != Terminus.UNSPECIFIED

    @property
    def detached(self) -> bool:
        """True if the peer has detached or closed the link."""
        return bool(self.link.state & Endpoint.REMOTE_CLOSED)

    def reason(self) -> RefusedByPeer:
        """Return the reason for the peer's detach."""
        return RefusedByPeer("link detached", self.link.remote_condition)

    def close(self) -> None:
        """Close the link, and wait for the peer to do so. Raises AmqpError."""
        self.link.close()
        self.connection.flush()
        self.connection.wait(lambda: self.detached, "detach")


class SendingLink(AttachedLink):
    """Sending link. `outstanding`: number of unsettled messages."""

    def __init__(self, connection: GeventConnection, address: str | None, *, presettled: bool = False) -> None:
        """Create the link. address: None for the anonymous target: each message names its own."""
        super().__init__(connection, connection.session.sender(f"sender-{address}"))
        if address is not None:
            self.link.target.address = address
        self.link.snd_settle_mode = Link.SND_SETTLED if presettled else Link.SND_UNSETTLED
        self.presettled = presettled
        self.outstanding = 0
        self._tag = 0

    def wait_for_credit(self) -> None:
        """Wait until a message may be sent. Raises Refused if the peer detached, or AmqpError."""
        if self.link.credit <= 0:
            self.connection.wait(lambda: self.link.credit > 0 or self.detached, "credit")
        if self.detached:
            raise self.reason()

    def send(self, octets: bytes, settled: Settled) -> None:
        """Send a message; the link must have credit.

        `settled` is called with the outcome, for a presettled message at once.
        """
        if self.connection.lost:
            raise self.connection.lost
        self._tag += 1
        delivery = self.link.delivery(str(self._tag))
        self.link.stream(octets)
        self.link.advance()
        if self.presettled:
            delivery.settle()
            settled(None)
        else:
            delivery.settled_here = settled
            self.outstanding += 1
        self.connection.flush()

    def wait_for_window(self, window: int) -> None:
        """Wait until fewer than `window` messages are outstanding."""
        if self.outstanding >= window:
            self.connection.wait(lambda: self.outstanding < window or self.detached, "settlement")
        if self.detached:
            raise self.reason()

    def on_delivery(self, delivery: Delivery) -> None:
        """Handle a state from the peer, if it is final."""
        if not delivery.updated or not (delivery.settled or delivery.remote_state in FINAL):
            return
        self.outstanding -= 1
        settled: Settled = delivery.settled_here
        outcome = outcome_of(delivery)
        delivery.settle()
        settled(outcome)


FINAL = (Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED)


class ReceivingLink(AttachedLink):
    """Receiving link that always offers `credit` messages of credit. `address`: assigned by the peer, if dynamic."""

    def __init__(self, connection: GeventConnection, address: str | None, credit: int, arrived: Arrived) -> None:
        """Create the link. address: None for a dynamic one."""
        name = f"receiver-{address}" if address else "receiver-dynamic"
        super().__init__(connection, connection.session.receiver(name))
        if address is None:
            self.link.source.dynamic = True
        else:
            self.link.source.address = address
        self.credit = credit
        self.arrived = arrived

    def attach(self) -> None:
        """Attach as in AttachedLink, with the first credit."""
        self.link.flow(self.credit)
        super().attach()

    @property
    def address(self) -> str:
        """Address to which messages for this receiver are sent."""
        return str(self.link.remote_source.address)

    def on_delivery(self, delivery: Delivery) -> None:
        """Receive a whole message, settle it with the outcome from `arrived`, and replenish half of the credit at a
        time.
        """
        if delivery.aborted:
            self.link.advance()
            delivery.settle()
        elif delivery.readable and not delivery.partial:
            octets = self.link.recv(delivery.pending) or b""
            self.link.advance()
            outcome = self.arrived(octets)
            if not delivery.settled:
                delivery.update(outcome)
            delivery.settle()
        if (missing := self.credit - self.link.credit) * 2 >= self.credit and not self.link.drain_mode:
            self.link.flow(missing)

    def drain(self) -> None:
        """Withdraw the credit. Afterwards only messages that were in flight arrive. Raises AmqpError."""
        self.link.drain(0)
        self.connection.flush()
        self.connection.wait(lambda: not self.link.draining() or self.detached, "drain")
