"""Clients that send and receive until stopped, and know the outcome of every message: Qpid Proton, in one thread.

A sender repeats a message that was not accepted, so that each number is accepted sooner or later. A receiver records
the numbers that arrived. A client of a routed link attaches again when its link is lost; a client of an address must
lose neither its link nor its connection.
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

WINDOW = 20  # unsettled messages of a sender
TICK = 0.05  # seconds between checks for messages to send
ATTACH_AGAIN = 0.3  # seconds until a lost link is attached again
CREDIT = 50
OUTCOMES: dict[int, str] = {
    Delivery.ACCEPTED: "accepted",
    Delivery.REJECTED: "rejected",
    Delivery.RELEASED: "released",
    Delivery.MODIFIED: "modified",
}


class SteadyLink(MessagingHandler):
    """Link on a connection of its own.

    `noticed`: event that a client of an address must not see. None: no such event. `condition`: why the link was lost
    last, in AMQP's words; None if it never was, or without a reason.
    """

    def __init__(self, clients: Clients, address: str, routed: bool, **options: Any) -> None:
        super().__init__(**options)
        self.clients = clients
        self.address = address
        self.routed = routed
        self.noticed: str | None = None
        self.lost = 0  # number of lost links
        self.condition: Any = None
        self.attach_at = 0.0
        self.link: Any = None
        self.connection: Any = None

    def connect(self, container: Any) -> None:
        """Open the connection and the link."""
        self.connection = container.connect(
            self.clients.url, reconnect=False, allowed_mechs="ANONYMOUS", handler=self, heartbeat=0
        )
        self.attach(container)

    def attach(self, container: Any) -> None:
        """Open the link."""
        raise NotImplementedError

    def tick(self, container: Any, now: float) -> None:
        """Attach again if that is due."""
        if self.attach_at and now >= self.attach_at:
            self.attach_at = 0.0
            self.attach(container)

    def name(self) -> str:
        """Return the name of the next link. Each attach has another name."""
        return f"{self.address}-{id(self)}-{self.lost}"

    def describe(self) -> str:
        """Return the state of the link, for a report."""
        answered = "attached" if self.link.state & Endpoint.REMOTE_ACTIVE else "not attached"
        lost = f", lost {self.lost} times, last for {self.condition}" if self.lost else ""
        return f"{answered}, credit {self.link.credit}{lost}"

    def on_link_error(self, event: Any) -> None:
        """Handle the loss of the link: attach again if the link is routed, else record a fault."""
        if event.link.name != self.link.name:
            return
        if not self.routed:
            self.noticed = f"link of {self.address}: {event.link.remote_condition}"
        self.lost += 1
        self.condition = event.link.remote_condition
        self.attach_at = time.monotonic() + ATTACH_AGAIN

    def on_link_closing(self, event: Any) -> None:
        """Handle a detach without an error as the loss of the link."""
        self.on_link_error(event)

    def on_transport_error(self, event: Any) -> None:
        """Record a fault: no client may lose its connection to the router."""
        self.noticed = f"connection of {self.address}: {event.transport.condition}"


class RepeatingSender(SteadyLink):
    """Sender of durable messages `INDEX 0`, `INDEX 1`, ..., a window at a time."""

    def __init__(self, clients: Clients, index: int, address: str, routed: bool) -> None:
        super().__init__(clients, address, routed, auto_settle=False)
        self.index = index
        self.next = 0
        self.attempts = 0
        self.again: deque[int] = deque()
        self.numbers: dict[str, int] = {}  # numbers of unsettled messages, by delivery tag
        self.accepted: set[int] = set()
        self.outcomes: Counter[str] = Counter()
        self.longest = 0.0  # longest time in seconds without an accepted message
        self.accepted_at = 0.0

    @property
    def idle(self) -> bool:
        """True if everything that was sent is accepted."""
        return not self.numbers and not self.again

    def attach(self, container: Any) -> None:
        """Open the link."""
        self.link = container.create_sender(self.connection, self.address, name=self.name(), handler=self)

    def tick(self, container: Any, now: float) -> None:
        """Attach or send."""
        super().tick(container, now)
        self.pump()

    def pump(self) -> None:
        """Send as many messages as credit and window allow."""
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
        """Send, now that credit has arrived."""
        if event.link.name == self.link.name:
            self.pump()

    def on_delivery(self, event: Any) -> None:
        """Record the outcome of a message."""
        delivery = event.delivery
        if not event.sender or not delivery.updated or delivery.remote_state not in OUTCOMES:
            return
        outcome = OUTCOMES[delivery.remote_state]
        number = self.numbers.pop(str(delivery.tag), None)
        delivery.settle()
        if number is None:  # a message of a link that was lost
            return
        self.outcomes[outcome] += 1
        if outcome != "accepted":
            self.again.append(number)  # sent again at the next tick
            return
        now = time.monotonic()
        self.longest = max(self.longest, now - (self.accepted_at or now))
        self.accepted_at = now
        self.accepted.add(number)
        self.pump()

    def on_link_error(self, event: Any) -> None:
        """Queue all unsettled messages to be sent again, because their outcome is unknown."""
        super().on_link_error(event)
        if event.link.name == self.link.name:
            self.again.extend(self.numbers.values())
            self.numbers.clear()


class RecordingReceiver(SteadyLink):
    """Receiver that accepts every message."""

    def __init__(self, clients: Clients, address: str, routed: bool) -> None:
        super().__init__(clients, address, routed, prefetch=CREDIT)
        self.came = 0

    def attach(self, container: Any) -> None:
        """Open the link."""
        self.link = container.create_receiver(self.connection, self.address, name=self.name(), handler=self)

    def on_message(self, event: Any) -> None:
        """Record the number of the message."""
        self.came += 1
        index, number = map(int, event.message.body.split())  # RabbitMQ 3.10 breaks on lists
        self.clients.seen.setdefault(index, set()).add(number)


class Clients(MessagingHandler):
    """Senders and receivers of addresses, in a thread that starts on entry."""

    def __init__(self, port: int, addresses: Sequence[str], routed: Sequence[str], each: int) -> None:
        """Create the clients. each: senders and receivers of an address. `routed`: addresses of link routes."""
        super().__init__()
        self.url = f"amqp://127.0.0.1:{port}"
        every = [(address, address in routed) for address in (*addresses, *routed) for _ in range(each)]
        self.senders = [RepeatingSender(self, index, address, way) for index, (address, way) in enumerate(every)]
        self.receivers = [RecordingReceiver(self, address, way) for address, way in every]
        self.seen: dict[int, set[int]] = {}  # numbers that arrived, by sender
        self.stopping = False  # True: senders begin no new message
        self._leaving = False
        self._done = threading.Event()
        self._turn = threading.Lock()  # `go_on` must not run while completion is determined
        self._thread = threading.Thread(target=lambda: Container(self).run(), daemon=True)

    def __enter__(self) -> Clients:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving = True
        self._thread.join()

    def on_start(self, event: Any) -> None:
        """Connect all clients."""
        for end in (*self.receivers, *self.senders):
            end.connect(event.container)
        event.container.schedule(TICK, self)

    def on_timer_task(self, event: Any) -> None:
        """Run the ticks of all clients, and report completion."""
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
        """Return the number of accepted messages that have not arrived."""
        return sum(len(sender.accepted - self.seen.get(sender.index, set())) for sender in self.senders)

    def finish(self, limit: float) -> bool:
        """Stop sending new messages. Return True if all were accepted and arrived within `limit` seconds."""
        self.stopping = True
        return self._done.wait(limit)

    def go_on(self) -> None:
        """Send again, after `finish`."""
        with self._turn:
            self._done.clear()
            self.stopping = False

    def without_progress(self, limit: float) -> list[RepeatingSender]:
        """Return the senders without a newly accepted message within `limit` seconds, as soon as there are none."""
        before = [(sender, len(sender.accepted)) for sender in self.senders]
        until = time.monotonic() + limit
        while True:
            stuck = [sender for sender, count in before if len(sender.accepted) == count]
            if not stuck or time.monotonic() > until:
                return stuck
            time.sleep(TICK)

    @property
    def accepted(self) -> int:
        """Number of accepted messages, of all senders."""
        return sum(len(sender.accepted) for sender in self.senders)
