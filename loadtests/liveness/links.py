"""The links of the parties: producers and consumers, each a state machine on the frames of its link."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from loadtests.liveness import frames
from loadtests.liveness.draw import ConsumerSpec, ProducerSpec
from loadtests.liveness.ledger import Message, encoded
from tests.peer.frames import source, target
from tests.peer.types import Described

if TYPE_CHECKING:
    from loadtests.liveness.party import Session
    from loadtests.liveness.world import World

#: Seconds after which what was to be settled together is settled, however little it is.
BATCH_WAIT = 0.03
#: Seconds until a link that was refused or detached is attached again.
AGAIN = 0.04
ACCEPT = frames.STATES["accepted"]


class Role:
    """What a drawn link does, over all attaches of it."""

    def __init__(self, world: World, spec: ProducerSpec | ConsumerSpec) -> None:
        self.world = world
        self.spec = spec
        self.address = spec.address
        self.rng = random.Random(f"{world.scenario.seed}:{spec.uid}")
        self.link: Link | None = None
        self.session: Session | None = None
        self.attaches = 0
        #: it is a client of a neighbour, without a link of ours
        self.behind = False
        #: it has left for good
        self.gone = False
        #: how long it stays away when it has left
        self.away = 0.0
        #: a party that is not expected to be served
        self.grudge = spec.address.grudge

    @property
    def name(self) -> str:
        """In the history."""
        return f"{'producer' if isinstance(self, Producer) else 'consumer'} {self.spec.uid}"

    def attach(self, session: Session) -> None:
        """Attach by our own will."""
        self.session = session
        if self.gone or self.link is not None or not session.usable:
            return
        self.attaches += 1
        self.link = self.make(session)
        self.link.attach()

    def answer(self, session: Session, fields: list[Any]) -> Link:
        """The router has attached: this end of it."""
        self.session = session
        self.attaches += 1
        self.link = self.make(session)
        return self.link

    def make(self, session: Session) -> Link:
        """A link for this."""
        raise NotImplementedError

    def ended(self, link: Link, by_us: bool) -> None:
        """The link, or what it was on, is gone."""
        if self.link is not link:
            return
        self.link = None
        session = self.session
        if session is not None and not session.connection.spec.broker:
            self.world.loop.after(max(AGAIN, self.away) if by_us else AGAIN, lambda: self.again(session))

    def again(self, session: Session) -> None:
        """Attach again where it was, if that is still there."""
        current = session.connection.current(session.spec)
        if current is not None:
            self.attach(current)


class Producer(Role):
    """Sends what is in its list; goes on where it was when it is attached again."""

    spec: ProducerSpec
    link: OutLink | None

    def __init__(self, world: World, spec: ProducerSpec) -> None:
        super().__init__(world, spec)
        self.next = 0

    def make(self, session: Session) -> OutLink:
        return OutLink(self, session)

    @property
    def left(self) -> int:
        """Messages that have not been begun."""
        return 1 << 30 if self.spec.endless and not self.world.ending else len(self.spec.messages) - self.next


class Consumer(Role):
    """Receives."""

    spec: ConsumerSpec
    link: InLink | None

    def make(self, session: Session) -> InLink:
        return InLink(self, session)


class Link:
    """One attach of a role."""

    def __init__(self, role: Role, session: Session) -> None:
        self.role = role
        self.world = role.world
        self.session = session
        self.rng = role.rng
        self.name = f"{role.spec.uid}.{role.attaches}.{role.address.text}"
        self.handle = session.take_handle()
        self.remote_handle: int | None = None
        self.up = False
        #: our detach is on its way
        self.leaving = False
        #: it ended in order: what it sent settled before is not lost
        self.clean = False
        self.ended = False
        self.count = 0
        session.links[self.handle] = self

    def __str__(self) -> str:
        return f"{self.role.name} (attach {self.role.attaches}) of {self.role.address} at {self.session}"

    def attach(self) -> None:
        """Write our attach."""
        sending = isinstance(self, OutLink)
        spec = self.role.spec
        anonymous = isinstance(spec, ProducerSpec) and spec.anonymous
        address = None if anonymous else spec.address.text
        self.session.write(
            "attach",
            name=self.name,
            handle=self.handle,
            role=not sending,
            source=source(None if sending else address),
            target=target(address if sending else None),
            initial_delivery_count=self.count if sending else None,
        )

    def on_attach(self, fields: list[Any]) -> None:
        """The router's answer."""
        self.remote_handle = int(fields[1])
        mine = frames.field(fields, 6 if isinstance(self, OutLink) else 5)
        if mine is None or (isinstance(mine, Described) and mine.value == [] and not self.role.spec.address.text):
            return  # refused: its detach follows
        self.up = True
        self.world.progress(self.role)
        self.opened()

    def opened(self) -> None:
        """It is attached."""

    def detach(self, closed: bool) -> None:
        """Leave."""
        if self.leaving or self.ended:
            return
        self.leaving = self.clean = True
        self.session.write("detach", handle=self.handle, closed=closed)
        self.lost()

    def on_detach(self, fields: list[Any]) -> None:
        """The router's detach, or its answer."""
        ours = self.leaving
        if not ours:
            self.world.detached(self, frames.field(fields, 2))
            self.session.write("detach", handle=self.handle, closed=bool(frames.field(fields, 1)))
            self.lost()
        self.end(ours)

    def end(self, by_us: bool) -> None:
        """Nothing is left of it."""
        if self.ended:
            return
        self.ended = True
        self.up = False
        if self.session.links.get(self.handle) is self:
            del self.session.links[self.handle]
        if self.remote_handle is not None:
            self.session.by_remote.pop(self.remote_handle, None)
        self.role.ended(self, by_us)

    def lost(self) -> None:
        """What was under way has no outcome any more."""


