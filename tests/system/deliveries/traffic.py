"""Random, seeded traffic: connections that send and receive until they are stopped, each with its own thread.

A sender connection records messages and outcomes, a receiver connection the messages it received; `traffic_checks`
compares them afterwards. The only fault reported here is content that differs from the content sent.
"""

from __future__ import annotations

import random
import threading
import time
import zlib
from dataclasses import dataclass, field

from tests.peer import frames, message
from tests.peer.links import PeerDelivery, PeerReceiver, PeerSender
from tests.peer.peer import AmqpPeer

#: Seconds that a thread waits for frames before it takes the next step.
TICK = 0.005
#: Seconds between heartbeats. The router closes connections that are silent for 16 s.
HEARTBEAT = 4.0
#: Maximum size of a message in octets; how many messages in a hundred may reach it; maximum size of all others.
LARGEST = 400_000
LARGE_IN_HUNDRED = 4
SMALL = 2000
#: Maximum number of deliveries that a receiver settles with one disposition.
BATCH = 20
#: Credit granted at the end, when all deliveries are to finish.
FINISH_CREDIT = 1000


@dataclass(frozen=True)
class SentMessage:
    """A message sent. `link` names the sender link, unique in a run; `number` counts messages of the link."""

    link: str
    number: int
    address: str
    settled: bool


@dataclass
class SendState:
    """Fate of a message as its sender sees it: the settled outcome, and whether there was one."""

    outcome: str | None = None
    settled: bool = False
    #: True if the link or connection ended first, or the message was aborted.
    orphaned: bool = False


@dataclass(frozen=True)
class ReceivedMessage:
    """A complete message at a receiver. `receiver` names the receiver link."""

    link: str
    number: int
    receiver: str
    settled: bool


