"""Random, seeded traffic: connections, each with a thread, that send and receive until they are stopped.

A sender connection records messages and outcomes, a receiver connection what it got; `traffic_checks` compares them
afterwards. Nothing here fails because of what the router does, except for content that is not what was sent.
"""

from __future__ import annotations

import random
import threading
import time
import zlib
from dataclasses import dataclass, field

from tests.peer import frames, message
from tests.peer.peer import AmqpPeer, PeerDelivery, PeerReceiver, PeerSender

#: Seconds that a thread waits for frames before it looks whether there is something to do.
TICK = 0.005
#: Seconds between heartbeats; the router ends connections that are silent for 16.
HEARTBEAT = 4.0
#: Octets of the largest message, and how many of a hundred messages are of random size up to it (others: up to 2 kB).
LARGEST = 400_000
LARGE_IN_HUNDRED = 4
SMALL = 2000
#: Deliveries that a receiver settles with one disposition at most.
BATCH = 20
#: Credit granted at the end, when everything is to finish.
FINISH_CREDIT = 1000


@dataclass(frozen=True)
class Sent:
    """One message, for its sender. `link` names the sender link, unique in a run; `number` counts on it."""

    link: str
    number: int
    address: str
    settled: bool


@dataclass
class SendState:
    """What became of a message, as its sender saw it: the settled outcome, and whether there was one."""

    outcome: str | None = None
    settled: bool = False
    #: the link or connection went first, or the message was aborted
    orphaned: bool = False


@dataclass(frozen=True)
class Got:
    """One complete message at a receiver. `receiver` names the link."""

    link: str
    number: int
    receiver: str
    settled: bool


