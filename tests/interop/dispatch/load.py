"""Continuous traffic over many proton connections of one event loop, which detects lost and disordered messages.

A pair is a sender and a receiver of an address of its own, each on its own connection; every second pair sends
presettled. Each sender keeps WINDOW messages in flight, so that the rate is the router's and no queue builds up.
"""

from __future__ import annotations

import threading
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, AtLeastOnce, AtMostOnce, Container, EventInjector

#: Messages of one sender in flight: sent, but not yet received.
WINDOW = 5
#: Time limit in seconds for attaching all links, and for receiving the last messages.
FINISH = 30.0


class LoadPair:
    """Sender and receiver of one address.

    `sent` counts messages, `received` has their numbers in order of arrival, `outcomes` counts settlements of unsettled
    messages, `refused` those with another outcome than accepted.
    """

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
        """True if all sent messages have arrived and are settled."""
        return len(self.received) >= self.sent and (self.settled or self.outcomes >= self.sent)


class ProtonLoad(MessagingHandler):
    """Load generator. `start` starts the traffic; `finish` stops it and returns the faults."""

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
        """Connect all clients; return when the links of every pair are attached."""
        self.thread.start()
        assert self.running.wait(FINISH), f"only {self.attached} links attached: {self.faults}"

    def finish(self) -> list[str]:
        """Wait for messages in flight, close, and return the faults.

        Faults are closed connections, detached links, and lost, duplicated, disordered or refused messages.
        """
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
        """Messages received so far."""
        return sum(len(pair.received) for pair in self.pairs)

    # --- events ---------------------------------------------------------------------------------------------------

    def on_start(self, event: Any) -> None:
        """Connect all clients and attach their links."""
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
        """Report that the traffic runs when all links are attached."""
        self.attached += 1
        if self.attached == 2 * len(self.pairs):
            self.running.set()

    def on_sendable(self, event: Any) -> None:
        """Fill the window of the sender."""
        self._send(event.link.pair)

    def on_message(self, event: Any) -> None:
        """Record the message and fill the window of its sender."""
        pair = event.link.pair
        pair.received.append(event.message.body)
        self._send(pair)
        self._end_if_done(event)

    def on_settled(self, event: Any) -> None:
        """Count the outcome of an unsettled message."""
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
        """Stop sending."""
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
        """Record a lost connection as a fault."""
        self._fault("transport error", event)

    def on_connection_closing(self, event: Any) -> None:
        """Record a connection closed by the router as a fault."""
        self._fault(f"connection closed: {event.connection.remote_condition}", event)

    def on_link_closing(self, event: Any) -> None:
        """Record a link detached by the router as a fault."""
        self._fault(f"link detached: {event.link.remote_condition}", event)
