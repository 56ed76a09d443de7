"""AMQP over WebSocket on HTTP listeners (brokers-and-edge.md 4)."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.peer import message
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.peer.pki import CLIENT_USER, Pki, pki
from tests.peer.websocket import BINARY, CLOSE, PING, PONG, TEXT, WebSocket, closing, frame, read_head, request
from tests.peer.wire import TIMEOUT
from tests.system.bystanders.harness import without_bystanders
from tests.system.fixtures import Fresh, Start, pass_one
from tests.system.http import get
from tests.system.router import RouterProcess, Section, free_port, listener, poll

pytestmark = pytest.mark.adversarial

SECTIONS: list[Section] = [
    listener("web", http=True),
    listener("none", http=True, websockets=False),
    listener("login", http=True, authenticatePeer=True),
]
Over = Callable[..., AmqpPeer]


@pytest.fixture
def authority(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp())


def dial(router: RouterProcess, name: str = "web") -> socket.socket:
    opened = socket.create_connection(("127.0.0.1", router.ports[name]), TIMEOUT)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


@pytest.fixture
def over(peers: list[AmqpPeer]) -> Over:
    """Function over(router, name, context=…, …) that returns an opened peer over WebSocket."""

    def connected(
        router: RouterProcess, name: str = "web", context: ssl.SSLContext | None = None, **more: Any
    ) -> AmqpPeer:
        raw = dial(router, name)
        if context is not None:
            raw = context.wrap_socket(raw, server_hostname="localhost")
        peer = AmqpPeer(WebSocket.connected(raw, **more))
        peers.append(peer)
        peer.open()
        return peer

    return connected


def read_to_end(raw: socket.socket) -> bytes:
    """Return all octets received until the router closes."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while octets := raw.recv(65536):
            found += octets
    return found


@pytest.mark.parametrize("protocol", ["amqp", "binary"])
@pytest.mark.parametrize("piece", [1, 7, 1 << 30])
def test_message_over_websocket_is_delivered(
    router: RouterProcess, over: Over, fresh: Fresh, protocol: str, piece: int
) -> None:
    address = fresh()
    receiver = over(router, protocol=protocol, path="/any?x=y").receiver(address, 10)
    sender = over(router, protocol=protocol, piece=piece).sender(address)
    for body in ("short", "m" * 300, "l" * min(100_000, 300 * piece)):
        pass_one(sender, receiver, body)
    assert get(router.ports["web"], "/healthz").status == 200


def test_websocket_connection_has_an_ordinary_row(start: Start, over: Over) -> None:
    """brokers-and-edge.md H-7."""
    router = start([listener(), listener("web", http=True)])
    peer = over(router)
    (row,) = without_bystanders(Management(peer).query("connection"))
    assert (row["dir"], row["role"], row["opened"], row["isEncrypted"]) == ("in", "normal", True, False)


