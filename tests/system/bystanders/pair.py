"""A sender and a receiver of one address. Each message must arrive once, in order, unchanged, accepted and in time.

Owner: one thread, which reads the connections of both.
"""

from __future__ import annotations

from tests.peer import message
from tests.peer.links import PeerReceiver, PeerSender

#: Credit of a receiver, and the number of deliveries after which the credit is renewed.
CREDIT = 500
RENEWED_AFTER = 100
#: In each TURN messages every other message is presettled. Those with a number in LARGE are longer than a frame; one is
#: presettled and one is not.
TURN, LARGE, LARGE_OCTETS = 20, (4, 13), 40_000


class BystanderPair:
    """Numbered messages, presettled or not, of one frame or several.

    text: content of each message, repeated in a large one. `fault` is None, or the first fault noticed.
    """

    def __init__(self, name: str, sender: PeerSender, receiver: PeerReceiver, text: bytes) -> None:
        self.name = name
        self.sender = sender
        self.receiver = receiver
        self.text = text
        self.fault: str | None = None
        #: Longest delay in s of a message or its outcome since `take_worst`.
        self.worst = 0.0
        self.sent = 0
        self.received = 0
        #: Time since which the next message has waited for credit or a window.
        self._waiting_since: float | None = None
        #: Due time of each message that has not arrived, by number.
        self._due: dict[int, float] = {}
        #: Number and due time of each unsettled message, by delivery-id.
        self._unsettled: dict[int, tuple[int, float]] = {}

    def payload(self, number: int) -> bytes:
        """Return message `number`."""
        times = LARGE_OCTETS // len(self.text) if number % TURN in LARGE else 1
        return message.data(b"%s %d %s" % (self.name.encode(), number, self.text * times))

    def send(self, now: float) -> None:
        """Send the next message if credit and window permit."""
        due = now if self._waiting_since is None else self._waiting_since
        payload = self.payload(self.sent)
        frames = 1 + len(payload) // self.sender.peer.payload_room
        if self.sender.credit <= 0 or self.sender.session.remote_window < frames:
            self._waiting_since = due
            return
        self._waiting_since = None
        settled = self.sent % 2 == 1
        delivery = self.sender.send(payload, settled=settled)
        self._due[self.sent] = due
        if not settled:
            self._unsettled[delivery] = self.sent, due
        self.sent += 1

    def take(self, now: float) -> None:
        """Check the deliveries and outcomes that have been read."""
        deliveries = self.receiver.deliveries
        while deliveries and deliveries[0].complete:
            delivery = deliveries.pop(0)
            self._check(delivery.payload, now)
            if not delivery.settled:
                delivery.settle()
            self.received += 1
            if self.received % RENEWED_AFTER == 0:
                self.receiver.flow(CREDIT)
        outcomes = self.sender.session.outcomes
        for delivery_id in [known for known in self._unsettled if known in outcomes and outcomes[known].settled]:
            number, due = self._unsettled.pop(delivery_id)
            self.worst = max(self.worst, now - due)
            outcome = outcomes.pop(delivery_id)
            if outcome.name != "accepted":
                self.report(f"message {number} was {outcome.name}")

    def _check(self, payload: bytes, now: float) -> None:
        if payload == self.payload(self.received):
            self.worst = max(self.worst, now - self._due.pop(self.received))
            return
        known = next((number for number in range(self.sent) if payload == self.payload(number)), None)
        if known is None:
            self.report(
                f"message {self.received} arrived as {len(payload)} octets that were not sent: {payload[:80]!r}"
            )
        else:
            how = "arrived a second time" if known < self.received else "arrived too early"
            self.report(f"message {known} {how} where message {self.received} was expected")

    @property
    def due(self) -> int:
        """Number of messages sent, plus one that waits for credit or a window."""
        return self.sent + (self._waiting_since is not None)

    def settled_up_to(self, number: int) -> bool:
        """Return whether all messages before `number` have arrived and have their outcomes."""
        return self.received >= number and all(open_number >= number for open_number, _ in self._unsettled.values())

    def oldest(self) -> tuple[float, str] | None:
        """Return the due time and a description of the oldest missing message, outcome or credit."""
        waiting = [(due, f"message {number} has not arrived") for number, due in self._due.items()]
        waiting += [(due, f"message {number} has no outcome") for number, due in self._unsettled.values()]
        if self._waiting_since is not None:
            waiting.append((self._waiting_since, f"message {self.sent} has no credit or no window"))
        return min(waiting, default=None)

    def take_worst(self) -> float:
        """Return the longest delay in s since the last call, and reset it."""
        worst, self.worst = self.worst, 0.0
        return worst

    def report(self, fault: str) -> None:
        """Record a fault unless one is recorded: later faults are consequences of the first."""
        if self.fault is None:
            self.fault = f"{self.name}: {fault}"
