"""Small broker on Qpid Proton: `python proton_broker.py` prints its port and serves until killed.

An independent AMQP implementation between amqpload's two ends. Queues are created by their first use. A message is
accepted when it is queued. For addresses that begin with multicast/ every consumer gets a copy.
"""

from __future__ import annotations

import os
import socket
from collections import defaultdict, deque
from typing import Any

from proton import Delivery, Endpoint, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

CREDIT = 200  # deliveries that a sender may have unsettled


class ProtonBroker(MessagingHandler):
    """Queues by address. Each message goes to the first consumer with credit."""

    def __init__(self) -> None:
        super().__init__(prefetch=CREDIT, auto_accept=True)
        self.queues: dict[str, deque[Message]] = defaultdict(deque)
        self.consumers: dict[str, list[Any]] = defaultdict(list)

    def on_start(self, event: Any) -> None:
        """Listen on a free port and print it."""
        acceptor = event.container.listen("127.0.0.1:0")
        with socket.socket(fileno=os.dup(acceptor._selectable.fileno())) as listening:
            print(f"Listening on 127.0.0.1:{listening.getsockname()[1]}", flush=True)

    def on_link_opening(self, event: Any) -> None:
        """Give the client the terminus that it requested."""
        link = event.link
        link.source.address = link.remote_source.address
        link.target.address = link.remote_target.address
        if link.is_sender:
            self.consumers[link.source.address].append(link)

    def on_link_closing(self, event: Any) -> None:
        """Remove a consumer."""
        if event.link.is_sender and event.link in self.consumers[event.link.source.address]:
            self.consumers[event.link.source.address].remove(event.link)

    def on_connection_closing(self, event: Any) -> None:
        """Remove the consumers of a connection that closes with its links attached."""
        for links in self.consumers.values():
            links[:] = [link for link in links if link.connection != event.connection]

    def on_sendable(self, event: Any) -> None:
        """Send to a consumer that has granted credit."""
        self.send_queued(event.link.source.address)

    def on_message(self, event: Any) -> None:
        """Queue a message and send queued messages."""
        address = event.link.target.address
        if address.startswith("multicast/"):
            for link in self.consumers[address]:
                link.send(event.message)
            return
        self.queues[address].append(event.message)
        self.send_queued(address)

    def send_queued(self, address: str) -> None:
        """Send while there are messages and credit."""
        queue = self.queues[address]
        for link in self.consumers[address]:
            while queue and link.credit > 0 and link.state & Endpoint.LOCAL_ACTIVE:
                link.send(queue.popleft())

    def on_settled(self, event: Any) -> None:
        """Check that the consumer has accepted: any other state is a mistake of the generator."""
        if event.delivery.remote_state not in (Delivery.ACCEPTED, 0):
            raise RuntimeError(f"a delivery was settled with state {event.delivery.remote_state}")


if __name__ == "__main__":
    Container(ProtonBroker()).run()