@pytest.mark.parametrize(
    ("octets", "answer"),
    [
        pytest.param(request(Sec_WebSocket_Version="8"), b"HTTP/1.1 426 Upgrade Required", id="version"),
        pytest.param(request(Sec_WebSocket_Version=None), b"HTTP/1.1 426 Upgrade Required", id="no version"),
        pytest.param(request(Sec_WebSocket_Key=None), b"HTTP/1.1 400 Bad Request", id="no key"),
        pytest.param(request(Sec_WebSocket_Key="short"), b"HTTP/1.1 400 Bad Request", id="wrong key"),
        pytest.param(request(Sec_WebSocket_Key="*" * 24), b"HTTP/1.1 400 Bad Request", id="no base64"),
        pytest.param(request(Connection="close"), b"HTTP/1.1 400 Bad Request", id="no connection upgrade"),
        pytest.param(request(Host=None), b"HTTP/1.1 400 Bad Request", id="no host"),
        pytest.param(request(Content_Length="4") + b"abcd", b"HTTP/1.1 400 Bad Request", id="body"),
        pytest.param(request(Transfer_Encoding="chunked"), b"HTTP/1.1 400 Bad Request", id="chunked"),
        pytest.param(request().replace(b"HTTP/1.1", b"HTTP/1.0"), b"HTTP/1.1 400 Bad Request", id="http 1.0"),
        pytest.param(request().replace(b"Host:", b"Host :"), b"HTTP/1.1 400 Bad Request", id="blank behind a name"),
        pytest.param(request().replace(b"GET", b"POST"), b"HTTP/1.1 405 Method Not Allowed", id="method"),
        pytest.param(request(protocol="mqtt"), b"", id="other sub-protocol"),
    ],
)
def test_invalid_upgrade_is_refused(router: RouterProcess, octets: bytes, answer: bytes) -> None:
    with dial(router) as raw:
        raw.sendall(octets)
        found = read_to_end(raw)
    assert found.split(b"\r\n")[0] == answer
    assert (b"Sec-WebSocket-Version: 13\r\n" in found) == (b" 426 " in answer)


@pytest.mark.parametrize(
    ("name", "protocol", "last"),
    [("none", "amqp", closing(1011, b"cannot-upgrade")), ("web", None, closing(1002, b"no sub-protocol"))],
)
def test_upgrade_without_amqp_is_answered_and_closed(
    router: RouterProcess, name: str, protocol: str | None, last: bytes
) -> None:
    """brokers-and-edge.md H-5."""
    with dial(router, name) as raw:
        raw.sendall(request(protocol=protocol))
        assert read_head(raw).startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
        assert read_to_end(raw) == frame(CLOSE, last, mask=None)


@pytest.mark.parametrize(
    ("octets", "code"),
    [
        pytest.param(frame(BINARY, b"AMQP", mask=None), 1002, id="unmasked"),
        pytest.param(frame(TEXT, b"AMQP"), 1003, id="text"),
        pytest.param(frame(CLOSE, closing(4001)), 4001, id="a code of its own"),
        pytest.param(frame(CLOSE), 1000, id="no code"),
        pytest.param(frame(CLOSE, closing(1000, b"\xff")), 1007, id="no text"),
        pytest.param(b"\x82\xff\x80" + bytes(7) + b"mask", 1002, id="2^63"),
        pytest.param(b"\x82\xff\x7f" + b"\xff" * 7 + b"mask", 1009, id="2^63 - 1"),
    ],
)
def test_invalid_or_closing_frame_is_answered_with_close(router: RouterProcess, octets: bytes, code: int) -> None:
    """The close is answered even if AMQP octets precede it in the same packet, and the stream ends after it."""
    with dial(router) as raw:
        client = WebSocket.connected(raw)
        raw.sendall(frame(BINARY, b"AMQP\x03\x01") + octets)
        found = client.read_frame()
        while found is not None and found[0] == BINARY:
            found = client.read_frame()
        assert found == (CLOSE, closing(code))
        assert client.read_frame() is None


def test_ping_between_fragments_is_answered(router: RouterProcess, over: Over, fresh: Fresh) -> None:
    peer = over(router)
    client = peer.socket
    client.send_frame(BINARY, bytes.fromhex("00000008"), final=False)  # half of an empty AMQP frame
    client.send_frame(PING, b"are you there")
    client.send_frame(0, bytes.fromhex("02000000"))
    assert client.read_frame() == (PONG, b"are you there")
    receiver = peer.receiver("pings", 1)
    pass_one(peer.sender("pings"), receiver)


def test_ping_flood_does_not_pile_up_pongs(router: RouterProcess, over: Over) -> None:
    """Only the last of several pings is answered, so that no pongs pile up."""
    with dial(router) as raw:
        client = WebSocket.connected(raw)
        for number in range(50):
            raw.sendall(frame(PING, b"%d" % number) * 1000)
        raw.sendall(frame(PING, b"last") + frame(CLOSE, closing(1000)))
        pongs = []
        while (found := client.read_frame()) is not None and found[0] == PONG:
            pongs.append(found[1])
        assert found == (CLOSE, closing(1000))
        assert len(pongs) < 25_000


