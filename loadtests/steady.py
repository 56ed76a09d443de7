"""Clients that send and receive until told to stop and know what became of every message: Qpid Proton, in one thread.

A sender sends a message again that was not accepted, so that each number is accepted sooner or later; a receiver keeps
the numbers that came. A client of a routed link attaches again when its link is lost; one of an address must not lose
link or connection at all.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from proton import Delivery, Endpoint, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

WINDOW = 20  # messages of a sender that are under way
TICK = 0.05  # seconds between looks at what may be sent (again)
ATTACH_AGAIN = 0.3  # seconds
CREDIT = 50
OUTCOMES: dict[int, str] = {
    Delivery.ACCEPTED: "accepted",
    Delivery.REJECTED: "rejected",
    Delivery.RELEASED: "released",
    Delivery.MODIFIED: "modified",
}


class End(MessagingHandler):
    """One link on a connection of its own. `noticed`: what a client of an address was not to see; None: nothing."""

    def __init__(self, clients: Clients, address: str, routed: bool, **options: Any) -> None:
        super().__init__(**options)
        self.clients = clients
        self.address = address
        self.routed = routed
        self.noticed: str | None = None
        self.lost = 0  # links
        self.attach_at = 0.0
        self.link: Any = None
        self.connection: Any = None

    def connect(self, container: Any) -> None:
        """Open connection and link."""
        self.connection = container.connect(
            self.clients.url, reconnect=False, allowed_mechs="ANONYMOUS", handler=self, heartbeat=0
        )
        self.attach(container)

    def attach(self, container: Any) -> None:
        """Open the link."""
        raise NotImplementedError

    def tick(self, container: Any, now: float) -> None:
        """Do what is due."""
        if self.attach_at and now >= self.attach_at:
            self.attach_at = 0.0
            self.attach(container)

    def name(self) -> str:
        """Of the link: none twice."""
        return f"{self.address}-{id(self)}-{self.lost}"

    def on_link_error(self, event: Any) -> None:
        """The link is lost: attach again, where a client has to."""
        if event.link.name != self.link.name:
            return
        if not self.routed:
            self.noticed = f"link of {self.address}: {event.link.remote_condition}"
        self.lost += 1
        self.attach_at = time.monotonic() + ATTACH_AGAIN

    def on_link_closing(self, event: Any) -> None:
        """The same without an error."""
        self.on_link_error(event)

    def on_transport_error(self, event: Any) -> None:
        """No client may lose its connection to the router."""
        self.noticed = f"connection of {self.address}: {event.transport.condition}"


class Sender(End):
    """Sends `INDEX 0`, `INDEX 1`, ... durable, a window at a time."""

    def __init__(self, clients: Clients, index: int, address: str, routed: bool) -> None:
        super().__init__(clients, address, routed, auto_settle=False)
        self.index = index
        self.next = 0
        self.attempts = 0
        self.again: deque[int] = deque()
        self.numbers: dict[str, int] = {}  # of messages under way, by delivery tag
        self.accepted: set[int] = set()
        self.outcomes: Counter[str] = Counter()
        self.longest = 0.0  # seconds without an accepted message
        self.accepted_at = 0.0

    @property
    def idle(self) -> bool:
        """Whether everything that was sent is accepted."""
        return not self.numbers and not self.again

    def attach(self, container: Any) -> None:
        """Open the link."""
        self.link = container.create_sender(self.connection, self.address, name=self.name(), handler=self)

    def tick(self, container: Any, now: float) -> None:
        """Attach or send."""
        super().tick(container, now)
        self.pump()

    def pump(self) -> None:
        """Send what may be sent."""
        if self.link.state & Endpoint.REMOTE_CLOSED:
            return
        while self.link.credit > 0 and len(self.numbers) < WINDOW:
            if self.again:
                number = self.again.popleft()
            elif self.clients.stopping:
                return
            else:
                number, self.next = self.next, self.next + 1
            self.attempts += 1
            tag = str(self.attempts)
            self.numbers[tag] = number
            self.link.send(Message(body=f"{self.index} {number}", durable=True), tag=tag)

    def on_sendable(self, event: Any) -> None:
        """Credit."""
        if event.link.name == self.link.name:
            self.pump()

    def on_delivery(self, event: Any) -> None:
        """What became of a message."""
        delivery = event.delivery
        if not event.sender or not delivery.updated or delivery.remote_state not in OUTCOMES:
            return
        outcome = OUTCOMES[delivery.remote_state]
        number = self.numbers.pop(str(delivery.tag), None)
        delivery.settle()
        if number is None:  # of a link that was lost
            return
        self.outcomes[outcome] += 1
        if outcome != "accepted":
            self.again.append(number)  # with the next tick
            return
        now = time.monotonic()
        self.longest = max(self.longest, now - (self.accepted_at or now))
        self.accepted_at = now
        self.accepted.add(number)
        self.pump()

    def on_link_error(self, event: Any) -> None:
        """Nobody knows what became of the messages that were under way."""
        super().on_link_error(event)
        if event.link.name == self.link.name:
            self.again.extend(self.numbers.values())
            self.numbers.clear()


class Receiver(End):
    """Accepts everything."""

    def __init__(self, clients: Clients, address: str, routed: bool) -> None:
        super().__init__(clients, address, routed, prefetch=CREDIT)
        self.came = 0

    def attach(self, container: Any) -> None:
        """Open the link."""
        self.link = container.create_receiver(self.connection, self.address, name=self.name(), handler=self)

    def on_message(self, event: Any) -> None:
        """Keep the number."""
        self.came += 1
        index, number = map(int, event.message.body.split())  # RabbitMQ 3.10 breaks on lists
        self.clients.seen.setdefault(index, set()).add(number)


class Clients(MessagingHandler):
    """Senders and receivers of addresses, in a thread; started on entry."""

    def __init__(self, port: int, addresses: Sequence[str], routed: Sequence[str], each: int) -> None:
        """each: senders and receivers of an address. `routed`: addresses of link routes."""
        super().__init__()
        self.url = f"amqp://127.0.0.1:{port}"
        every = [(address, address in routed) for address in (*addresses, *routed) for _ in range(each)]
        self.senders = [Sender(self, index, address, way) for index, (address, way) in enumerate(every)]
        self.receivers = [Receiver(self, address, way) for address, way in every]
        self.seen: dict[int, set[int]] = {}  # numbers that came, by sender
        self.stopping = False  # senders begin nothing new
        self._leaving = False
        self._done = threading.Event()
        self._turn = threading.Lock()  # whether all is done is not found out while `go_on` says that it is not wanted
        self._thread = threading.Thread(target=lambda: Container(self).run(), daemon=True)

    def __enter__(self) -> Clients:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving = True
        self._thread.join()

    def on_start(self, event: Any) -> None:
        """Connect all."""
        for end in (*self.receivers, *self.senders):
            end.connect(event.container)
        event.container.schedule(TICK, self)

    def on_timer_task(self, event: Any) -> None:
        """Look after all."""
        now = time.monotonic()
        for end in (*self.receivers, *self.senders):
            end.tick(event.container, now)
        with self._turn:
            if self.stopping and not self.missing() and all(sender.idle for sender in self.senders):
                self._done.set()
        if self._leaving:
            event.container.stop()
        else:
            event.container.schedule(TICK, self)

    def missing(self) -> int:
        """How many accepted messages have not come."""
        return sum(len(sender.accepted - self.seen.get(sender.index, set())) for sender in self.senders)

    def finish(self, limit: float) -> bool:
        """Send nothing new; whether everything was accepted and came within `limit` seconds."""
        self.stopping = True
        return self._done.wait(limit)

    def go_on(self) -> None:
        """Send again, after `finish`."""
        with self._turn:
            self._done.clear()
            self.stopping = False

    def without_progress(self, limit: float) -> list[Sender]:
        """The senders of which nothing more is accepted within `limit` seconds; returns as soon as there are none."""
        before = [(sender, len(sender.accepted)) for sender in self.senders]
        until = time.monotonic() + limit
        while True:
            stuck = [sender for sender, count in before if len(sender.accepted) == count]
            if not stuck or time.monotonic() > until:
                return stuck
            time.sleep(TICK)

    @property
    def accepted(self) -> int:
        """Messages accepted, of all senders."""
        return sum(len(sender.accepted) for sender in self.senders)
