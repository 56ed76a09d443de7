"""Create the durable queue ADDRESS on a broker that creates queues on attach; print true."""

import sys

from proton import Event, Link, Terminus
from proton.handlers import MessagingHandler
from proton.reactor import Container, ReceiverOption


class DurableSource(ReceiverOption):
    """Source whose terminus state survives a restart of the broker."""

    def apply(self, link: Link) -> None:
        link.source.durability = Terminus.DELIVERIES
        link.source.expiry_policy = Terminus.EXPIRE_NEVER


class DurableQueueMaker(MessagingHandler):
    """Client that attaches and closes its connection."""

    def __init__(self, port: str, address: str) -> None:
        super().__init__(prefetch=0)
        self.url, self.address = f"amqp://127.0.0.1:{port}", address

    def on_start(self, event: Event) -> None:
        self.connection = event.container.connect(self.url, reconnect=False, allowed_mechs="ANONYMOUS")
        event.container.create_receiver(self.connection, self.address, options=DurableSource())

    def on_link_opened(self, event: Event) -> None:
        print("true")
        self.connection.close()

    def on_link_error(self, event: Event) -> None:
        sys.exit(f"link: {event.link and event.link.remote_condition}")


Container(DurableQueueMaker(sys.argv[1], sys.argv[2])).run()
