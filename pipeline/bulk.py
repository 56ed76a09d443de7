"""Receiving and sending many messages without an object for each, over links of `bulk_receiver` and `bulk_sender`.

A bulk receiver is the only receiver of its session, because outcomes are reported for all deliveries of the session:

    session = connection.session(WINDOW)
    receiver = BulkState(session.state, source=Terminus("address"), max_message_size=1 << 26)
    session.state.add(receiver)
    receiver.flow(100_000)
    batch = receiver.take()                              None: nothing received
    receiver.settle(batch, Accepted())

    sender = BulkSenderState(session.state, target=Terminus("address"), source=Terminus())
    session.state.add(sender)
    sender.give(MessageBatch.of([octets]))               after it is attached
"""

from typing import TYPE_CHECKING, Any, Final

from sluice.pipeline.bulk_receiver import Batch, BulkReceiver
from sluice.pipeline.bulk_sender import BulkSender, MessageBatch
from sluice.router.client import attach, outcome
from sluice.router.client.links import LinkState

MS = 1000

if TYPE_CHECKING:
    from sluice.router.client.session import SessionState

#: Window in frames of a session with a bulk receiver: unbounded. Credit bounds what the receiver holds, and the socket
#: what is in transit. With a window of a few thousand frames the peer would wait for this process each time.
WINDOW: Final = 0x7FFFFFFF


class BulkState(LinkState):
    """Bulk receiver that is attached again after each reconnection. Owner: its session, which has no other receiver.

    Messages that were received and not taken are lost with the link.
    """

    receiver = True

    def __init__(self, session: "SessionState", *, max_message_size: int, **options: Any) -> None:
        """Create it. max_message_size: octets; larger messages are rejected, and counted in `rejected`."""
        super().__init__(session, **options)
        self.max_message_size = max_message_size
        self._granted = 0
        self._rejected = 0  # by ended links

    def make(self) -> BulkReceiver:
        return BulkReceiver(self, max_message_size=self.max_message_size)

    def attach_items(self, handle: int) -> list[bytes]:
        return attach.encode(
            self.name, handle, receiver=True, source=self.source, target=self.target, settled=None,
            properties=self.properties,
        )  # fmt: skip

    @property
    def rows(self) -> int:
        """Number of deliveries that `take` would return."""
        return self.link.rows if self.link is not None else 0

    @property
    def octets(self) -> int:
        """Number of octets of these deliveries."""
        return self.link.octets if self.link is not None else 0

    @property
    def last_arrival(self) -> float:
        """Arrival of the last message, in seconds of the core's time, rounded down to ms."""
        return self.link.read_at / MS if self.link is not None else 0.0

    @property
    def credit(self) -> int:
        """Number of deliveries that the sender may still send."""
        return self.link.credit if self.attached else 0

    @property
    def rejected(self) -> int:
        return self._rejected + (self.link.rejected if self.link is not None else 0)

    def flow(self, credit: int) -> None:
        """Set the credit; it is granted again after a reconnection."""
        self.check()
        self._granted = credit
        if self.attached:
            self.link.flow(credit)
            self.session.core.changed()

    def take(self) -> Batch | None:
        return self.link.take() if self.link is not None else None

    def settle(self, batch: Batch, how: outcome.Outcome) -> bool:
        """Settle all deliveries of a batch with one outcome. False: the link that they arrived on has ended, and the
        sender has them again."""
        told = bool(batch.link.settle_range(batch, outcome.encode(how)))
        if told:
            self.session.core.changed()
        return told

    def drop(self) -> None:
        """Do nothing: the senders have unsettled messages again."""

    def connection_lost(self) -> None:
        self._rejected = self.rejected
        super().connection_lost()

    # -- events of the engine ------------------------------------------------------------------------------------------

    def on_attached(self, items: list[bytes]) -> None:
        super().on_attached(items)
        assert self.answer is not None
        if not self.answer.refused:
            self.link.begin_at(self.answer.initial_delivery_count)
            if self._granted:
                self.link.flow(self._granted)

    def on_drained(self, receiver: BulkReceiver) -> None:
        """Do nothing: a bulk receiver never drains."""


class BulkSenderState(LinkState):
    """Base class of bulk senders. Messages that were given and are not done stay with the caller, for the next link."""

    receiver = False

    def __init__(
        self,
        session: "SessionState",
        *,
        settled: bool = False,
        most: int = 0,
        transfer_state: bytes = b"",
        **options: Any,
    ) -> None:
        """Create it. settled: all messages are sent settled. most: most unsettled messages at a time; 0: as many as
        the credit. transfer_state: encoded delivery state of each message."""
        super().__init__(session, **options)
        self.settled = settled
        self.most = most
        self.transfer_state = transfer_state
        self._accepted = 0  # by ended links

    def make(self) -> BulkSender:
        sender = BulkSender(self)
        sender.presettled = self.settled
        sender.most = self.most
        sender.transfer_state = self.transfer_state
        return sender

    def attach_items(self, handle: int) -> list[bytes]:
        return attach.encode(
            self.name, handle, receiver=False, source=self.source, target=self.target, settled=self.settled,
            properties=self.properties,
        )  # fmt: skip

    def give(self, messages: MessageBatch) -> None:
        """Send messages as far as there is credit, now and when more is granted."""
        self.link.give(messages)
        self.session.core.changed()

    @property
    def accepted(self) -> int:
        """Number of accepted messages."""
        return self._accepted + (self.link.accepted if self.link is not None else 0)

    def drop(self) -> None:
        """Do nothing: the caller keeps its messages."""

    def connection_lost(self) -> None:
        self._accepted = self.accepted
        super().connection_lost()

    # -- events of the engine ------------------------------------------------------------------------------------------

    def on_credit(self, sender: BulkSender) -> None:
        """Do nothing: the link continues by itself."""

    def on_outcome(self, sender: BulkSender, octets: bytes, state: bytes) -> None:
        """Handle the outcome of a message that was not accepted; with `transfer_state`, also those that the link of the
        engine has not learned as accepted (`BulkSender.learn_accepted`)."""
        raise NotImplementedError
