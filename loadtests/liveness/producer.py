"""Sending links: messages, their frames, pace, and outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loadtests.liveness import frames
from loadtests.liveness.draw import ProducerSpec
from loadtests.liveness.ledger import LedgerMessage, encoded
from loadtests.liveness.links import PartyLink, Role

if TYPE_CHECKING:
    from loadtests.liveness.party import PartySession
    from loadtests.liveness.round import LivenessRound


class ProducerRole(Role):
    """Role that sends the messages of its list, and continues after it is attached again."""

    sends = True
    spec: ProducerSpec
    link: OutLink | None

    def __init__(self, round_: LivenessRound, spec: ProducerSpec) -> None:
        super().__init__(round_, spec)
        self.next = 0

    def make(self, session: PartySession) -> OutLink:
        return OutLink(self, session)

    @property
    def left(self) -> int:
        """Number of messages that have not been begun."""
        return 1 << 30 if self.spec.endless and not self.round.ending else len(self.spec.messages) - self.next


class OutLink(PartyLink):
    """Sending link."""

    role: ProducerRole

    def __init__(self, role: ProducerRole, session: PartySession) -> None:
        super().__init__(role, session)
        self.count = self.rng.choice((0, 0, 0, 5, (1 << 32) - 2))
        self.credit = 0
        self.limit: int | None = None
        self.drain = False
        self.current: LedgerMessage | None = None
        self.octets = memoryview(b"")
        self.at = 0
        self.begun = False
        self.number = 0
        self.waits = False
        self.unsettled: dict[int, LedgerMessage] = {}

    @property
    def spec(self) -> ProducerSpec:
        """Drawn specification of the link."""
        return self.role.spec

    def opened(self) -> None:
        if self.role.spec.delay and not self.round.calm:
            self.pause(self.role.spec.delay)
        self.session.connection.wants()

    def pause(self, seconds: float) -> None:
        """Send nothing for a while."""
        self.waits = True

        def go() -> None:
            self.waits = False
            self.session.connection.wants()

        if seconds < 1e6:
            self.round.loop.after(seconds, go)

    @property
    def ready(self) -> bool:
        """True if a frame may be written once the session's window is open."""
        if not self.up or self.leaving or self.waits:
            return False
        if self.spec.anonymous and not self.round.begun:
            return False  # an anonymous link has credit before its addresses have consumers
        return self.current is not None or (self.credit > 0 and self.role.left > 0)

    def on_flow(self, fields: list[Any]) -> None:
        """Handle credit and drain."""
        count, credit = frames.field(fields, 5), frames.field(fields, 6) or 0
        known = int(count) if count is not None else self.count
        self.limit = (known + int(credit)) % frames.MODULUS
        # link-credit is an unsigned 32-bit number; deliveries sent since are deducted.
        self.credit = max(0, int(credit) - frames.serial(self.count - known))
        self.drain = bool(frames.field(fields, 8))
        self.round.progress(self.role)
        if self.drain and (self.spec.drain == "give" or not self.role.left) and self.current is None:
            self.give_back()
        elif self.credit and self.role.left:
            self.session.connection.wants()
        if frames.field(fields, 9):
            self.send_flow()

    def give_back(self) -> None:
        """Answer a drain: use up the credit."""
        self.count = (self.count + self.credit) % frames.MODULUS
        self.credit = 0
        self.drain = False
        self.send_flow(True)

    def send_flow(self, drain: bool = False) -> None:
        """Send a flow with our state."""
        self.session.flow((self.handle, self.count, self.credit, drain, False))

    # --- sending ------------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write one transfer."""
        if self.current is None:
            self.start()
        message = self.current
        assert message is not None
        spec = self.spec.messages[min(message.number, len(self.spec.messages) - 1)]
        left = len(self.octets) - self.at
        size = self.piece(left)
        stop = spec.pause_at
        if stop is not None and self.at < stop < self.at + size:
            size = max(1, stop - self.at)
        first = None
        if not self.begun:
            first = (self.number, b"%d" % message.number, message.settled)
        if spec.abort_at is not None and self.at >= spec.abort_at and self.begun:
            self.session.transfer(self.handle, b"", False, None, aborted=True)
            message.aborted = True
            self.unsettled.pop(self.number, None)
            self.session.sent.pop(self.number, None)
            self.finish()
            return
        self.begun = True
        more = size < left
        self.session.transfer(self.handle, self.octets[self.at : self.at + size], more, first)
        self.at += size
        if stop is not None and self.at - size < stop <= self.at and more:
            self.pause(0.0 if self.round.calm and spec.pause < 1e6 else spec.pause)
        if not more:
            message.sent = True
            self.finish()

    def piece(self, left: int) -> int:
        """Return the number of octets of the next transfer."""
        room = self.session.connection.room
        how, number = self.spec.cut
        if how == "random":
            room = self.rng.randint(1, room)
        elif how == "fixed":
            room = min(room, number)
        elif how == "odd":
            room = self.rng.choice((0, 1, 7, room, room)) if left < 5000 else room
        return min(left, room)

    def start(self) -> None:
        """Begin the next message."""
        role = self.role
        spec = self.spec.messages[min(role.next, len(self.spec.messages) - 1)]
        number, role.next = role.next, role.next + 1
        self.current = LedgerMessage(self.spec.uid, number, spec.size, spec.settled, role.address, self)
        self.round.ledger.messages[self.spec.uid, number] = self.current
        to = role.address.text if self.spec.anonymous else None
        self.octets, self.at, self.begun = memoryview(encoded(self.spec.uid, number, spec.size, to)), 0, False
        self.number = self.session.take_delivery()
        self.count = (self.count + 1) % frames.MODULUS
        self.credit -= 1
        if not spec.settled:
            self.unsettled[self.number] = self.current
            self.session.sent[self.number] = self

    def finish(self) -> None:
        """Finish the message, which has been written or aborted."""
        self.current = None
        if self.spec.pace and not self.round.calm:
            self.pause(self.spec.pace)
        if self.drain and (self.spec.drain == "give" or not self.role.left):
            self.give_back()

    def on_outcome(self, number: int, state: str | None, settled: bool) -> None:
        """Handle an outcome from the router."""
        message = self.unsettled.get(number)
        if message is None:
            return
        self.round.progress(self.role)
        if state is not None and state != "received":
            message.outcome = state
        if not settled and message.outcome is not None:
            # The sender settles now.
            self.session.dispose(False, number, number, True, frames.STATES.get(message.outcome))
            settled = True
        if settled:
            message.done = True
            del self.unsettled[number]
            self.session.sent.pop(number, None)
            if self.spec.endless:  # an endless list would slow down each check
                self.round.ledger.messages.pop((message.uid, message.number), None)

    def lost(self) -> None:
        for number in self.unsettled:
            self.session.sent.pop(number, None)
        self.current = None
