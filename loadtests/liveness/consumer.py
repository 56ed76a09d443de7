"""Receiving links: patterns of credit and of settlement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loadtests.liveness import frames
from loadtests.liveness.draw import ConsumerSpec
from loadtests.liveness.ledger import LedgerMessage
from loadtests.liveness.links import PartyLink, Role

if TYPE_CHECKING:
    from loadtests.liveness.party import PartySession

#: Seconds after which a batch is settled, however small it is.
BATCH_WAIT = 0.03


class ConsumerRole(Role):
    """Role that receives."""

    spec: ConsumerSpec
    link: InLink | None

    def make(self, session: PartySession) -> InLink:
        return InLink(self, session)


class PartialDelivery:
    """Delivery that an InLink has received, at least in part, and not settled."""

    __slots__ = ("link", "message", "number", "outcome", "payload", "settled")

    def __init__(self, link: InLink, number: int, settled: bool) -> None:
        self.link = link
        self.number = number
        self.settled = settled
        self.payload = bytearray()
        self.message: LedgerMessage | None = None
        self.outcome = ""


class InLink(PartyLink):
    """Receiving link."""

    role: ConsumerRole

    def __init__(self, role: ConsumerRole, session: PartySession) -> None:
        super().__init__(role, session)
        self.limit = 0
        self.count = 0
        self.draining = False
        self.current: PartialDelivery | None = None
        self.waiting: list[PartialDelivery] = []
        self.unsettled: dict[int, PartialDelivery] = {}
        self.settled_since = 0
        self.flush = False
        self.order: dict[tuple[int, int], int] = {}
        self.granted = False

    @property
    def spec(self) -> ConsumerSpec:
        """Drawn specification of the link."""
        return self.role.spec

    @property
    def credit(self) -> int:
        """Number of messages that the router may still send."""
        return self.limit - self.count

    def on_attach(self, fields: list[Any]) -> None:
        self.count = self.limit = int(frames.field(fields, 9) or 0)
        super().on_attach(fields)

    def opened(self) -> None:
        if self.spec.delay and not self.round.calm:
            self.round.loop.after(self.spec.delay, self.grant)
        else:
            self.grant()

    # --- credit -------------------------------------------------------------------------------------------------------

    def grant(self) -> None:
        """Grant credit according to the pattern."""
        pattern, number = self.spec.credit
        if not self.up or self.leaving or self.draining or pattern == "none":
            return
        if pattern == "window":
            if self.credit <= number // 2:
                self.set(number)
        elif pattern in ("burst", "drain"):
            if self.credit == 0:
                self.set(number)
                if pattern == "drain" and not self.round.calm:
                    self.round.loop.after(self.rng.choice((0.001, 0.01, 0.05)), self.ask_drain)
        elif pattern == "one":
            if self.credit == 0 and not self.unsettled and self.current is None:
                self.set(1)
        elif pattern == "settled" and (not self.granted or self.settled_since >= max(1, number // 2)):
            more = self.settled_since if self.granted else number
            self.granted, self.settled_since = True, 0
            self.set(self.credit + more)

    def set(self, credit: int, drain: bool = False) -> None:
        """Send a flow with this credit."""
        credit = min(credit, (1 << 32) - 1)
        self.limit = self.count + credit
        self.session.flow((self.handle, self.count % frames.MODULUS, credit, drain, False))

    def ask_drain(self) -> None:
        """Drain the rest of the credit."""
        if self.up and not self.leaving and self.credit > 0 and not self.round.calm:
            self.draining = True
            self.set(self.credit, True)

    def on_flow(self, fields: list[Any]) -> None:
        """Take over the sender's state; after a drain its delivery-count has advanced."""
        count = frames.field(fields, 5)
        if count is not None:
            self.count += max(0, frames.serial(int(count) - self.count))
        if self.count > self.limit:
            self.round.fault(f"{self}: the router says that it has used credit {self.limit} up to {self.count}")
            self.limit = self.count
        if self.draining and self.credit == 0:
            self.draining = False
            self.round.progress(self.role)
            pause = 0.0 if self.round.calm else self.rng.choice((0.0, 0.0, 0.05))
            self.round.loop.after(pause, self.grant)
        if frames.field(fields, 9):
            self.session.flow((self.handle, self.count % frames.MODULUS, self.credit, self.draining, False))

    # --- deliveries ---------------------------------------------------------------------------------------------------

    def on_transfer(self, fields: list[Any], payload: memoryview) -> None:
        """Handle a frame of a delivery."""
        if self.leaving:
            return
        self.round.progress(self.role)
        delivery = self.current
        if delivery is None:
            delivery = self.current = PartialDelivery(self, int(fields[1]), False)
            self.count += 1
            if self.count > self.limit:
                self.round.fault(f"{self}: a delivery without credit")
                self.limit = self.count
            if self.draining and self.credit == 0:
                self.draining = False
        if frames.field(fields, 4):
            delivery.settled = True
        delivery.payload += payload
        if frames.field(fields, 9):
            self.current = None
            self.settled_since += 1
            self.after_delivery()
        elif not frames.field(fields, 5):
            self.current = None
            self.complete(delivery)
            self.after_delivery()

    def after_delivery(self) -> None:
        """Grant credit again if the pattern does so now."""
        if self.spec.credit[0] in ("burst", "drain") and not self.round.calm:
            self.round.loop.after(self.rng.choice((0.0, 0.001, 0.02)), self.grant)
        else:
            self.grant()

    def complete(self, delivery: PartialDelivery) -> None:
        """Identify a complete delivery, check it, and choose its outcome."""
        message, wrong = self.round.ledger.identify(delivery.payload)
        size = len(delivery.payload)
        delivery.payload = bytearray()
        if message is None:
            self.round.fault(f"{self}: delivery of {size} octets: {wrong}")
            return
        delivery.message = message
        self.round.arrived(message, self)
        if delivery.settled:
            self.settled_since += 1
            if not message.settled and message.link.up:  # otherwise no outcome is expected
                self.round.fault(f"{self}: {message} came settled")
            self.grant()
            return
        if message.settled:
            self.round.fault(f"{self}: {message} came unsettled")
        self.unsettled[delivery.number] = delivery
        self.session.received[delivery.number] = delivery
        odd = self.rng.random() < self.spec.odd
        delivery.outcome = self.rng.choice(("released", "rejected", "modified")) if odd else "accepted"
        self.consider(delivery)

    def consider(self, delivery: PartialDelivery) -> None:
        """Settle a delivery now, later, or together with others."""
        how, seconds, number = self.spec.settle
        calm = self.round.calm
        if how == "never" or (how == "hold" and not calm):
            if how == "hold":
                self.waiting.append(delivery)
            return
        if how == "late" and not calm:
            self.round.loop.after(seconds, lambda: self.settle([delivery]))
        elif how == "batch":
            self.waiting.append(delivery)
            if len(self.waiting) >= number:
                self.settle_waiting()
            elif not self.flush:
                self.flush = True
                self.round.loop.after(BATCH_WAIT if calm else max(seconds, BATCH_WAIT), self.settle_waiting)
        elif how == "two":
            self.session.dispose(True, delivery.number, delivery.number, False, frames.STATES[delivery.outcome])
            if delivery.message is not None:
                delivery.message.reported.append(delivery.outcome)
            self.round.loop.after(seconds if not calm else 0.01, lambda: self.settle([delivery], again=True))
        else:
            self.settle([delivery])

    def settle_waiting(self) -> None:
        """Settle waiting deliveries; adjacent ones with equal outcomes share a frame."""
        self.flush = False
        waiting, self.waiting = self.waiting, []
        self.settle(waiting)

    def settle(self, deliveries: list[PartialDelivery], again: bool = False) -> None:
        """Send the outcomes of deliveries."""
        if self.ended or self.leaving or not self.session.usable:
            return
        run: list[PartialDelivery] = []
        for delivery in deliveries:
            if self.unsettled.pop(delivery.number, None) is None:
                continue
            self.session.received.pop(delivery.number, None)
            self.settled_since += 1
            if delivery.message is not None and not again:
                delivery.message.reported.append(delivery.outcome)
            if run and (delivery.number != run[-1].number + 1 or delivery.outcome != run[-1].outcome):
                self.send_disposition(run)
                run = []
            run.append(delivery)
        if run:
            self.send_disposition(run)
        self.grant()

    def send_disposition(self, run: list[PartialDelivery]) -> None:
        """Send one disposition for consecutive deliveries with equal outcomes."""
        self.session.dispose(True, run[0].number, run[-1].number, True, frames.STATES[run[0].outcome])

    def on_settled(self, number: int) -> None:
        """Handle a settlement by the sender that precedes ours."""
        delivery = self.unsettled.pop(number, None)
        self.session.received.pop(number, None)
        if delivery is not None:
            self.settled_since += 1
            self.grant()

    def calm_down(self) -> None:
        """Act without delay from now on."""
        self.grant()
        if self.spec.settle[0] in ("hold", "batch"):
            self.settle_waiting()

    def lost(self) -> None:
        for delivery in self.unsettled.values():
            self.session.received.pop(delivery.number, None)
            if delivery.message is not None:
                delivery.message.lost_with = True
        self.current = None
        if self.leaving or self.role.address.kind not in ("in", "out"):
            self.round.disturbed(self.role.address)
