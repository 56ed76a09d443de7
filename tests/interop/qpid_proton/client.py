"""Send each TEXT to ADDRESS as a request with a dynamic reply-to; print the answers as a JSON array."""

import json
import sys

from proton import Event, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container


class RequestClient(MessagingHandler):
    """Requester as in the published example: one request at a time."""

    def __init__(self, port: str, address: str, requests: list[str]) -> None:
        super().__init__()
        self.url, self.address, self.requests = f"amqp://127.0.0.1:{port}", address, requests
        self.answers: list[object] = []

    def on_start(self, event: Event) -> None:
        self.connection = event.container.connect(self.url, reconnect=False, allowed_mechs="ANONYMOUS")
        self.sender = event.container.create_sender(self.connection, self.address)
        self.receiver = event.container.create_receiver(self.connection, None, dynamic=True)

    def next_request(self) -> None:
        reply_to = self.receiver.remote_source.address
        self.sender.send(Message(reply_to=reply_to, body=self.requests[len(self.answers)]))

    def on_link_opened(self, event: Event) -> None:
        if event.receiver == self.receiver:
            self.next_request()

    def on_message(self, event: Event) -> None:
        self.answers.append(event.message.body)
        if len(self.answers) < len(self.requests):
            self.next_request()
        else:
            print(json.dumps(self.answers))
            self.connection.close()

    def on_link_error(self, event: Event) -> None:
        sys.exit(f"link: {self.sender.remote_condition or self.receiver.remote_condition}")


Container(RequestClient(sys.argv[1], sys.argv[2], sys.argv[3:])).run()
