"""Clients of the console's tests, in a process of their own: clients.py PORT,PORT,…

Two producers are at the first port, consumers at the last and in the middle, and one idle consumer at each. Consumers
of orders grant credit, the consumer of letters grants none. The process exits when its standard input ends.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

INTERVAL = 0.05  # seconds between two bursts of a client
BURST = 5


class TrafficClient(MessagingHandler):
    """Client with senders, receivers that grant credit, and receivers that grant none (`ignores`)."""

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
        event.reactor.schedule(INTERVAL, self)

    def on_timer_task(self, event: Any) -> None:
        for receiver in self.receivers:
            receiver.flow(max(0, 200 - receiver.credit))
        for sender in self.senders:
            for _ in range(min(BURST, sender.credit)):
                sender.send(Message("a message"))
        event.reactor.schedule(INTERVAL, self)

    def on_message(self, event: Any) -> None:
        return


def main() -> None:
    """Start all clients, and run until standard input ends."""
    ports = sys.argv[1].split(",")
    first, last = ports[0], ports[-1]
    clients = {
        "shop-1": TrafficClient(first, ["orders", "invoices"], []),
        "shop-2": TrafficClient(first, ["orders", "letters"], []),
        "billing-1": TrafficClient(last, [], ["orders", "invoices"]),
        "billing-2": TrafficClient(ports[len(ports) // 2], [], ["orders"]),
        "printer": TrafficClient(last, [], [], ["letters"]),
        **{f"dashboard-{number}": TrafficClient(port, [], ["events/all"]) for number, port in enumerate(ports)},
    }
    for name, client in clients.items():
        container = Container(client)
        container.container_id = name
        threading.Thread(target=container.run, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
