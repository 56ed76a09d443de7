"""A small broker made of Qpid Proton: `python proton_broker.py` says on which port it listens, and
serves until killed.

Somebody else's AMQP between amqpload's two ends. Queues appear with their first use; a message is
accepted when it is queued. Addresses that begin with multicast/ give every consumer a copy.
"""

from __future__ import annotations

import os
import socket
from collections import defaultdict, deque
from typing import Any

from proton import Delivery, Endpoint, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

CREDIT = 200  # deliveries that a sender may have under way


class Broker(MessagingHandler):
    """Queues by address; each message goes to the first consumer with credit."""

    def __init__(self) -> None:
        super().__init__(prefetch=CREDIT, auto_accept=True)
        self.queues: dict[str, deque[Message]] = defaultdict(deque)
        self.consumers: dict[str, list[Any]] = defaultdict(list)

    def on_start(self, event: Any) -> None:
        """Listen on a free port and say which."""
        acceptor = event.container.listen("127.0.0.1:0")
        with socket.socket(fileno=os.dup(acceptor._selectable.fileno())) as listening:
            print(f"Listening on 127.0.0.1:{listening.getsockname()[1]}", flush=True)

    def on_link_opening(self, event: Any) -> None:
        """Give the client the terminus that it asked for."""
        link = event.link
        link.source.address = link.remote_source.address
        link.target.address = link.remote_target.address
        if link.is_sender:
            self.consumers[link.source.address].append(link)

    def on_link_closing(self, event: Any) -> None:
        """Forget a consumer."""
        if event.link.is_sender and event.link in self.consumers[event.link.source.address]:
            self.consumers[event.link.source.address].remove(event.link)

    def on_connection_closing(self, event: Any) -> None:
        """Forget the consumers of a connection that closes with its links attached."""
        for links in self.consumers.values():
            links[:] = [link for link in links if link.connection != event.connection]

    def on_sendable(self, event: Any) -> None:
        """A consumer granted credit."""
        self.pass_on(event.link.source.address)

    def on_message(self, event: Any) -> None:
        """Queue, then pass on."""
        address = event.link.target.address
        if address.startswith("multicast/"):
            for link in self.consumers[address]:
                link.send(event.message)
            return
        self.queues[address].append(event.message)
        self.pass_on(address)

    def pass_on(self, address: str) -> None:
        """Send while there are messages and credit."""
        queue = self.queues[address]
        for link in self.consumers[address]:
            while queue and link.credit > 0 and link.state & Endpoint.LOCAL_ACTIVE:
                link.send(queue.popleft())

    def on_settled(self, event: Any) -> None:
        """A consumer is expected to accept; anything else would be a mistake of the generator."""
        if event.delivery.remote_state not in (Delivery.ACCEPTED, 0):
            raise RuntimeError(f"a delivery was settled with state {event.delivery.remote_state}")


if __name__ == "__main__":
    Container(Broker()).run()
