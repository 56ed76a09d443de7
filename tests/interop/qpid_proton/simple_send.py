"""Send COUNT messages to ADDRESS as credit allows; print the number of accepted messages."""

import json
import sys

from proton import Event, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container
from settings import settings  # type: ignore[import-not-found]


class SimpleSender(MessagingHandler):
    """Sender as in the published example, with a given address."""

    def __init__(self, where: str, address: str, total: int) -> None:
        super().__init__()
        self.where, self.address, self.total = where, address, total
        self.sent = self.confirmed = 0

    def on_start(self, event: Event) -> None:
        self.connection = event.container.connect(**settings(self.where))
        self.sender = event.container.create_sender(self.connection, self.address)

    def on_sendable(self, event: Event) -> None:
        while self.sender.credit and self.sent < self.total:
            self.sender.send(Message(id=self.sent, body={"sequence": self.sent}))
            self.sent += 1

    def on_accepted(self, event: Event) -> None:
        self.confirmed += 1
        if self.confirmed == self.total:
            print(json.dumps(self.confirmed))
            self.connection.close()

    def on_link_error(self, event: Event) -> None:
        sys.exit(f"link: {self.sender.remote_condition}")

    def on_transport_error(self, event: Event) -> None:
        sys.exit(f"transport: {event.transport and event.transport.condition}")


Container(SimpleSender(sys.argv[1], sys.argv[2], int(sys.argv[3]))).run()
