"""CONNECT requests to HTTP proxies, with a proxy that the test plays on a real socket."""

from __future__ import annotations

import asyncio
from base64 import b64encode

import pytest

from sluice.router.config.entities import ProxyConfig
from sluice.router.websocket.http import END, MAX_HEAD
from sluice.supervisor.connectors.dial import DialError
from sluice.supervisor.connectors.failover import FailoverEntry
from sluice.supervisor.connectors.proxy import dial_through
from sluice.supervisor.runtime.threads import Threads

PEER = FailoverEntry("amqp", "broker.example", "5672")
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
PATIENCE = 15.0  # seconds after which a proxy that the router has not left fails the test


class ScriptedProxy:
    """Proxy that reads one request, writes a prepared response, and waits until the router closes the connection.

    Without a response it stays silent.
    """

    def __init__(self, *response: bytes) -> None:
        self.request = b""
        self._response = response
        self._left: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.request = await reader.readuntil(END)
        for octets in self._response:
            writer.write(octets)
            await writer.drain()
        if self._response[-1:] == (b"",):
            writer.close()
            return
        await reader.read()
        self._left.set_result(None)
        writer.close()

    async def left(self) -> None:
        """Wait until the router has closed the connection."""
        await asyncio.wait_for(self._left, PATIENCE)


async def connect(
    proxy: ScriptedProxy, entry: FailoverEntry = PEER, user: str | None = None, password: str = ""
) -> bytes:
    """Connect to `entry` through the proxy, and return the octets of the peer that follow the response."""
    loop = asyncio.get_running_loop()
    async with await asyncio.start_server(proxy.handle, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        config = ProxyConfig(host="127.0.0.1", port=str(port), user=user, password=None)
        opened = await dial_through(config, password, entry, Threads(loop, "t", 1))
        with opened:
            rest = await asyncio.wait_for(loop.sock_recv(opened, 100), PATIENCE)
        await proxy.left()
        return rest


def request_for(entry: FailoverEntry, user: str | None = None, password: str = "") -> list[str]:
    """Return the lines of the request that the proxy receives."""

    async def scenario() -> list[str]:
        proxy = ScriptedProxy(ESTABLISHED + b"AMQP")
        await connect(proxy, entry, user, password)
        return proxy.request.decode("ascii").split("\r\n")[:-2]

    return asyncio.run(scenario())


def refusal(*response: bytes) -> str:
    """Return the text of the error that a response causes. The router must close the connection."""

    async def scenario() -> str:
        proxy = ScriptedProxy(*response)
        with pytest.raises(DialError) as caught:
            await connect(proxy)
        if response[-1:] != (b"",):
            await proxy.left()
        return str(caught.value)

    return asyncio.run(scenario())


def test_request_names_peer_that_proxy_resolves() -> None:
    assert request_for(PEER) == ["CONNECT broker.example:5672 HTTP/1.1", "Host: broker.example:5672"]


def test_request_with_user_has_basic_credentials() -> None:
    credentials = b64encode("us:päss".encode()).decode()
    assert f"Proxy-Authorization: Basic {credentials}" in request_for(PEER, "us", "päss")


@pytest.mark.parametrize(
    ("host", "port", "target"),
    [
        ("::1", "5672", "[::1]:5672"),
        ("bücher.example", "5672", "xn--bcher-kva.example:5672"),
        ("broker", "amqps", "broker:5671"),
    ],
    ids=["IPv6", "international", "service"],
)
def test_request_target_is_in_form_of_http(host: str, port: str, target: str) -> None:
    assert request_for(FailoverEntry("amqp", host, port))[0] == f"CONNECT {target} HTTP/1.1"


def test_octets_after_response_stay_in_socket() -> None:
    """A peer that speaks first may send together with the proxy's response."""

    async def scenario() -> None:
        assert await connect(ScriptedProxy(ESTABLISHED + b"AMQP\x00")) == b"AMQP\x00"

    asyncio.run(scenario())


def test_name_that_would_add_header_is_refused() -> None:
    async def scenario() -> None:
        proxy = ScriptedProxy(ESTABLISHED)
        with pytest.raises(DialError, match="characters that a request to a proxy cannot have"):
            await connect(proxy, FailoverEntry("amqp", "broker\r\nX: y", "5672"))
        assert proxy.request == b""

    asyncio.run(scenario())


def test_refusal_of_proxy_is_reason() -> None:
    text = refusal(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
    assert "does not connect to broker.example:5672: it answered 407 Proxy Authentication Required" in text


def test_malformed_response_is_refused() -> None:
    assert "the status line is malformed" in refusal(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")


def test_endless_response_is_refused() -> None:
    assert "its response is too long" in refusal(b"HTTP/1.1 200 OK\r\nX: " + b"x" * MAX_HEAD)


def test_proxy_that_closes_connection_is_refusal() -> None:
    assert "it has closed the connection" in refusal(b"HTTP/1.1 200", b"")


def test_silent_proxy_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.supervisor.connectors.proxy.ANSWER_SECONDS", 0.05)
    assert "it does not respond" in refusal()
