"""Broker that can be killed, and clients that send to it through a router, with Qpid Proton.

`python -m loadtests.broker PORT` accepts every link and message. It prints JSON lines: `{"accepted": S}` for an
accepted connection, and `{"from": NUMBER, "at": S}` for the first message of each sender, whose body is NUMBER. S:
seconds of the monotonic clock, which all processes share.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

from loadtests.processes import ROOT, MeasureError

INTERVAL = 0.02  # seconds between two messages of a sender


class BrokerHandler(MessagingHandler):
    """Event handler of the broker process."""

    def __init__(self, port: int) -> None:
        super().__init__(prefetch=1000)
        self.port = port
        self.known: set[int] = set()

    def on_start(self, event: Any) -> None:
        """Listen, and report it."""
        event.container.listen(f"127.0.0.1:{self.port}")
        print("{}", flush=True)

    def on_connection_bound(self, event: Any) -> None:
        """Report the accepted connection."""
        print(json.dumps({"accepted": time.monotonic()}), flush=True)

    def on_link_opening(self, event: Any) -> None:
        """Accept the termini that the peer proposes."""
        event.link.source.address = event.link.remote_source.address
        event.link.target.address = event.link.remote_target.address

    def on_message(self, event: Any) -> None:
        """Report the first message of each sender."""
        number = event.message.body
        if number not in self.known:
            self.known.add(number)
            print(json.dumps({"from": number, "at": time.monotonic()}), flush=True)


class KillableBroker:
    """Broker process: started on entry, killed on exit."""

    def __init__(self, port: int) -> None:
        self._command = [sys.executable, "-m", "loadtests.broker", str(port)]
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._events.put(json.loads(line))
        self._events.put(None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def _next(self, until: float, wanted: str) -> dict[str, Any]:
        try:
            event = self._events.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            raise MeasureError(f"a broker that came back did not get {wanted}") from None
        if event is None:
            raise MeasureError(f"the broker ended with status {self._process.wait()}")
        return event

    def accepted(self, limit: float) -> float:
        """Wait for the next accepted connection; return its time. Raises MeasureError after `limit` seconds."""
        until = time.monotonic() + limit
        while "accepted" not in (event := self._next(until, "a connection")):
            pass
        return float(event["accepted"])

    def heard_from(self, senders: Iterable[int], limit: float) -> float:
        """Wait for a message of each of these senders; return the time of the last first message.

        Raises MeasureError after `limit` seconds.
        """
        until, missing, last = time.monotonic() + limit, set(senders), 0.0
        while missing:
            event = self._next(until, f"messages of {len(missing)} senders")
            if "from" in event:
                missing.discard(event["from"])
                last = event["at"]
        return last


class Senders(MessagingHandler):
    """Clients that periodically send a message with their number, each on its own connection, in one thread.

    `failure`: first error of a connection or link. None: no error.
    """

    def __init__(self, port: int, address: str, count: int) -> None:
        super().__init__()
        self._url, self._address, self._count = f"amqp://127.0.0.1:{port}", address, count
        self._links: list[Any] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._stopping = False
        self.failure: str | None = None

    def start(self) -> None:
        """Start the thread unless it is running."""
        if not self._thread.is_alive():
            self._thread.start()

    def stop(self) -> None:
        """Stop without closing the connections."""
        self._stopping = True
        self._thread.join()

    def _run(self) -> None:
        Container(self).run()

    def on_start(self, event: Any) -> None:
        """Connect all clients."""
        for _ in range(self._count):
            connection = event.container.connect(self._url, reconnect=False, allowed_mechs="ANONYMOUS")
            self._links.append(event.container.create_sender(connection, self._address))
        event.container.schedule(INTERVAL, self)

    def on_timer_task(self, event: Any) -> None:
        """Send a message from each client that has credit."""
        if self._stopping:
            event.container.stop()
            return
        for number, link in enumerate(self._links):
            if link.credit > 0:
                link.send(Message(body=number))
        event.container.schedule(INTERVAL, self)

    def on_link_error(self, event: Any) -> None:
        """Record the error: clients must not notice the loss of a broker."""
        self.failure = f"link: {event.link.remote_condition}"

    def on_transport_error(self, event: Any) -> None:
        """Record the error: clients must not notice the loss of a broker."""
        self.failure = f"connection: {event.transport.condition}"


if __name__ == "__main__":
    Container(BrokerHandler(int(sys.argv[1]))).run()