def test_client_skipping_login_is_closed(router: RouterProcess) -> None:
    """The rules of the listener are those for AMQP (brokers-and-edge.md H-6)."""
    with dial(router, "login") as raw:
        client = WebSocket.connected(raw)
        client.sendall(b"AMQP\x00\x01\x00\x00")
        assert client.recv(100) == b""
    assert router.wait_log("Client skipped authentication - forbidden")


@pytest.mark.parametrize("workers", [1, 3])
def test_websocket_and_pages_share_a_tls_port(start: Start, authority: Pki, over: Over, workers: int) -> None:
    """WebSocket and pages share one port, with TLS and, if the listener allows it, without."""
    certificate, key = authority.server
    sections: list[Section] = [
        ("sslProfile", {"name": "p", "certFile": certificate, "privateKeyFile": key, "caCertFile": authority.trusted}),
        listener(),
        listener("both", http=True, sslProfile="p"),
        listener("strict", http=True, sslProfile="p", requireSsl=True),
        listener(
            "mutual", http=True, sslProfile="p", requireSsl=True, authenticatePeer=True, saslMechanisms="EXTERNAL"
        ),
    ]
    router = start(sections, workers)
    context = authority.context()
    for name, sending in (("both", context), ("both", None), ("strict", context)):
        receiver = over(router, "strict", context).receiver("tls", 10)
        sender = over(router, name, sending).sender("tls")
        for body in ("short", "l" * 200_000):
            pass_one(sender, receiver, body)
        receiver.peer.drop()
        sender.peer.drop()
    with dial(router, "strict") as raw:
        raw.sendall(request())
        assert read_to_end(raw) == b""
    raw = authority.context(authority.client).wrap_socket(dial(router, "mutual"), server_hostname="localhost")
    with AmqpPeer(WebSocket.connected(raw)) as client:
        client.open(mechanism="EXTERNAL")
        (row,) = without_bystanders(Management(client).query("connection"))
        assert (row["user"], row["isEncrypted"], row["sslProto"]) == (CLIENT_USER, True, "TLSv1.3")
    for path, status in (("/healthz", b"200"), ("/metrics", b"200"), ("/none", b"404")):
        with context.wrap_socket(dial(router, "strict"), server_hostname="localhost") as raw:
            raw.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert read_to_end(raw).split(b" ")[1] == status
    with context.wrap_socket(dial(router, "strict"), server_hostname="localhost") as raw:
        raw.sendall(request(Sec_WebSocket_Version="7"))
        assert read_to_end(raw).startswith(b"HTTP/1.1 426 ")
    with context.wrap_socket(dial(router, "strict"), server_hostname="localhost") as raw:
        answer = b""
        with contextlib.suppress(ConnectionResetError, BrokenPipeError, ssl.SSLEOFError):  # the router reads no more
            raw.sendall(b"GET / HTTP/1.1\r\nX: " + b"y" * 100_000)
            answer = read_to_end(raw)
        assert answer.split(b"\r\n")[0] in (b"", b"HTTP/1.1 431 Request Header Fields Too Large")


