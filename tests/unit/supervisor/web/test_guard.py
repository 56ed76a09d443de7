"""Places of HTTP connections: the choice of the connection to close for a new one."""

import asyncio
import socket

from sluice.router.config.load import load_text
from sluice.supervisor.web import connection_limits
from sluice.supervisor.web.connection_limits import HttpConnection, HttpConnectionLimiter
from tests.unit.supervisor.harness import configuration_text

LISTENER = load_text("router.conf", configuration_text()).listeners[0]
PLACES = 4
LARGE = bytes(32 << 20)  # more than the kernel takes


class AnsweringProtocol(asyncio.Protocol):
    """Protocol that answers each request, in place of the HTTP library."""

    def __init__(self, gate, host="127.0.0.1"):
        self.guard = HttpConnection(gate, LISTENER, lambda: self, lambda transport, octets: False, host)

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.guard.asked()
        self.transport.write(LARGE if data == b"large" else b"small")
        self.transport.close()


def test_unread_answer_makes_room_for_new_connection(monkeypatch):
    monkeypatch.setattr(connection_limits, "MAX_CONNECTIONS", PLACES)

    async def scenario():
        loop = asyncio.get_running_loop()
        gate = HttpConnectionLimiter(loop)
        server = await loop.create_server(lambda: AnsweringProtocol(gate).guard, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        silent = []
        for _ in range(PLACES):
            client = socket.create_connection(address)
            client.sendall(b"large")
            silent.append(client)
        async with asyncio.timeout(10):
            while len(gate._answering) < PLACES:
                await asyncio.sleep(0.001)
            for number in range(1, PLACES + 2):
                reader, writer = await asyncio.open_connection(*address)
                writer.write(b"x")
                assert await reader.read() == b"small"
                writer.close()
                assert gate.refused["full"] == 1, f"one place is enough for all who read (client {number})"
            while gate.connections > PLACES - 1:
                await asyncio.sleep(0.001)
        for client in silent:
            client.close()
        gate.abort_all()
        server.close()
        await server.wait_closed()

    asyncio.run(scenario())


class NullTransport(asyncio.Transport):
    """Open connection that discards its output."""

    def __init__(self):
        super().__init__()
        self.closed = False

    def get_extra_info(self, name, default=None):
        return default

    def write(self, data):
        pass

    def get_write_buffer_size(self):
        return 0

    def close(self):
        self.closed = True

    abort = close


def connect_from(gate, address):
    transport = NullTransport()
    one = HttpConnection(gate, LISTENER, asyncio.Protocol, lambda transport, octets: False, address)
    one.connection_made(transport)
    return one, transport


def test_host_at_its_share_replaces_own_connection():
    async def scenario():
        gate = HttpConnectionLimiter(asyncio.get_running_loop())
        other = connect_from(gate, "127.0.0.2")
        many = [connect_from(gate, "127.0.0.1") for _ in range(connection_limits.MOST_OF_HOST + 5)]
        assert [transport.closed for _, transport in many] == [True] * 5 + [False] * connection_limits.MOST_OF_HOST
        assert not other[1].closed
        assert gate.refused["host"] == 5
        for each, _ in many[5:]:
            each.asked()
        late = connect_from(gate, "127.0.0.1")
        assert late[1].closed, "all its connections are being answered"
        assert not connect_from(gate, "127.0.0.3")[1].closed
        gate.abort_all()

    asyncio.run(scenario())


def test_host_with_most_connections_makes_room(monkeypatch):
    monkeypatch.setattr(connection_limits, "MAX_CONNECTIONS", PLACES)

    async def scenario():
        gate = HttpConnectionLimiter(asyncio.get_running_loop())
        one = connect_from(gate, "127.0.0.2")  # the oldest
        many = [connect_from(gate, "127.0.0.1") for _ in range(PLACES - 1)]
        others = [connect_from(gate, f"127.0.0.{number}") for number in range(3, 5)]
        assert [transport.closed for _, transport in (one, *many, *others)] == [False, True, True, False, False, False]
        assert gate.refused["full"] == 2
        gate.abort_all()

    asyncio.run(scenario())


def test_ipv6_network_counts_as_one_host():
    async def scenario():
        gate = HttpConnectionLimiter(asyncio.get_running_loop())
        many = [connect_from(gate, f"2001:db8::{number:x}") for number in range(connection_limits.MOST_OF_HOST + 1)]
        assert many[0][1].closed
        gate.abort_all()

    asyncio.run(scenario())
