"""Receive COUNT messages from ADDRESS that match SELECTOR; print their bodies.

With "browse" as the last argument, the messages stay in the queue.
"""

import json
import sys

from proton import Event
from proton.handlers import MessagingHandler
from proton.reactor import Container, Copy, LinkOption, Selector


class FilteredReceiver(MessagingHandler):
    """Receiver that accepts automatically; if it browses, the messages stay in the queue."""

    def __init__(self, port: str, address: str, count: int, selector: str, browse: bool) -> None:
        super().__init__()
        self.url, self.address, self.expected = f"amqp://127.0.0.1:{port}", address, count
        self.options: list[LinkOption] = [Selector(selector)]
        if browse:
            self.options.append(Copy())
        self.bodies: list[object] = []

    def on_start(self, event: Event) -> None:
        self.connection = event.container.connect(self.url, reconnect=False, allowed_mechs="ANONYMOUS")
        event.container.create_receiver(self.connection, self.address, options=self.options)

    def on_link_opened(self, event: Event) -> None:
        print("attached", file=sys.stderr, flush=True)

    def on_message(self, event: Event) -> None:
        self.bodies.append(event.message.body)
        if len(self.bodies) == self.expected:
            print(json.dumps(self.bodies))
            self.connection.close()

    def on_link_error(self, event: Event) -> None:
        sys.exit(f"link: {event.link and event.link.remote_condition}")

    def on_transport_error(self, event: Event) -> None:
        sys.exit(f"transport: {event.transport and event.transport.condition}")


Container(FilteredReceiver(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], "browse" in sys.argv[5:])).run()
