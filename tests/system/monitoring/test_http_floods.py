"""A client that floods the console's listener, while others read pages and use management over WebSocket."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.websocket import PING, WebSocket, frame, request
from tests.system.http import get
from tests.system.router import RouterProcess, listener

pytestmark = pytest.mark.adversarial

SECTIONS = [listener("web", http=True, initialHandshakeTimeoutSeconds=5)]
PATIENCE = 20.0
#: Host of the flood, whose connections the router can tell from those of the console.
HOSTILE = "127.0.0.66"
CONNECTIONS = 300
#: Requests of the console during a flood, each of which must be answered within `PATIENCE`.
REQUESTS = 10
#: Pings that a connection sends at once.
PINGS = 1000


class Flood:
    """Connections of the hostile host to one port."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.sockets: list[socket.socket] = []

    def dial(self, octets: bytes) -> socket.socket:
        """Connect and send as much of `octets` as the router reads."""
        opened = socket.create_connection(("127.0.0.1", self.port), PATIENCE, source_address=(HOSTILE, 0))
        opened.setblocking(False)
        self.sockets.append(opened)
        self.send(opened, octets)
        return opened

    def send(self, opened: socket.socket, octets: bytes) -> None:
        try:
            opened.send(octets)
        except (BlockingIOError, ConnectionError):
            return  # not read, or closed: as the router decides

    def close(self) -> None:
        for opened in self.sockets:
            opened.close()


@pytest.fixture
def flood(router: RouterProcess) -> Iterator[Flood]:
    made = Flood(router.ports["web"])
    yield made
    made.close()


def upgrades(flood: Flood) -> None:
    """Ask for WebSocket, and send nothing of AMQP."""
    for _ in range(CONNECTIONS):
        flood.dial(request())


def half_upgrades(flood: Flood) -> None:
    """Ask for WebSocket with a request that does not end."""
    for _ in range(CONNECTIONS):
        flood.dial(request()[:-4])


def pings(flood: Flood) -> None:
    """Send pings without end over WebSocket."""
    for _ in range(CONNECTIONS // 10):
        flood.dial(request() + frame(PING, b"x" * 125) * PINGS)


def endless_heads(flood: Flood) -> None:
    """Send header fields without end."""
    for _ in range(CONNECTIONS):
        flood.dial(b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 10_000)


def files(flood: Flood) -> None:
    """Request the largest file of the console, and read nothing."""
    for _ in range(CONNECTIONS):
        flood.dial(b"GET /console.js HTTP/1.1\r\nHost: localhost\r\n\r\n")


@pytest.mark.parametrize("attack", [upgrades, half_upgrades, pings, endless_heads, files])
def test_console_is_usable_during_flood(
    router: RouterProcess, flood: Flood, peers: list[AmqpPeer], attack: Callable[[Flood], None]
) -> None:
    web = router.ports["web"]
    before = AmqpPeer(WebSocket.connected(socket.create_connection(("127.0.0.1", web), PATIENCE)))
    peers.append(before)
    before.open()
    console = Management(before)
    for number in range(REQUESTS):
        if number % 3 == 0:
            attack(flood)
        assert get(web, "/healthz").status == 200
        assert console.query("router")
    after = AmqpPeer(WebSocket.connected(socket.create_connection(("127.0.0.1", web), PATIENCE)))
    peers.append(after)
    after.open()
    assert Management(after).query("router")
