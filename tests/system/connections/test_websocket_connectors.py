"""Connectors over WebSocket and through an HTTP proxy, for each role."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.pki import Pki, pki
from tests.peer.proxy import Proxy
from tests.peer.websocket import read_head
from tests.system.fixtures import Start, pass_one
from tests.system.router import RouterProcess, Section, listener, poll

pytestmark = pytest.mark.adversarial

#: Role of the listener, and mode of the connecting router.
ROLES = [("inter-router", "interior"), ("edge", "edge")]
MakeProxy = Callable[..., Proxy]


@pytest.fixture
def authority(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp())


@pytest.fixture
def proxy() -> Iterator[MakeProxy]:
    """Function that creates proxies, closed after the test."""
    found: list[Proxy] = []

    def make(login: str | None = None, **more: bytes) -> Proxy:
        found.append(Proxy(login, **more))
        return found[-1]

    yield make
    for each in found:
        each.close()


def profile(authority: Pki) -> Section:
    certificate, key = authority.server
    return "sslProfile", {"name": "p", "certFile": certificate, "privateKeyFile": key, "caCertFile": authority.trusted}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(("role", "mode"), ROLES)
@pytest.mark.parametrize("encrypted", [False, True], ids=["ws", "wss"])
def test_connector_over_websocket_and_proxy_reconnects(
    start: Start,
    peers: list[AmqpPeer],
    proxy: MakeProxy,
    authority: Pki,
    role: str,
    mode: str,
    encrypted: bool,
    workers: int,
) -> None:
    """The proxy requires a password and cuts the connection once; the connector reconnects."""
    own = {"sslProfile": "p"} if encrypted else {}
    net = listener("net", http=True, role=role, **own)
    interior = start([("router", {"mode": "interior", "id": "A"}), profile(authority), listener(), net], workers)
    http_proxy = proxy("me:se:cret")
    connector = (
        "connector",
        {"name": "up", "role": role, "host": "localhost", "port": interior.ports["net"], "websockets": True,
         "websocketPath": "/amqp?x=1", "proxyHost": "127.0.0.1", "proxyPort": http_proxy.port, "proxyUser": "me",
         "proxyPassword": "pass:se:cret", **own},
    )  # fmt: skip
    other = start([("router", {"mode": mode, "id": "B"}), profile(authority), listener(), connector], workers)
    for attempt in range(2):
        receiver = AmqpPeer.opened(interior.port).receiver(f"over{attempt}", 10)
        sender = AmqpPeer.opened(other.port).sender(f"over{attempt}")
        peers.extend((receiver.peer, sender.peer))
        for body in ("short", "l" * 200_000):
            pass_one(sender, receiver, body)
        if not attempt:
            http_proxy.cut()
            poll(lambda: len(http_proxy.heads) > 1, "the connector has come back")
    (row,) = [row for row in Management(receiver.peer).query("connection") if row["role"] == role]
    assert row["isEncrypted"] is encrypted
    assert http_proxy.heads[0].startswith(f"CONNECT localhost:{interior.ports['net']} HTTP/1.1\r\n".encode())
    assert "cret" not in other.log


@pytest.mark.parametrize(
    ("login", "answer", "reason"),
    [
        ("other:password", b"", "it answered 407 Proxy Authentication Required"),
        (None, b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "it answered 502 Bad Gateway"),
        (None, b"", "it has closed the connection"),
        (None, b"SSH-2.0-x\r\n\r\n", "the status line is malformed"),
    ],
)
def test_proxy_refusal_is_logged(start: Start, proxy: MakeProxy, login: str | None, answer: bytes, reason: str) -> None:
    http_proxy = proxy(login, answer=answer)
    given = {"proxyHost": "127.0.0.1", "proxyPort": http_proxy.port, "proxyUser": "me", "proxyPassword": "pass:word"}
    router = start([listener(), ("connector", {"name": "c", "host": "far", "port": 5672, "role": "normal", **given})])
    text = rf"Connection to far:5672 failed: proxy 127.0.0.1:{http_proxy.port} does not connect to far:5672: {reason}"
    router.wait_log(text)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "the server answered 404 Not Found"),
        (b"HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", "Sec-WebSocket-Accept does not"),
        (b"AMQP\x00\x01\x00\x00\r\n\r\n", "the status line is malformed"),
    ],
)
def test_server_refusal_is_logged(start: Start, answer: bytes, reason: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        given = {"name": "c", "host": "127.0.0.1", "port": port, "role": "route-container", "websockets": True}
        router: RouterProcess = start([listener(), ("connector", given)])
        raw, _ = server.accept()
        with raw:
            head = read_head(raw)
            assert head.startswith(b"GET / HTTP/1.1\r\n")
            assert f"\r\nHost: 127.0.0.1:{port}\r\n".encode() in head
            raw.sendall(answer)
            router.wait_log(f"Connection to 127.0.0.1:{port} failed: .*WebSocket: {reason}")
