"""Receive from ADDRESS until each of the numbers 0 to COUNT - 1 has arrived; print the number of messages received.

With "again" as the last argument, the program attaches again after its link was detached.
"""

import json
import sys

from proton import Event
from proton.handlers import MessagingHandler
from proton.reactor import Container

ATTACH_AGAIN = 0.3  # seconds between a detach and the next attach


class CollectingReceiver(MessagingHandler):
    """Receiver that accepts automatically. A restarted broker repeats messages whose acceptance it had not recorded."""

    def __init__(self, port: str, address: str, count: int, again: bool) -> None:
        super().__init__(prefetch=20)
        self.again = again
        self.names = 0
        self.url, self.address = f"amqp://127.0.0.1:{port}", address
        self.missing = set(range(count))
        self.came = 0

    def on_start(self, event: Event) -> None:
        self.connection = event.container.connect(self.url, reconnect=False, allowed_mechs="ANONYMOUS")
        self.container = event.container
        self.attach()

    def attach(self) -> None:
        self.names += 1
        self.receiver = self.container.create_receiver(self.connection, self.address, name=f"collect-{self.names}")

    def on_timer_task(self, event: Event) -> None:
        self.attach()

    def on_link_opened(self, event: Event) -> None:
        print("attached", file=sys.stderr, flush=True)

    def on_message(self, event: Event) -> None:
        self.came += 1
        self.missing.discard(event.message.body)
        if not self.missing:
            print(json.dumps(self.came))
            self.receiver.close()
            self.connection.close()

    def on_link_error(self, event: Event) -> None:
        print(f"detached: {event.link and event.link.remote_condition}", file=sys.stderr, flush=True)
        if not self.again:
            sys.exit(f"link: {self.receiver.remote_condition}")
        self.container.schedule(ATTACH_AGAIN, self)

    def on_transport_error(self, event: Event) -> None:
        sys.exit(f"transport: {event.transport and event.transport.condition}")


Container(CollectingReceiver(sys.argv[1], sys.argv[2], int(sys.argv[3]), "again" in sys.argv[4:])).run()