@dataclass
class TrafficRecord:
    """Observations of all connections of a run. Only one thread writes each entry of a list or map."""

    sent: dict[SentMessage, SendState] = field(default_factory=dict)
    got: list[ReceivedMessage] = field(default_factory=list)
    #: Outcomes that receivers sent for unsettled messages: (link, number) -> names.
    answered: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def content(link: str, number: int, size: int, to: str | None) -> bytes:
    """Return a message with the identity of its sender, and a filling of `size` octets with its checksum."""
    filling = random.Random(f"{link}/{number}").randbytes(min(size, SMALL)) * (size // SMALL + 1)
    filling = filling[:size]
    identity = f"{link}/{number}"
    head = message.properties(message_id=identity, to=to) if to else message.properties(message_id=identity)
    return head + message.data(zlib.crc32(filling).to_bytes(4, "big") + filling)


def read_content(payload: bytes) -> tuple[str, int]:
    """Return (link, number) of a message made by `content`; raise ValueError if its content has changed."""
    identity = str(message.section_of(payload, message.PROPERTIES)[0])
    body = message.body(payload)
    if zlib.crc32(body[4:]).to_bytes(4, "big") != body[:4]:
        raise ValueError(f"message {identity} of {len(payload)} octets has other content than was sent")
    link, number = identity.rsplit("/", 1)
    return link, int(number)


class Actor(threading.Thread):
    """A connection with its own thread. Subclasses define `step`."""

    def __init__(self, name: str, port: int, seed: int, record: TrafficRecord) -> None:
        super().__init__(name=name, daemon=True)
        self.port = port
        self.random = random.Random(seed)
        self.record = record
        self.peer: AmqpPeer = AmqpPeer.opened(port)
        self.lives = 0
        #: Set at the end: senders stop, receivers accept all messages.
        self.finishing = threading.Event()
        #: Set when no delivery is in progress: the connection is closed.
        self.leaving = threading.Event()

    def run(self) -> None:
        try:
            beat = time.monotonic()
            while not self.leaving.is_set():
                self.peer.idle_until(time.monotonic() + TICK)
                if time.monotonic() > beat + HEARTBEAT:
                    beat = time.monotonic()
                    self.peer.heartbeat()
                self.step()
            self.peer.close()
        except BaseException as error:
            with self.record.lock:
                self.record.faults.append(f"{self.name}: {type(error).__name__}: {error}")
            raise

    def step(self) -> None:
        """Send or receive what is possible at the moment."""
        raise NotImplementedError

    def reconnect(self) -> None:
        """Close, drop or reset the connection, and open a new one."""
        if self.random.random() < 0.3:
            self.peer.close()
        else:
            self.peer.drop(reset=self.random.random() < 0.5)
        self.lives += 1
        self.peer = AmqpPeer.opened(self.port)


class SenderActor(Actor):
    """A connection that sends on several links.

    addresses: target of each link; None is an anonymous link, which sends to any of `names`.
    calm: never aborts, detaches or drops.
    """

    def __init__(
        self,
        name: str,
        port: int,
        seed: int,
        record: TrafficRecord,
        addresses: list[str | None],
        names: list[str],
        calm: bool,
    ) -> None:
        super().__init__(name, port, seed, record)
        self.addresses = addresses
        self.names = names
        self.calm = calm
        self.links: list[_SenderLink] = []
        self._attach_all()

    def _attach_all(self) -> None:
        self.links = [_SenderLink(self, number, address) for number, address in enumerate(self.addresses)]

    @property
    def waiting(self) -> int:
        """Number of unsettled messages without an outcome."""
        return sum(len(link.open) for link in self.links)

    def step(self) -> None:
        for link in self.links:
            link.note_outcomes()
        if self.finishing.is_set():
            return
        if not self.calm and self.random.random() < 0.004:
            for link in self.links:
                link.mark_orphaned()
            self.reconnect()
            self._attach_all()
            return
        for link in self.links:
            if link.sender.remote is None or link.sender.credit <= 0:
                continue
            for _ in range(min(link.sender.credit, self.random.randint(1, 10))):
                link.send_one()
            if not self.calm and self.random.random() < 0.01:
                link.reattach()


class _SenderLink:
    """A sender link and its unsettled messages."""

    def __init__(self, actor: SenderActor, number: int, address: str | None) -> None:
        self.actor = actor
        self.address = address
        self.number = number
        self.turns = 0
        self._attach()

    def _attach(self) -> None:
        self.turns += 1
        self.identity = f"{self.actor.name}.{self.actor.lives}.{self.number}.{self.turns}"
        self.count = 0
        self.open: dict[int, SentMessage] = {}
        self.sender: PeerSender = self.actor.peer.sender(self.address, credit=False)

    def send_one(self) -> None:
        """Send a message of random size and mode, or abort it."""
        choose = self.actor.random
        large = choose.random() * 100 < LARGE_IN_HUNDRED
        size = choose.randint(1, LARGEST if large else SMALL)
        address = self.address or choose.choice(self.actor.names)
        sent = SentMessage(self.identity, self.count, address, choose.random() < 0.5)
        payload = content(self.identity, self.count, size, None if self.address else address)
        state = SendState()
        with self.actor.record.lock:
            self.actor.record.sent[sent] = state
        self.count += 1
        if large and not self.actor.calm and choose.random() < 0.2:
            state.orphaned = True
            self.sender.send(payload[: choose.randint(1, len(payload) - 1)], settled=sent.settled, more=True)
            self.sender.send(b"", aborted=True)
            return
        delivery = self.sender.send(payload, settled=sent.settled)
        if not sent.settled:
            self.open[delivery] = sent

    def note_outcomes(self) -> None:
        """Record the outcomes received."""
        outcomes = self.sender.session.outcomes
        for delivery in [one for one in self.open if one in outcomes and outcomes[one].settled]:
            sent = self.open.pop(delivery)
            outcome = outcomes.pop(delivery)
            state = self.actor.record.sent[sent]
            if state.settled:
                self.actor.record.faults.append(f"{sent} was settled twice")
            state.settled, state.outcome = True, outcome.name

    def mark_orphaned(self) -> None:
        """Mark unsettled messages as orphaned: the link ends, so their outcomes are lost."""
        for sent in self.open.values():
            self.actor.record.sent[sent].orphaned = True
        self.open = {}

    def reattach(self) -> None:
        """Detach and attach again."""
        self.sender.detach()
        self.note_outcomes()
        self.mark_orphaned()
        self._attach()


class ReceiverActor(Actor):
    """A connection that receives on several links.

    calm: always grants credit, accepts all messages, and never detaches or drops.
    """

    def __init__(
        self, name: str, port: int, seed: int, record: TrafficRecord, addresses: list[str], calm: bool
    ) -> None:
        super().__init__(name, port, seed, record)
        self.addresses = addresses
        self.calm = calm
        self.links: list[_ReceiverLink] = []
        self._attach_all()

    def _attach_all(self) -> None:
        self.links = [_ReceiverLink(self, number, address) for number, address in enumerate(self.addresses)]

    def step(self) -> None:
        for link in self.links:
            link.record_deliveries()
        self.peer.frames.clear()
        self.peer.arrivals.clear()
        self.peer.inbox.clear()
        if not self.calm and not self.finishing.is_set() and self.random.random() < 0.004:
            self.reconnect()
            self._attach_all()
            return
        for link in self.links:
            link.grant()
            if not self.calm and not self.finishing.is_set() and self.random.random() < 0.002:
                link.reattach()


class _ReceiverLink:
    """A receiver link and its unsettled deliveries."""

    def __init__(self, actor: ReceiverActor, number: int, address: str) -> None:
        self.actor = actor
        self.address = address
        self.number = number
        self.turns = 0
        self._attach()

    def _attach(self) -> None:
        self.turns += 1
        self.identity = f"{self.actor.name}.{self.actor.lives}.{self.number}.{self.turns}"
        self.receiver: PeerReceiver = self.actor.peer.receiver(self.address)
        self.held: list[tuple[PeerDelivery, tuple[str, int]]] = []
        self.limit = 0
        self.draining = False

    def record_deliveries(self) -> None:
        """Record the deliveries that are complete, and settle some of them."""
        deliveries = self.receiver.deliveries
        while deliveries and deliveries[0].complete:
            delivery = deliveries.pop(0)
            if delivery.aborted:
                continue
            link, number = read_content(delivery.payload)
            with self.actor.record.lock:
                self.actor.record.got.append(ReceivedMessage(link, number, self.identity, delivery.settled))
            if not delivery.settled:
                self.held.append((delivery, (link, number)))
        while self.held and (self.actor.finishing.is_set() or self.actor.calm or self.actor.random.random() < 0.5):
            self._settle(self.held[: self.actor.random.randint(1, BATCH)])

    def _settle(self, some: list[tuple[PeerDelivery, tuple[str, int]]]) -> None:
        del self.held[: len(some)]
        choose = self.actor.random
        state, name = frames.ACCEPTED, "accepted"
        if not self.actor.calm and not self.actor.finishing.is_set() and choose.random() < 0.3:
            state, name = choose.choice(
                [(frames.RELEASED, "released"), (frames.REJECTED, "rejected"), (frames.modified(True), "modified")]
            )
        for delivery, identity in some:
            with self.actor.record.lock:
                self.actor.record.answered.setdefault(identity, []).append(name)
            delivery.settle(state)

    def grant(self) -> None:
        """Grant random credit (0 to 1000), sometimes with drain. Calm receivers keep their credit up."""
        choose = self.actor.random
        if self.draining and not self._drained():
            return
        if self.actor.calm or self.actor.finishing.is_set():
            if (self.limit - self.receiver.delivery_count) < FINISH_CREDIT // 2:
                self._flow(FINISH_CREDIT)
        elif choose.random() < 0.1:
            self._flow(choose.choice([0, 1, choose.randint(0, 20), choose.randint(0, 1000)]), choose.random() < 0.2)

    def _drained(self) -> bool:
        """Return whether the router has returned the unused credit of the drain. No credit is granted before."""
        given_back = [flow for flow in self.receiver.flows if flow.drain]
        if given_back:
            self.receiver.delivery_count = self.limit = given_back[-1].delivery_count
            self.receiver.flows.clear()
            self.draining = False
        return bool(given_back)

    def _flow(self, credit: int, drain: bool = False) -> None:
        self.receiver.flow(credit, drain)
        self.limit = self.receiver.delivery_count + credit
        self.draining = drain

    def reattach(self) -> None:
        """Detach and attach again. The router modifies the unsettled deliveries."""
        self.receiver.detach()
        self._attach()
