"""Links of a client: messages that a sender waits for, and deliveries that a receiver has got."""

import itertools
from collections import deque
from typing import TYPE_CHECKING, Any

from sluice.router.amqp.performatives import read_error
from sluice.router.amqp.session import Session
from sluice.router.client import attach, message, outcome
from sluice.router.client.errors import ClientError, LinkDetachedError, StaleDeliveryError, UnsettledError
from sluice.router.client.receiver import ReceivedDelivery, Receiver
from sluice.router.client.sender import Sender, SentDelivery

if TYPE_CHECKING:
    from sluice.router.client.session import SessionState

_numbers = itertools.count(1)


class LinkState:
    """Base class of SenderState and ReceiverState. Owner: its session.

    It handles events of the engine's link. A reconnection brings another link of the engine, but keeps this object.
    """

    receiver: bool

    def __init__(
        self,
        session: "SessionState",
        *,
        name: str | None = None,
        source: attach.Terminus,
        target: attach.Terminus | attach.Coordinator,
        properties: dict[str, Any] | None = None,
    ) -> None:
        self.session = session
        self.name = name or f"{'receiver' if self.receiver else 'sender'}-{next(_numbers)}"
        self.source = source
        self.target = target
        self.properties = properties
        self.link: Any = None  # link of the engine
        self.answer: attach.PeerAttach | None = None  # attach of the peer
        self.error: ClientError | None = None  # reason of its end
        self.closed = False  # closed by this client

    @property
    def attached(self) -> bool:
        return self.answer is not None and not self.answer.refused and self.link is not None and not self.link.ended

    @property
    def address(self) -> str | None:
        """Address of the peer's terminus, which the peer may have generated."""
        return self.answer.address if self.answer is not None else None

    def check(self) -> None:
        """Raise the error with which the link has ended, if it has ended."""
        if self.error is not None:
            raise self.error
        if self.closed:
            raise LinkDetachedError("", "the link is closed")
        self.session.core.check()

    def make(self) -> Any:
        """Create a link of the engine."""
        raise NotImplementedError

    def attach(self, session: Session) -> None:
        """Attach the link on a session that has begun."""
        if self.closed or self.error is not None:
            return
        self.link = self.make()
        self.link.context = self
        self.answer = None
        session.add_link(self.link, self.name, None, self.receiver)
        session.send_attach(self.attach_items(self.link.handle))

    def attach_items(self, handle: int) -> list[bytes]:
        raise NotImplementedError

    def close(self) -> None:
        """Detach for good."""
        self.closed = True
        if self.link is not None and not self.link.ended:
            self.link.detach(True)
            self.session.core.changed()
        self.session.forget(self)

    def connection_lost(self) -> None:
        self.link = None
        self.answer = None
        self.drop()

    def drop(self) -> None:
        """Handle the loss of unsettled deliveries, which will not be settled."""
        raise NotImplementedError

    def explain_detach(self, error: ClientError) -> None:
        """Note the error of the close that has followed the peer's detach."""
        self.error = LinkDetachedError(error.condition, error.description)
        self.error.__cause__ = error

    # -- events of the engine ------------------------------------------------------------------------------------------

    def on_attached(self, items: list[bytes]) -> None:
        self.answer = attach.read(items, self.receiver)
        self.session.core.changed()

    def on_detached(self, error: bytes | None) -> None:
        """Handle the end of the link: detached by either side, or lost with its connection or session."""
        core = self.session.core
        if not self.closed and core.connection is not None and not core.connection.ended:
            found = read_error(error) if error else self.link.reason or self.session.error
            condition, description = found or ("", "")
            self.error = LinkDetachedError(condition, description or "the peer has detached the link")
            if not condition:
                core.detached_without_reason.append(self)
            self.session.forget(self)
        self.drop()
        core.changed()