@dataclass
class Record:
    """What all connections of a run have written down. Each list and map has one writing thread per entry."""

    sent: dict[Sent, SendState] = field(default_factory=dict)
    got: list[Got] = field(default_factory=list)
    #: what receivers answered to unsettled messages: (link, number) -> names
    answered: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def content(link: str, number: int, size: int, to: str | None) -> bytes:
    """A message with the identity of its sender, and a checksum over its filling of `size` octets."""
    filling = random.Random(f"{link}/{number}").randbytes(min(size, SMALL)) * (size // SMALL + 1)
    filling = filling[:size]
    identity = f"{link}/{number}"
    head = message.properties(message_id=identity, to=to) if to else message.properties(message_id=identity)
    return head + message.data(zlib.crc32(filling).to_bytes(4, "big") + filling)


def read_content(payload: bytes) -> tuple[str, int]:
    """(link, number) of a message made by `content`. Raises ValueError when it is not as it was sent."""
    identity = str(message.section_of(payload, message.PROPERTIES)[0])
    body = message.body(payload)
    if zlib.crc32(body[4:]).to_bytes(4, "big") != body[:4]:
        raise ValueError(f"message {identity} of {len(payload)} octets has other content than was sent")
    link, number = identity.rsplit("/", 1)
    return link, int(number)


class Actor(threading.Thread):
    """A connection with a thread of its own. Subclasses define `step` and how it comes to rest."""

    def __init__(self, name: str, port: int, seed: int, record: Record) -> None:
        super().__init__(name=name, daemon=True)
        self.port = port
        self.random = random.Random(seed)
        self.record = record
        self.peer: AmqpPeer = AmqpPeer.opened(port)
        self.lives = 0
        #: set: send no more; receivers accept everything
        self.finishing = threading.Event()
        #: set: nothing is under way any more, close
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
        """What is to be done now."""
        raise NotImplementedError

    def reconnect(self) -> None:
        """Drop the connection, one way or another, and come back."""
        if self.random.random() < 0.3:
            self.peer.close()
        else:
            self.peer.drop(reset=self.random.random() < 0.5)
        self.lives += 1
        self.peer = AmqpPeer.opened(self.port)


class SenderActor(Actor):
    """Sends on several links. addresses: of the links; None is an anonymous link, which sends to any of `names`.

    calm: it never aborts, detaches or drops.
    """

    def __init__(
        self, name: str, port: int, seed: int, record: Record, addresses: list[str | None], names: list[str], calm: bool
    ) -> None:
        super().__init__(name, port, seed, record)
        self.addresses = addresses
        self.names = names
        self.calm = calm
        self.links: list[_Link] = []
        self._attach_all()

    def _attach_all(self) -> None:
        self.links = [_Link(self, number, address) for number, address in enumerate(self.addresses)]

    @property
    def waiting(self) -> int:
        """Unsettled messages without an outcome."""
        return sum(len(link.open) for link in self.links)

    def step(self) -> None:
        for link in self.links:
            link.note_outcomes()
        if self.finishing.is_set():
            return
        if not self.calm and self.random.random() < 0.004:
            for link in self.links:
                link.orphan()
            self.reconnect()
            self._attach_all()
            return
        for link in self.links:
            if link.sender.remote is None or link.sender.credit <= 0:
                continue
            for _ in range(min(link.sender.credit, self.random.randint(1, 10))):
                link.send_one()
            if not self.calm and self.random.random() < 0.01:
                link.again()


class _Link:
    """One sender link and what is open on it."""

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
        self.open: dict[int, Sent] = {}
        self.sender: PeerSender = self.actor.peer.sender(self.address, credit=False)

    def send_one(self) -> None:
        """One message of random size and mode; perhaps aborted."""
        choose = self.actor.random
        large = choose.random() * 100 < LARGE_IN_HUNDRED
        size = choose.randint(1, LARGEST if large else SMALL)
        address = self.address or choose.choice(self.actor.names)
        sent = Sent(self.identity, self.count, address, choose.random() < 0.5)
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
        """Write down the outcomes that have come."""
        outcomes = self.sender.session.outcomes
        for delivery in [one for one in self.open if one in outcomes and outcomes[one].settled]:
            sent = self.open.pop(delivery)
            outcome = outcomes.pop(delivery)
            state = self.actor.record.sent[sent]
            if state.settled:
                self.actor.record.faults.append(f"{sent} was settled twice")
            state.settled, state.outcome = True, outcome.name

    def orphan(self) -> None:
        """The link ends: outcomes of unsettled messages are lost."""
        for sent in self.open.values():
            self.actor.record.sent[sent].orphaned = True
        self.open = {}

    def again(self) -> None:
        """Detach and attach anew."""
        self.sender.detach()
        self.note_outcomes()
        self.orphan()
        self._attach()


class ReceiverActor(Actor):
    """Receives on several links. calm: it always grants credit, accepts everything and never detaches or drops."""

    def __init__(self, name: str, port: int, seed: int, record: Record, addresses: list[str], calm: bool) -> None:
        super().__init__(name, port, seed, record)
        self.addresses = addresses
        self.calm = calm
        self.links: list[_Inlet] = []
        self._attach_all()

    def _attach_all(self) -> None:
        self.links = [_Inlet(self, number, address) for number, address in enumerate(self.addresses)]

    def step(self) -> None:
        for link in self.links:
            link.take()
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
                link.again()


class _Inlet:
    """One receiver link."""

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

    def take(self) -> None:
        """Write down what has come complete; settle some of it."""
        deliveries = self.receiver.deliveries
        while deliveries and deliveries[0].complete:
            delivery = deliveries.pop(0)
            if delivery.aborted:
                continue
            link, number = read_content(delivery.payload)
            with self.actor.record.lock:
                self.actor.record.got.append(Got(link, number, self.identity, delivery.settled))
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
        """Credit, by chance 0 to 1000, by chance with drain; the calm ones keep it up."""
        choose = self.actor.random
        if self.draining and not self._drained():
            return
        if self.actor.calm or self.actor.finishing.is_set():
            if (self.limit - self.receiver.delivery_count) < FINISH_CREDIT // 2:
                self._flow(FINISH_CREDIT)
        elif choose.random() < 0.1:
            self._flow(choose.choice([0, 1, choose.randint(0, 20), choose.randint(0, 1000)]), choose.random() < 0.2)

    def _drained(self) -> bool:
        """The router has given back what it did not use; until then it owes an answer."""
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

    def again(self) -> None:
        """Detach and attach anew; what is held comes to its sender as modified."""
        self.receiver.detach()
        self._attach()
