"""Receive COUNT messages over the durable subscription NAME of CONTAINER to the topic ADDRESS; print their bodies.

Then end as HOW says: `drop` the connection (COUNT 0 only), `detach`, or `close`, which ends the subscription. Writes
"attached" on stderr when the link is attached.
"""

import json
import os
import sys

from proton import Event, Link, Terminus, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container, ReceiverOption


class Subscription(ReceiverOption):
    """Source of a durable topic subscription: survives its link."""

    def apply(self, link: Link) -> None:
        link.source.durability = Terminus.DELIVERIES
        link.source.expiry_policy = Terminus.EXPIRE_NEVER
        link.source.distribution_mode = Terminus.DIST_MODE_COPY
        link.source.capabilities.put_object(symbol("topic"))


class Subscriber(MessagingHandler):
    """Receiver of the subscription; accepts each message."""

    def __init__(self, port: str, address: str, name: str, count: int, how: str) -> None:
        super().__init__(prefetch=count, auto_accept=False)
        self.url, self.address, self.name, self.count, self.how = f"amqp://127.0.0.1:{port}", address, name, count, how
        self.bodies: list[object] = []

    def on_start(self, event: Event) -> None:
        self.connection = event.container.connect(self.url, reconnect=False, allowed_mechs="ANONYMOUS")
        self.receiver = event.container.create_receiver(
            self.connection, self.address, name=self.name, options=Subscription()
        )

    def on_link_opened(self, event: Event) -> None:
        print("attached", file=sys.stderr, flush=True)
        if not self.count:
            self.finish()

    def on_message(self, event: Event) -> None:
        self.bodies.append(event.message.body)
        assert event.delivery is not None
        self.accept(event.delivery)
        if len(self.bodies) == self.count:
            self.finish()

    def finish(self) -> None:
        print(json.dumps(self.bodies), flush=True)
        if self.how == "drop":
            os._exit(0)
        elif self.how == "detach":
            self.receiver.detach()
        else:
            self.receiver.close()

    def on_link_remote_detach(self, event: Event) -> None:
        self.connection.close()

    def on_link_closed(self, event: Event) -> None:
        self.connection.close()

    def on_link_error(self, event: Event) -> None:
        sys.exit(f"link: {event.link and event.link.remote_condition}")

    def on_transport_error(self, event: Event) -> None:
        sys.exit(f"transport: {event.transport and event.transport.condition}")


def main(container_id: str, *arguments: str) -> None:
    port, address, name, count, how = arguments
    container = Container(Subscriber(port, address, name, int(count), how))
    container.container_id = container_id
    container.run()


main(*sys.argv[1:])