class PendingSend:
    """Message that was given to a sender."""

    def __init__(self, sent: SentDelivery) -> None:
        self.sent = sent
        self.outcome: outcome.Outcome | None = None
        self.error: UnsettledError | None = None

    @property
    def done(self) -> bool:
        """True if its outcome is known, or will never be known."""
        return self.outcome is not None or self.error is not None

    def result(self) -> outcome.Outcome:
        if self.error is not None:
            raise self.error
        assert self.outcome is not None, "not done"
        return self.outcome


class SenderState(LinkState):
    """Sending link of a client, within credit."""

    receiver = False

    def __init__(self, session: "SessionState", *, settled: bool | None = None, **options: Any) -> None:
        """Create it. settled: all messages are sent settled (snd-settle-mode), or none is; None: as chosen for each
        message."""
        super().__init__(session, **options)
        self.settled = settled
        self.waiting: set[PendingSend] = set()

    def make(self) -> Sender:
        return Sender(self)

    def attach_items(self, handle: int) -> list[bytes]:
        return attach.encode(
            self.name, handle, receiver=False, source=self.source, target=self.target, settled=self.settled,
            properties=self.properties,
        )  # fmt: skip

    @property
    def ready(self) -> bool:
        """True if the credit allows a message to be sent now."""
        return self.attached and bool(self.link.credit > self.link.queued)

    def send(
        self,
        what: message.Message | bytes,
        settled: bool | None = None,
        tag: bytes | None = None,
        *,
        message_format: int = 0,
        state: bytes = b"",
    ) -> PendingSend:
        """Give a message to the link, when `ready`. Messages given as bytes are encoded already. state: encoded
        delivery state of its transfer, at most 128 octets."""
        self.check()
        octets = what if isinstance(what, bytes) else what.encode()
        if settled is None:
            settled = self.settled or False
        elif self.settled is not None and settled != self.settled:
            raise ValueError("the link was attached for " + ("settled" if self.settled else "unsettled") + " messages")
        if self.link is None or self.link.ended:
            raise UnsettledError(False)
        sent = self.link.send(octets, tag=tag, settled=settled, message_format=message_format, state=state)
        sending = PendingSend(sent)
        if not settled:
            sending.sent.context = sending
            self.waiting.add(sending)
        return sending

    def written(self, sending: PendingSend) -> bool:
        """True if the settled message is written. Raises UnsettledError if the link was lost before."""
        if sending.sent.written_out:
            return True
        if self.link is None or self.link.ended:
            raise UnsettledError(bool(sending.sent.started))
        return False

    def drop(self) -> None:
        for sending in self.waiting:
            sending.error = UnsettledError(bool(sending.sent.started))
            sending.sent.context = None
        self.waiting.clear()

    # -- events of the engine ------------------------------------------------------------------------------------------

    def on_credit(self, sender: Sender) -> None:
        """Do nothing: callers that wait check `ready`."""

    def on_outcome(self, sender: Sender, sent: SentDelivery, state: bytes, settled: bool) -> None:
        sending = sent.context
        known = outcome.decode(state)
        if known is not None and not settled:
            sender.settle(sent)  # the receiver waits for the settlement (rcv-settle-mode second)
        elif not settled:
            return
        self.waiting.discard(sending)
        sent.context = None
        # Settled without a state: the receiver does not report an outcome (3.4 leaves it to the source's default).
        sending.outcome = known if known is not None else outcome.Released()


class Delivery:
    """Received message. It is settled by one of `accept`, `reject`, `release`, `modify`."""

    def __init__(self, link: "ReceiverState", received: ReceivedDelivery) -> None:
        self.link = link
        self.received = received
        self._message: message.Message | None = None

    @property
    def octets(self) -> bytes:
        """Octets of the whole message, as received."""
        return bytes(self.received.octets)

    @property
    def message(self) -> message.Message:
        """Message, decoded at the first access. Raises AmqpError."""
        if self._message is None:
            self._message = message.decode(self.octets)
        return self._message

    @property
    def tag(self) -> bytes:
        return bytes(self.received.tag)

    @property
    def settled(self) -> bool:
        return bool(self.received.settled)

    def settle(self, how: outcome.Outcome) -> None:
        """Settle the delivery. Settling it again has no effect. Raises StaleDeliveryError if its link has ended."""
        if not self.settled:
            if self.received.link is not self.link.link or self.received.link.ended:
                raise StaleDeliveryError("", "the link of this delivery has ended")
            self.received.link.settle(self.received, outcome.encode(how))
            self.link.session.core.changed()

    def accept(self) -> None:
        self.settle(outcome.Accepted())

    def reject(self, condition: str = "", description: str = "") -> None:
        """Settle the delivery as invalid."""
        self.settle(outcome.Rejected(condition, description))

    def release(self) -> None:
        """Settle the delivery as not processed, so that another receiver may get it."""
        self.settle(outcome.Released())

    def modify(self, delivery_failed: bool = True, undeliverable_here: bool = False, **annotations: Any) -> None:
        self.settle(outcome.Modified(delivery_failed, undeliverable_here, annotations))


