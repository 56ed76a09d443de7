"""Clients of the console's tests, in a process of their own: clients.py PORT,PORT,...

At the first port two producers, consumers at the last, at all of them one that waits. The orders are taken, the letters
are not: their consumer grants no credit. Ends when its standard input does.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

EVERY = 0.05  # seconds
AT_ONCE = 5


class Client(MessagingHandler):
    """One client."""

    def __init__(self, port: str, sends: list[str], takes: list[str], ignores: list[str] = []) -> None:  # noqa: B006
        super().__init__(prefetch=0)
        self.port = port
        self.sends, self.takes, self.ignores = sends, takes, ignores
        self.senders: list[Any] = []
        self.receivers: list[Any] = []

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(f"amqp://127.0.0.1:{self.port}", reconnect=[0.1, 0.5, 1.0] + [1.0] * 600)
        self.senders = [event.container.create_sender(connection, each) for each in self.sends]
        self.receivers = [event.container.create_receiver(connection, each) for each in self.takes]
        for each in self.ignores:
            event.container.create_receiver(connection, each)
        event.reactor.schedule(EVERY, self)

    def on_timer_task(self, event: Any) -> None:
        for receiver in self.receivers:
            receiver.flow(max(0, 200 - receiver.credit))
        for sender in self.senders:
            for _ in range(min(AT_ONCE, sender.credit)):
                sender.send(Message("a message"))
        event.reactor.schedule(EVERY, self)

    def on_message(self, event: Any) -> None:
        return


def main() -> None:
    """Start them all."""
    ports = sys.argv[1].split(",")
    first, last = ports[0], ports[-1]
    clients = {
        "shop-1": Client(first, ["orders", "invoices"], []),
        "shop-2": Client(first, ["orders", "letters"], []),
        "billing-1": Client(last, [], ["orders", "invoices"]),
        "billing-2": Client(ports[len(ports) // 2], [], ["orders"]),
        "printer": Client(last, [], [], ["letters"]),
        **{f"dashboard-{number}": Client(port, [], ["events/all"]) for number, port in enumerate(ports)},
    }
    for name, client in clients.items():
        container = Container(client)
        container.container_id = name
        threading.Thread(target=container.run, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
