"""Receiving links: patterns of credit and of settlement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loadtests.liveness import frames
from loadtests.liveness.draw import ConsumerSpec
from loadtests.liveness.ledger import Message
from loadtests.liveness.links import Link, Role

if TYPE_CHECKING:
    from loadtests.liveness.party import Session

#: Seconds after which a batch is settled, however small it is.
BATCH_WAIT = 0.03


class Consumer(Role):
    """Role that receives."""

    spec: ConsumerSpec
    link: InLink | None

    def make(self, session: Session) -> InLink:
        return InLink(self, session)


class Delivery:
    """Delivery that an InLink has received, at least in part, and not settled."""

    __slots__ = ("link", "message", "number", "outcome", "payload", "settled")

    def __init__(self, link: InLink, number: int, settled: bool) -> None:
        self.link = link
        self.number = number
        self.settled = settled
        self.payload = bytearray()
        self.message: Message | None = None
        self.outcome = ""


class InLink(Link):
    """Receiving link."""

    role: Consumer

    def __init__(self, role: Consumer, session: Session) -> None:
        super().__init__(role, session)
        self.limit = 0
        self.count = 0
        self.draining = False
        self.current: Delivery | None = None
        self.waiting: list[Delivery] = []
        self.unsettled: dict[int, Delivery] = {}
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
        if self.spec.delay and not self.world.calm:
            self.world.loop.after(self.spec.delay, self.grant)
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
                if pattern == "drain" and not self.world.calm:
                    self.world.loop.after(self.rng.choice((0.001, 0.01, 0.05)), self.ask_drain)
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
        if self.up and not self.leaving and self.credit > 0 and not self.world.calm:
            self.draining = True
            self.set(self.credit, True)

    def on_flow(self, fields: list[Any]) -> None:
        """Take over the sender's state; after a drain its delivery-count has advanced."""
        count = frames.field(fields, 5)
        if count is not None:
            self.count += max(0, frames.serial(int(count) - self.count))
        if self.count > self.limit:
            self.world.fault(f"{self}: the router says that it has used credit {self.limit} up to {self.count}")
            self.limit = self.count
        if self.draining and self.credit == 0:
            self.draining = False
            self.world.progress(self.role)
            pause = 0.0 if self.world.calm else self.rng.choice((0.0, 0.0, 0.05))
            self.world.loop.after(pause, self.grant)
        if frames.field(fields, 9):
            self.session.flow((self.handle, self.count % frames.MODULUS, self.credit, self.draining, False))

    # --- deliveries ---------------------------------------------------------------------------------------------------

    def on_transfer(self, fields: list[Any], payload: memoryview) -> None:
        """Handle a frame of a delivery."""
        if self.leaving:
            return
        self.world.progress(self.role)
        delivery = self.current
        if delivery is None:
            delivery = self.current = Delivery(self, int(fields[1]), False)
            self.count += 1
            if self.count > self.limit:
                self.world.fault(f"{self}: a delivery without credit")
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
        if self.spec.credit[0] in ("burst", "drain") and not self.world.calm:
            self.world.loop.after(self.rng.choice((0.0, 0.001, 0.02)), self.grant)
        else:
            self.grant()

    def complete(self, delivery: Delivery) -> None:
        """Identify a complete delivery, check it, and choose its outcome."""
        message, wrong = self.world.ledger.identify(delivery.payload)
        size = len(delivery.payload)
        delivery.payload = bytearray()
        if message is None:
            self.world.fault(f"{self}: delivery of {size} octets: {wrong}")
            return
        delivery.message = message
        self.world.arrived(message, self)
        if delivery.settled:
            self.settled_since += 1
            if not message.settled and message.link.up:  # else its outcome is not expected any more
                self.world.fault(f"{self}: {message} came settled")
            self.grant()
            return
        if message.settled:
            self.world.fault(f"{self}: {message} came unsettled")
        self.unsettled[delivery.number] = delivery
        self.session.received[delivery.number] = delivery
        odd = self.rng.random() < self.spec.odd
        delivery.outcome = self.rng.choice(("released", "rejected", "modified")) if odd else "accepted"
        self.consider(delivery)

    def consider(self, delivery: Delivery) -> None:
        """Settle a delivery now, later, or together with others."""
        how, seconds, number = self.spec.settle
        calm = self.world.calm
        if how == "never" or (how == "hold" and not calm):
            if how == "hold":
                self.waiting.append(delivery)
            return
        if how == "late" and not calm:
            self.world.loop.after(seconds, lambda: self.settle([delivery]))
        elif how == "batch":
            self.waiting.append(delivery)
            if len(self.waiting) >= number:
                self.settle_waiting()
            elif not self.flush:
                self.flush = True
                self.world.loop.after(BATCH_WAIT if calm else max(seconds, BATCH_WAIT), self.settle_waiting)
        elif how == "two":
            self.session.dispose(True, delivery.number, delivery.number, False, frames.STATES[delivery.outcome])
            if delivery.message is not None:
                delivery.message.reported.append(delivery.outcome)
            self.world.loop.after(seconds if not calm else 0.01, lambda: self.settle([delivery], again=True))
        else:
            self.settle([delivery])

    def settle_waiting(self) -> None:
        """Settle waiting deliveries; adjacent ones with equal outcomes share a frame."""
        self.flush = False
        waiting, self.waiting = self.waiting, []
        self.settle(waiting)

    def settle(self, deliveries: list[Delivery], again: bool = False) -> None:
        """Send the outcomes of deliveries."""
        if self.ended or self.leaving or not self.session.usable:
            return
        run: list[Delivery] = []
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

    def send_disposition(self, run: list[Delivery]) -> None:
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
            self.world.disturbed(self.role.address)