class ReceiverState(LinkState):
    """Receiving link of a client.

    Deliveries not taken and deliveries that the sender may still send are never more than `window` together. window 0:
    credit is granted by `flow` only.
    """

    receiver = True

    def __init__(
        self,
        session: "SessionState",
        *,
        window: int = 100,
        max_message_size: int = 0,
        settled: bool | None = None,
        **options: Any,
    ) -> None:
        """Create it. max_message_size: octets, 0: any. settled: request settled messages from the sender (at most
        once)."""
        super().__init__(session, **options)
        self.window = window
        self.max_message_size = max_message_size
        self.settled = settled
        self.arrived: deque[Delivery] = deque()
        self.granted = 0  # credit of `flow` to grant again after a reconnection
        self.drained = True

    def make(self) -> Receiver:
        return Receiver(self, max_message_size=self.max_message_size)

    def attach_items(self, handle: int) -> list[bytes]:
        return attach.encode(
            self.name, handle, receiver=True, source=self.source, target=self.target, settled=self.settled,
            max_message_size=self.max_message_size, properties=self.properties,
        )  # fmt: skip

    def flow(self, credit: int) -> None:
        """Set the credit."""
        self.check()
        self.drained = True
        self.granted = credit
        if self.link is not None and self.answer is not None:
            self.link.flow(credit)
            self.session.core.changed()

    def drain(self) -> None:
        """Request the messages that the sender has now, within the credit; `drained` becomes true when that is done."""
        self.check()
        self.drained = self.link is None or self.link.credit == 0
        self.granted = 0
        if not self.drained:
            self.link.flow(self.link.credit, drain=True)
            self.session.core.changed()

    def take(self) -> Delivery | None:
        """Return the next delivery, or None."""
        if not self.arrived:
            self.replenish_credit()
            return None
        delivery = self.arrived.popleft()
        self.replenish_credit()
        return delivery

    def replenish_credit(self) -> None:
        """Grant credit for deliveries taken, a quarter of the window at a time."""
        if self.window and self.drained and self.link is not None and self.answer is not None and not self.link.ended:
            room = self.window - len(self.arrived)
            if room - self.link.credit >= max(self.window // 4, 1):
                self.link.flow(room)
                self.session.core.changed()

    def drop(self) -> None:
        self.drained = True
        self.arrived = deque(each for each in self.arrived if each.settled)  # the sender has the others again
        if self.link is not None:
            self.granted = self.link.credit if not self.window else 0

    # -- events of the engine ------------------------------------------------------------------------------------------

    def on_attached(self, items: list[bytes]) -> None:
        super().on_attached(items)
        assert self.answer is not None
        if not self.answer.refused:
            self.link.begin_at(self.answer.initial_delivery_count)
            if self.window:
                self.replenish_credit()
            elif self.granted:
                self.link.flow(self.granted)

    def on_delivery(self, receiver: Receiver, received: ReceivedDelivery) -> None:
        self.arrived.append(Delivery(self, received))

    def on_settled(self, receiver: Receiver, received: ReceivedDelivery) -> None:
        """Do nothing: the delivery's state has changed."""

    def on_drained(self, receiver: Receiver) -> None:
        self.drained = True
