"""Run four local transactions on ADDRESS; print the bodies received in the last two.

Send COUNT messages and roll back, send COUNT and commit, receive the committed messages and roll back, receive them
again and commit.
"""

import json
import sys
from collections.abc import Iterator

from proton import Event, Message
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container


class TransactionClient(MessagingHandler, TransactionHandler):
    """Client of the transactions. `steps` is its program: a yield waits for the next event of transaction or link."""

    def __init__(self, port: str, address: str, count: int) -> None:
        MessagingHandler.__init__(self, auto_accept=False, prefetch=0)
        self.url, self.address, self.count = f"amqp://127.0.0.1:{port}", address, count
        self.taken: list[list[object]] = []

    def on_start(self, event: Event) -> None:
        self.container = event.container
        self.connection = event.container.connect(self.url, reconnect=False, allowed_mechs="ANONYMOUS")
        self.sender = event.container.create_sender(self.connection, self.address)
        self.program = self.steps()
        next(self.program)

    def steps(self) -> Iterator[None]:
        """Run the transactions in order."""
        for text, commit in (("rolled back", False), ("committed", True)):
            self.declare()
            yield
            for number in range(self.count):
                self.transaction.send(self.sender, Message(body=f"{text} {number}", durable=True))
            self.discharge(commit)
            yield
        for commit in (False, True):
            self.declare()
            yield
            self.taken.append([])
            receiver = self.container.create_receiver(self.connection, self.address)
            receiver.flow(self.count)
            while len(self.taken[-1]) < self.count:
                yield
            self.discharge(commit)
            yield
            receiver.close()
        print(json.dumps(self.taken))
        self.connection.close()

    def declare(self) -> None:
        self.container.declare_transaction(self.connection, handler=self)

    def discharge(self, commit: bool) -> None:
        if commit:
            self.transaction.commit()
        else:
            self.transaction.abort()

    def on_transaction_declared(self, event: Event) -> None:
        self.transaction = event.transaction
        self.advance()

    def on_message(self, event: Event) -> None:
        self.transaction.accept(event.delivery)
        self.taken[-1].append(event.message.body)
        self.advance()

    def on_transaction_committed(self, event: Event) -> None:
        self.advance()

    def on_transaction_aborted(self, event: Event) -> None:
        self.advance()

    def advance(self) -> None:
        next(self.program, None)

    def on_transaction_declare_failed(self, event: Event) -> None:
        sys.exit(f"declare: {event.delivery and event.delivery.remote.condition}")

    def on_transaction_commit_failed(self, event: Event) -> None:
        sys.exit(f"commit: {event.delivery and event.delivery.remote.condition}")

    def on_link_error(self, event: Event) -> None:
        sys.exit(f"link: {event.link and event.link.remote_condition}")

    def on_transport_error(self, event: Event) -> None:
        sys.exit(f"transport: {event.transport and event.transport.condition}")


Container(TransactionClient(sys.argv[1], sys.argv[2], int(sys.argv[3]))).run()