class OutLink(Link):
    """A link that sends."""

    role: Producer

    def __init__(self, role: Producer, session: Session) -> None:
        super().__init__(role, session)
        self.count = self.rng.choice((0, 0, 0, 5, (1 << 32) - 2))
        self.credit = 0
        self.limit: int | None = None
        self.drain = False
        self.current: Message | None = None
        self.octets = memoryview(b"")
        self.at = 0
        self.begun = False
        self.number = 0
        self.waits = False
        self.unsettled: dict[int, Message] = {}

    @property
    def spec(self) -> ProducerSpec:
        """Its drawing."""
        return self.role.spec

    def opened(self) -> None:
        if self.role.spec.delay and not self.world.calm:
            self.pause(self.role.spec.delay)
        self.session.connection.wants()

    def pause(self, seconds: float) -> None:
        """Send nothing for a while."""
        self.waits = True

        def go() -> None:
            self.waits = False
            self.session.connection.wants()

        if seconds < 1e6:
            self.world.loop.after(seconds, go)

    @property
    def ready(self) -> bool:
        """Whether a frame may be written, if the session's window is open."""
        if not self.up or self.leaving or self.waits:
            return False
        if self.spec.anonymous and not self.world.begun:
            return False  # it has credit before there is anybody to get its messages
        return self.current is not None or (self.credit > 0 and self.role.left > 0)

    def on_flow(self, fields: list[Any]) -> None:
        """Credit."""
        count, credit = frames.field(fields, 5), frames.field(fields, 6) or 0
        known = int(count) if count is not None else self.count
        self.limit = (known + int(credit)) % frames.MODULUS
        # Credit is 32 bits without a sign: what was sent since is taken off.
        self.credit = max(0, int(credit) - frames.serial(self.count - known))
        self.drain = bool(frames.field(fields, 8))
        self.world.progress(self.role)
        if self.drain and (self.spec.drain == "give" or not self.role.left) and self.current is None:
            self.give_back()
        elif self.credit and self.role.left:
            self.session.connection.wants()
        if frames.field(fields, 9):
            self.tell()

    def give_back(self) -> None:
        """The answer to a drain."""
        self.count = (self.count + self.credit) % frames.MODULUS
        self.credit = 0
        self.drain = False
        self.tell(True)

    def tell(self, drain: bool = False) -> None:
        """A flow with our state."""
        self.session.flow((self.handle, self.count, self.credit, drain, False))

    # --- sending ------------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """One transfer."""
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
            self.pause(0.0 if self.world.calm and spec.pause < 1e6 else spec.pause)
        if not more:
            message.sent = True
            self.finish()

    def piece(self, left: int) -> int:
        """Octets of the next transfer."""
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
        """Take the next message."""
        role = self.role
        spec = self.spec.messages[min(role.next, len(self.spec.messages) - 1)]
        number, role.next = role.next, role.next + 1
        self.current = Message(self.spec.uid, number, spec.size, spec.settled, role.address, self)
        self.world.ledger.messages[self.spec.uid, number] = self.current
        to = role.address.text if self.spec.anonymous else None
        self.octets, self.at, self.begun = memoryview(encoded(self.spec.uid, number, spec.size, to)), 0, False
        self.number = self.session.take_delivery()
        self.count = (self.count + 1) % frames.MODULUS
        self.credit -= 1
        if not spec.settled:
            self.unsettled[self.number] = self.current
            self.session.sent[self.number] = self

    def finish(self) -> None:
        """The message has been written."""
        self.current = None
        if self.spec.pace and not self.world.calm:
            self.pause(self.spec.pace)
        if self.drain and (self.spec.drain == "give" or not self.role.left):
            self.give_back()

    def on_outcome(self, number: int, state: str | None, settled: bool) -> None:
        """What the router says of a delivery."""
        message = self.unsettled.get(number)
        if message is None:
            return
        self.world.progress(self.role)
        if state is not None and state != "received":
            message.outcome = state
        if not settled and message.outcome is not None:
            # It is for us to settle now.
            self.session.dispose(False, number, number, True, frames.STATES.get(message.outcome))
            settled = True
        if settled:
            message.done = True
            del self.unsettled[number]
            self.session.sent.pop(number, None)

    def lost(self) -> None:
        for number in self.unsettled:
            self.session.sent.pop(number, None)
        self.current = None


