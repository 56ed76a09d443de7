"""Places of HTTP connections: who goes first when another one wants in."""

import asyncio
import socket

from router.config.load import load_text
from supervisor.web import guard
from supervisor.web.guard import Gate, Guard
from tests.unit.supervisor.harness import configuration_text

LISTENER = load_text("router.conf", configuration_text()).listeners[0]
PLACES = 4
LARGE = bytes(32 << 20)  # more than the kernel takes


class Answering(asyncio.Protocol):
    """In the place of the library: answers whatever comes."""

    def __init__(self, gate):
        self.guard = Guard(gate, LISTENER, lambda: self, lambda transport, octets: False)

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.guard.asked()
        self.transport.write(LARGE if data == b"large" else b"small")
        self.transport.close()


def test_who_does_not_read_the_answer_goes_when_another_wants_in(monkeypatch):
    monkeypatch.setattr(guard, "MAX_CONNECTIONS", PLACES)

    async def scenario():
        loop = asyncio.get_running_loop()
        gate = Gate(loop)
        server = await loop.create_server(lambda: Answering(gate).guard, "127.0.0.1", 0)
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
