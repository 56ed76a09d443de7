"""Receive COUNT messages from ADDRESS; print their bodies as a JSON array."""

import json
import sys

from proton import Event
from proton.handlers import MessagingHandler
from proton.reactor import Container
from settings import settings  # type: ignore[import-not-found]


class SimpleReceiver(MessagingHandler):
    """Receiver as in the published example: accepts automatically and grants ten credits at a time."""

    def __init__(self, where: str, address: str, count: int) -> None:
        super().__init__()
        self.where, self.address, self.expected = where, address, count
        self.bodies: list[object] = []

    def on_start(self, event: Event) -> None:
        self.connection = event.container.connect(**settings(self.where))
        self.receiver = event.container.create_receiver(self.connection, self.address)

    def on_link_opened(self, event: Event) -> None:
        print("attached", file=sys.stderr, flush=True)

    def on_message(self, event: Event) -> None:
        if len(self.bodies) < self.expected:
            self.bodies.append(event.message.body)
            if len(self.bodies) == self.expected:
                print(json.dumps(self.bodies))
                self.receiver.close()
                self.connection.close()

    def on_link_error(self, event: Event) -> None:
        sys.exit(f"link: {self.receiver.remote_condition}")

    def on_transport_error(self, event: Event) -> None:
        sys.exit(f"transport: {event.transport and event.transport.condition}")


Container(SimpleReceiver(sys.argv[1], sys.argv[2], int(sys.argv[3]))).run()