class Delivery:
    """What an InLink has received of a delivery, and not settled."""

    __slots__ = ("link", "message", "number", "outcome", "payload", "settled")

    def __init__(self, link: InLink, number: int, settled: bool) -> None:
        self.link = link
        self.number = number
        self.settled = settled
        self.payload = bytearray()
        self.message: Message | None = None
        self.outcome = ""


class InLink(Link):
    """A link that receives."""

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
        """Its drawing."""
        return self.role.spec

    @property
    def credit(self) -> int:
        """What the router may still send."""
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
        """Give credit as the pattern says."""
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
        """Say how much it is."""
        credit = min(credit, (1 << 32) - 1)
        self.limit = self.count + credit
        self.session.flow((self.handle, self.count % frames.MODULUS, credit, drain, False))

    def ask_drain(self) -> None:
        """Have what is left of the credit given back."""
        if self.up and not self.leaving and self.credit > 0 and not self.world.calm:
            self.draining = True
            self.set(self.credit, True)

    def on_flow(self, fields: list[Any]) -> None:
        """The sender's state: after a drain, its count has gone on."""
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
        """A frame of a delivery."""
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
        """Grant again, if the pattern does so now."""
        if self.spec.credit[0] in ("burst", "drain") and not self.world.calm:
            self.world.loop.after(self.rng.choice((0.0, 0.001, 0.02)), self.grant)
        else:
            self.grant()

    def complete(self, delivery: Delivery) -> None:
        """All of a delivery is here."""
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
            if not message.settled and message.link.up:  # else there is nobody any more who waits for its outcome
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
        """Settle it now, later, or together with others."""
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
                delivery.message.said.append(delivery.outcome)
            self.world.loop.after(seconds if not calm else 0.01, lambda: self.settle([delivery], again=True))
        else:
            self.settle([delivery])

    def settle_waiting(self) -> None:
        """Settle what waits, neighbours with the same outcome in one frame."""
        self.flush = False
        waiting, self.waiting = self.waiting, []
        self.settle(waiting)

    def settle(self, deliveries: list[Delivery], again: bool = False) -> None:
        """Say what becomes of deliveries."""
        if self.ended or self.leaving or not self.session.usable:
            return
        run: list[Delivery] = []
        for delivery in deliveries:
            if self.unsettled.pop(delivery.number, None) is None:
                continue
            self.session.received.pop(delivery.number, None)
            self.settled_since += 1
            if delivery.message is not None and not again:
                delivery.message.said.append(delivery.outcome)
            if run and (delivery.number != run[-1].number + 1 or delivery.outcome != run[-1].outcome):
                self.say(run)
                run = []
            run.append(delivery)
        if run:
            self.say(run)
        self.grant()

    def say(self, run: list[Delivery]) -> None:
        """One disposition."""
        self.session.dispose(True, run[0].number, run[-1].number, True, frames.STATES[run[0].outcome])

    def on_settled(self, number: int) -> None:
        """The sender has settled first."""
        delivery = self.unsettled.pop(number, None)
        self.session.received.pop(number, None)
        if delivery is not None:
            self.settled_since += 1
            self.grant()

    def calm_down(self) -> None:
        """From now on, do what is to be done without delay."""
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
