"""Connections of one loop with sockets, for tests that run one wake at a time."""

import socket
from typing import Any

from sluice.router.amqp.connection import Connection
from sluice.router.ring.region import Region
from sluice.workers.loop import Loop
from sluice.workers.transport.tcp import TcpTransport
from tests.peer.frames import AMQP_HEADER, frame_octets
from tests.peer.talk import say

LINKS = 256
RING_OCTETS = 1 << 18
# The process keeps a pointer to the slot of the last loop, so the region is never released.
REGION = Region.create(1, LINKS, 16, RING_OCTETS)
EMPTY = frame_octets(b"")
OPENING = AMQP_HEADER + say("open", container_id="test")
SOCKET_OCTETS = 50_000
STOP = 1000  # descriptor of a test in its poller


class OpeningHandler:
    """Handler of a connection that only opens."""

    def __init__(self):
        self.closed = False

    def refusal(self, connection, sasl):
        return None

    def on_open(self, connection, remote):
        connection.send_open("router")

    def on_begin(self, connection, channel, items):
        return None

    def on_closed(self, connection, error):
        self.closed = True

    def on_fault(self, connection, fault):
        raise fault


class ClosingHandler(OpeningHandler):
    """Handler that records the errors with which its connection was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closed_with: list[Any] = []

    def on_closing(self, connection: Connection, error: Any) -> bool:
        return False

    def on_closed(self, connection: Connection, error: Any) -> None:
        self.closed_with.append(error)


class LoopConnections:
    """Connections of one loop."""

    def __init__(self):
        self.loop = Loop(REGION, 0)
        self.far = []
        self.handlers = []
        self.transports = []

    def connect(self, pair=socket.socketpair, octets=OPENING):
        """Connect a client, which opens during the next steps of the loop. octets: sent by the client at once."""
        near, far = pair()
        near.setblocking(False)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_OCTETS)  # Linux doubles this value
        handler = OpeningHandler()
        transport = TcpTransport(self.loop, near.detach(), Connection(self.loop.scheduler, handler))
        self.loop.add(transport.fd, transport)
        far.send(octets)
        self.far.append(far)
        self.handlers.append(handler)
        self.transports.append(transport)
        return transport

    def steps(self, count=4):
        """Run `count` wakes after those in which all clients open. One wake admits only a few clients."""
        while any(each.fd >= 0 and each.connection.remote_open is None for each in self.transports):
            self.loop.step()
        for _ in range(count):
            self.loop.step()

    def run(self, seconds):
        """Run the loop for so long."""
        self.loop.call_at(self.loop.scheduler.now + int(seconds * 1000), lambda: setattr(self.loop, "running", False))
        self.loop.run()

    def close(self):
        for far in self.far:
            far.close()
        while any(transport.fd >= 0 for transport in self.transports):
            self.loop.step()
