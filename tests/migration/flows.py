"""Clients that keep their messages through restarts of routers and record each outcome: Qpid Proton, one thread.

A sender sends a message again if it was not accepted, or if the outcome was lost with the connection.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from proton import Delivery, Message
from proton.handlers import MessagingHandler
from proton.reactor import Backoff, Container

from tests.system.router import poll

TICK = 0.02  # seconds between two checks for messages that may be sent
MOST_PER_TICK = 4  # maximum messages of a sender per tick
WINDOW = 20  # maximum unsettled messages of a sender
CREDIT = 50
PROGRESS_SECONDS = 60.0  # seconds until flows make progress after a router has restarted
USER, PASSWORD = "alice", "secret"


class MigrationFlow(NamedTuple):
    """Address with a sender at one router and a receiver at another, given by the ports of their listeners."""

    address: str
    into: int
    out: int


class _FlowClient(MessagingHandler):
    """Connection with one link that reconnects by itself."""

    def __init__(self, port: int, address: str, **options: Any) -> None:
        super().__init__(**options)
        self.port = port
        self.address = address
        self.link: Any = None

    def connect(self, container: Container) -> None:
        """Connect and attach the link."""
        connection = container.connect(
            f"amqp://127.0.0.1:{self.port}", user=USER, password=PASSWORD, allowed_mechs="PLAIN",
            allow_insecure_mechs=True, reconnect=Backoff(initial=0.1, max_delay=0.5), handler=self,
        )  # fmt: skip
        self.attach(container, connection)

    def attach(self, container: Container, connection: Any) -> None:
        """Attach the link."""
        raise NotImplementedError


class NumberSender(_FlowClient):
    """Sender of numbers. `to_resend` holds numbers to resend, `repeats` counts resent messages."""

    def __init__(self, port: int, address: str) -> None:
        super().__init__(port, address, auto_settle=False)
        self.next = self.attempts = self.repeats = 0
        self.to_resend: deque[int] = deque()
        self.unsettled: dict[str, int] = {}
        self.accepted: set[int] = set()
        self.outcomes: Counter[str] = Counter()

    def attach(self, container: Container, connection: Any) -> None:
        self.link = container.create_sender(connection, self.address, handler=self)

    def send_due(self, stopping: bool) -> None:
        """Send the messages that are due in a tick."""
        for _ in range(MOST_PER_TICK):
            if self.link.credit <= 0 or len(self.unsettled) >= WINDOW:
                return
            if self.to_resend:
                number = self.to_resend.popleft()
                self.repeats += 1
            elif stopping:
                return
            else:
                number, self.next = self.next, self.next + 1
            self.attempts += 1
            tag = str(self.attempts)
            self.unsettled[tag] = number
            self.link.send(Message(body=number), tag=tag)

    def on_delivery(self, event: Any) -> None:
        """Record the outcome of a message."""
        delivery = event.delivery
        if not delivery.updated or not delivery.remote_state:
            return
        number = self.unsettled.pop(str(delivery.tag), None)
        delivery.settle()
        if number is None:
            return
        self.outcomes[str(delivery.remote_state)] += 1
        if delivery.remote_state == Delivery.ACCEPTED:
            self.accepted.add(number)
        else:
            self.to_resend.append(number)

    def on_disconnected(self, event: Any) -> None:
        """Schedule all unsettled messages for resending, because their outcomes are unknown."""
        self.to_resend.extend(self.unsettled.values())
        self.unsettled.clear()


class NumberReceiver(_FlowClient):
    """Receiver that accepts and counts all messages."""

    def __init__(self, port: int, address: str) -> None:
        super().__init__(port, address, prefetch=CREDIT)
        self.received: Counter[int] = Counter()

    def attach(self, container: Container, connection: Any) -> None:
        self.link = container.create_receiver(connection, self.address, handler=self)

    def on_message(self, event: Any) -> None:
        """Count the message."""
        self.received[event.message.body] += 1


class FlowClients(MessagingHandler):
    """Clients of all flows, from entry to exit of the context."""

    def __init__(self, flows: Iterable[MigrationFlow]) -> None:
        super().__init__()
        self.pairs = [(NumberSender(flow.into, flow.address), NumberReceiver(flow.out, flow.address)) for flow in flows]
        self._stopping = self._leaving = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> FlowClients:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving = True
        self._thread.join(PROGRESS_SECONDS)

    def _run(self) -> None:
        try:
            Container(self).run()
        # Any exception is raised again by the thread that waits.
        except BaseException as error:  # noqa: BLE001
            self._error = error

    def on_start(self, event: Any) -> None:
        """Connect all clients."""
        for sender, receiver in self.pairs:
            receiver.connect(event.container)
            sender.connect(event.container)
        event.container.schedule(TICK, self)

    def on_timer_task(self, event: Any) -> None:
        """Send the messages that are due, or stop when leaving."""
        for sender, _ in self.pairs:
            sender.send_due(self._stopping)
        if self._leaving:
            event.container.stop()
        else:
            event.container.schedule(TICK, self)

    def wait_progress(self, count: int = 20) -> float:
        """Wait until `count` more messages of each sender are accepted; return the seconds that it took."""
        goals = [(sender, len(sender.accepted) + count) for sender, _ in self.pairs]
        began = time.monotonic()

        def progressed() -> bool:
            return self._error is not None or all(len(sender.accepted) >= goal for sender, goal in goals)

        try:
            poll(progressed, "all flows make progress", PROGRESS_SECONDS)
        except AssertionError:
            stuck = [sender.address for sender, goal in goals if len(sender.accepted) < goal]
            raise AssertionError(f"no more messages of {stuck} are accepted") from None
        assert self._error is None, self._error
        return time.monotonic() - began

    def finish(self) -> None:
        """Send no new message, and wait until all accepted messages are received; only resent messages may arrive
        twice."""
        self._stopping = True

        def done() -> bool:
            return self._error is not None or all(
                not sender.unsettled and not sender.to_resend and sender.accepted <= set(receiver.received)
                for sender, receiver in self.pairs
            )

        poll(done, "all accepted messages are received", PROGRESS_SECONDS)
        assert self._error is None, self._error
        for sender, receiver in self.pairs:
            twice = sum(count - 1 for count in receiver.received.values())
            assert twice <= sender.repeats, (
                f"{sender.address}: {twice} were received again, {sender.repeats} were resent"
            )
