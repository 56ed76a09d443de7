"""Answer requests on ADDRESS: the body in capitals to reply-to, over an anonymous sender."""

import sys

from proton import Event, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container


class UppercaseServer(MessagingHandler):
    """Server as in the published example, for brokers and routers alike."""

    def __init__(self, port: str, address: str) -> None:
        super().__init__()
        self.url, self.address = f"amqp://127.0.0.1:{port}", address

    def on_start(self, event: Event) -> None:
        self.connection = event.container.connect(self.url, reconnect=False, allowed_mechs="ANONYMOUS")
        self.receiver = event.container.create_receiver(self.connection, self.address)
        self.server = event.container.create_sender(self.connection, None)

    def on_link_opened(self, event: Event) -> None:
        if event.link == self.receiver:
            print("attached", file=sys.stderr, flush=True)

    def on_message(self, event: Event) -> None:
        request = event.message
        self.server.send(
            Message(address=request.reply_to, body=request.body.upper(), correlation_id=request.correlation_id)
        )


Container(UppercaseServer(sys.argv[1], sys.argv[2])).run()
