"""Traffic that notices: many proton connections of one event loop, sending and receiving without a pause.

Every pair is a sender and a receiver of an address of its own, on connections of their own; every other pair sends
pre-settled. Each sender keeps WINDOW messages under way, so that the rate is the router's and nothing piles up.
"""

from __future__ import annotations

import threading
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, AtLeastOnce, AtMostOnce, Container, EventInjector

#: Messages of one sender under way: sent and not yet at the receiver.
WINDOW = 5
#: Seconds that the last messages may take.
FINISH = 30.0


class LoadPair:
    """One sender and its receiver; `sent`, `got` (numbers in order), `ended` (settlements of unsettled messages)."""

    def __init__(self, number: int) -> None:
        self.address = f"load/{number}"
        self.settled = number % 2 == 0
        self.sender: Any = None
        self.sent = 0
        self.received: list[int] = []
        self.outcomes = 0
        self.refused = 0

    @property
    def done(self) -> bool:
        """Whether all that was sent has arrived and ended."""
        return len(self.received) >= self.sent and (self.settled or self.outcomes >= self.sent)


class ProtonLoad(MessagingHandler):
    """Start with `start`, end with `finish`, which gives what went wrong."""

    def __init__(self, port: int, pairs: int) -> None:
        super().__init__(prefetch=2 * WINDOW, auto_accept=True)
        self.url = f"127.0.0.1:{port}"
        self.pairs = [LoadPair(number) for number in range(pairs)]
        self.faults: list[str] = []
        self.attached = 0
        self.running = threading.Event()
        self.stopping = False
        self.stopped = False
        self.events = EventInjector()
        self.container = Container(self)
        self.thread = threading.Thread(target=self.container.run, daemon=True)

    def start(self) -> None:
        """Connect everybody; returns when messages flow on every pair."""
        self.thread.start()
        assert self.running.wait(FINISH), f"only {self.attached} links attached: {self.faults}"

    def finish(self) -> list[str]:
        """Let what is under way arrive, close; gives faults: closed connections, lost, doubled, disordered messages."""
        self.events.trigger(ApplicationEvent("stop"))
        self.thread.join(FINISH)
        if self.thread.is_alive():
            self.faults.append("messages are still under way")
        for pair in self.pairs:
            if pair.received != list(range(pair.sent)):
                self.faults.append(f"{pair.address}: sent {pair.sent}, got {len(pair.received)}: {pair.received[-20:]}")
            if not pair.settled and pair.outcomes != pair.sent:
                self.faults.append(f"{pair.address}: {pair.sent - pair.outcomes} without outcome")
            if pair.refused:
                self.faults.append(f"{pair.address}: {pair.refused} not accepted")
        return self.faults

    @property
    def delivered(self) -> int:
        """Messages that have arrived so far."""
        return sum(len(pair.received) for pair in self.pairs)

    # --- events ---------------------------------------------------------------------------------------------------

    def on_start(self, event: Any) -> None:
        """Connect and attach."""
        event.container.selectable(self.events)
        for pair in self.pairs:
            options = {"sasl_enabled": False, "reconnect": False, "heartbeat": 5}
            incoming = event.container.connect(self.url, **options)
            event.container.create_receiver(incoming, pair.address).pair = pair
            outgoing = event.container.connect(self.url, **options)
            mode = AtMostOnce() if pair.settled else AtLeastOnce()
            pair.sender = event.container.create_sender(outgoing, pair.address, options=mode)
            pair.sender.pair = pair

    def on_link_opened(self, event: Any) -> None:
        """Everybody is there: go."""
        self.attached += 1
        if self.attached == 2 * len(self.pairs):
            self.running.set()

    def on_sendable(self, event: Any) -> None:
        """Fill the window."""
        self._send(event.link.pair)

    def on_message(self, event: Any) -> None:
        """Note, and let the sender go on."""
        pair = event.link.pair
        pair.received.append(event.message.body)
        self._send(pair)
        self._end_if_done(event)

    def on_settled(self, event: Any) -> None:
        """An outcome of an unsettled message."""
        if event.link.is_sender:
            pair = event.link.pair
            pair.outcomes += 1
            pair.refused += event.delivery.remote_state != event.delivery.ACCEPTED
            self._end_if_done(event)

    def _send(self, pair: LoadPair) -> None:
        while not self.stopping and pair.sender.credit and pair.sent - len(pair.received) < WINDOW:
            pair.sender.send(Message(body=pair.sent))
            pair.sent += 1

    def on_stop(self, event: Any) -> None:
        """Send no more."""
        self.stopping = True
        self._end_if_done(event)

    def _end_if_done(self, event: Any) -> None:
        if self.stopping and not self.stopped and all(pair.done for pair in self.pairs):
            self.stopped = True
            self.events.close()
            event.container.stop()

    def _fault(self, what: str, event: Any) -> None:
        condition = event.transport and event.transport.condition
        self.faults.append(f"{what}: {condition}")

    def on_transport_error(self, event: Any) -> None:
        """A connection broke."""
        self._fault("transport error", event)

    def on_connection_closing(self, event: Any) -> None:
        """The router closed a connection."""
        self._fault(f"connection closed: {event.connection.remote_condition}", event)

    def on_link_closing(self, event: Any) -> None:
        """The router detached a link."""
        self._fault(f"link detached: {event.link.remote_condition}", event)