def test_websocket_listener_changes_at_runtime(start: Start, over: Over, fresh: Fresh) -> None:
    """A new listener accepts WebSocket once all workers have it, and stops accepting with `websockets: no`."""
    port = free_port()
    router = start([listener()], 3)
    management = Management(AmqpPeer.opened(router.port))
    web: dict[str, Any] = {"host": "127.0.0.1", "port": str(port), "http": True, "name": "web"}
    management.create("listener", **web)
    router.ports["web"] = port
    poll(lambda: _upgrades(router), "WebSocket is taken")
    peer = over(router)
    receiver = peer.receiver("late", 10)
    pass_one(over(router).sender("late"), receiver)
    router.configure([listener(), ("listener", {**web, "websockets": False})])
    management.call("RELOAD")
    with dial(router) as raw:
        raw.sendall(request())
        read_head(raw)
        assert read_to_end(raw) == frame(CLOSE, closing(1011, b"cannot-upgrade"), mask=None)
    pass_one(peer.sender("late"), receiver)  # open connections stay
    router.configure([listener(), ("listener", web)])
    management.call("RELOAD")
    poll(lambda: _upgrades(router), "WebSocket is taken again")
    over(router)


def _upgrades(router: RouterProcess) -> bool:
    with dial(router) as raw:
        raw.sendall(request())
        read_head(raw)
        raw.sendall(frame(CLOSE))
        return read_to_end(raw) == frame(CLOSE, closing(1000), mask=None)


@pytest.mark.disturbs("a worker is killed")
def test_killed_worker_is_replaced_for_websocket(start: Start, over: Over) -> None:
    """The clients of the killed worker are closed; new ones, with and without TLS, are served by its replacement."""
    router = start([listener(), listener("web", http=True)])
    peer = over(router)
    (victim,) = router.worker_pids()
    os.kill(victim, signal.SIGKILL)
    assert peer.socket.recv(100) in (b"",)
    router.wait(lambda: router.worker_pids() and victim not in router.worker_pids(), "the worker is replaced")
    poll(lambda: _upgrades(router), "WebSocket is taken again")
    receiver = over(router).receiver("after", 1)
    pass_one(over(router).sender("after"), receiver)


def test_slow_requests_are_closed_after_timeout(start: Start, authority: Pki) -> None:
    certificate, key = authority.server
    router = start([
        ("sslProfile", {"name": "p", "certFile": certificate, "privateKeyFile": key}),
        listener(),
        listener("web", http=True, sslProfile="p", requireSsl=True),
    ])  # fmt: skip
    begun = time.monotonic()
    with dial(router) as silent, authority.context().wrap_socket(dial(router), server_hostname="localhost") as slow:
        slow.sendall(request()[:40])
        slow.settimeout(30)
        silent.settimeout(30)
        assert read_to_end(slow) == b""
        assert read_to_end(silent) == b""
    assert 9 < time.monotonic() - begun < 30
    assert get_secure(router, authority) == b"200"


def get_secure(router: RouterProcess, authority: Pki) -> bytes:
    with authority.context().wrap_socket(dial(router), server_hostname="localhost") as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return read_to_end(raw).split(b" ")[1]


@pytest.mark.parametrize("encrypted", [False, True], ids=["ws", "wss"])
def test_late_reader_gets_all_messages(start: Start, authority: Pki, over: Over, encrypted: bool) -> None:
    """Octets that the client does not read are kept within AMQP's limits and arrive complete; others are not
    delayed."""
    certificate, key = authority.server
    router = start([
        ("sslProfile", {"name": "p", "certFile": certificate, "privateKeyFile": key}),
        listener(),
        listener("web", http=True, **({"sslProfile": "p"} if encrypted else {})),
    ], 3)  # fmt: skip
    context = authority.context() if encrypted else None
    count, size = 60, 200_000
    late = over(router, context=context)
    receiver = late.receiver("late", count)
    other = over(router, context=context).receiver("other", 10)
    sender = over(router, context=context).sender("late")
    for number in range(count):
        sender.send(message.message(f"{number:8}" + "x" * size), settled=True)
    pass_one(over(router).sender("other"), other)
    late.socket.send_frame(PING, b"still there?")
    for number in range(count):
        assert message.body(receiver.next().payload) == f"{number:8}" + "x" * size
    late.receiver("more")  # the reply follows the pong
    assert late.socket.pongs == [b"still there?"]
