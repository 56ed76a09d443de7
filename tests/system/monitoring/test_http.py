"""HTTP listeners: paths, methods, disabled pages, failing starts, and hostile clients."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peer.peer import AmqpPeer
from tests.system.failures.test_bad_starts import expect_failed_start
from tests.system.fixtures import Start
from tests.system.http import PATIENCE, WEB, get, scrape
from tests.system.router import RouterProcess, listener, poll, render

pytestmark = pytest.mark.adversarial

SECTIONS = [WEB, listener("bare", http=True, metrics=False, healthz=False)]
#: Maximum number of HTTP connections that the router keeps for one host.
MAX_HOST_CONNECTIONS = 32


@pytest.fixture
def sockets() -> Iterator[list[socket.socket]]:
    """Yield a list of sockets to be closed after the test."""
    made: list[socket.socket] = []
    yield made
    for one in made:
        one.close()


def dial(port: int, sockets: list[socket.socket], octets: bytes = b"") -> socket.socket:
    """Open a connection and send `octets` on it."""
    opened = socket.create_connection(("127.0.0.1", port), PATIENCE)
    sockets.append(opened)
    opened.sendall(octets)
    return opened


def read_until_close(connection: socket.socket) -> bytes:
    """Return all octets received until the router closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while octets := connection.recv(65536):
            received += octets
    return received


def test_response_has_expected_headers(router: RouterProcess) -> None:
    reply = get(router.ports["web"], "/metrics", Accept="application/openmetrics-text;version=1.0.0,*/*;q=0.1")
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert reply.headers["Server"] == "sluice-router"
    assert reply.headers["Connection"] == "close"


def test_head_response_has_no_body(router: RouterProcess) -> None:
    reply = get(router.ports["web"], "/healthz", "HEAD")
    assert (reply.status, reply.headers["Content-Length"], reply.body) == (200, "3", b"")


@pytest.mark.parametrize("path", ["/metric", "/metrics/", "/../etc/passwd", "/%00", "//healthz"])
def test_unknown_path_is_not_found(router: RouterProcess, path: str) -> None:
    assert get(router.ports["web"], path).status == 404


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/healthz/"])
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_probes_with_methods_of_dispatch_are_answered(router: RouterProcess, path: str, method: str) -> None:
    reply = get(router.ports["web"], path, method)
    assert reply.status == 200
    assert (b"OK\n" if path.startswith("/healthz") else b"# TYPE qdr_connections_total gauge\n") in reply.body


@pytest.mark.parametrize("method", ["PUT", "DELETE", "TRACE"])
def test_modifying_method_is_refused(router: RouterProcess, method: str) -> None:
    reply = get(router.ports["web"], "/metrics", method)
    assert (reply.status, reply.headers["Allow"]) == (405, "GET, HEAD, POST, OPTIONS")


@pytest.mark.parametrize("path", ["/readyz", "/livez", "/nothing"])
@pytest.mark.parametrize("method", ["POST", "OPTIONS"])
def test_pages_besides_probes_are_read_only(router: RouterProcess, path: str, method: str) -> None:
    reply = get(router.ports["web"], path, method)
    assert (reply.status, reply.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/healthz/"])
def test_disabled_probes_are_not_found(router: RouterProcess, path: str) -> None:
    assert get(router.ports["bare"], path).status == 404
    assert get(router.ports["bare"], path, "POST").status == 405


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/livez", "/readyz"])
def test_disabled_pages_are_not_found(router: RouterProcess, path: str) -> None:
    assert get(router.ports["web"], path).status == 200
    assert get(router.ports["bare"], path).status == 404


def test_http_listener_is_logged_as_http(router: RouterProcess) -> None:
    line = r"CONN_MGR \(info\) Configured Listener: 127\.0\.0\.1:0 proto=any, role=normal, http$"
    assert re.search(line, router.log, re.MULTILINE)


def test_taken_port_of_http_listener_fails_start(tmp_path: Path) -> None:
    """Every HTTP listener of the configuration file is required (management.md 3.5)."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        web = {"host": "127.0.0.1", "port": port, "http": True, "name": "web"}
        log = expect_failed_start(
            tmp_path, render([("router", {"id": "X", "workerThreads": 1}), listener(), ("listener", web)])
        )
    assert f"CONN_MGR (critical) Listen on 127.0.0.1:{port} failed during initial config" in log
    assert re.search(rf"HTTP \(error\) Listener error on 127\.0\.0\.1:{port}: .*in use", log)


def test_amqp_on_http_listener_is_bad_request(router: RouterProcess, sockets: list[socket.socket]) -> None:
    """The response says that the octets are not HTTP, and no octet reaches a worker."""
    answer = read_until_close(dial(router.ports["web"], sockets, b"AMQP\x00\x01\x00\x00"))
    assert b" 400 " in answer.splitlines()[0]
    assert b"Server: sluice-router" in answer
    assert f"Accepted connection to 127.0.0.1:{router.ports['web']}" not in router.log


@pytest.mark.parametrize(
    "octets",
    [
        pytest.param(b"GET /healthz HTTP/1.1\r\n" + b"X: " + b"y" * 100_000, id="long header"),
        pytest.param(b"GET /" + b"x" * 100_000, id="long path"),
        pytest.param(b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 20_000, id="many headers"),
    ],
)
def test_oversized_request_is_refused(router: RouterProcess, sockets: list[socket.socket], octets: bytes) -> None:
    connection = dial(router.ports["web"], sockets)
    with contextlib.suppress(ConnectionError):
        connection.sendall(octets)
    assert read_until_close(connection).split(b"\r\n")[0] in (
        b"",  # reset before the response was read
        b"HTTP/1.1 431 Request Header Fields Too Large",
        b"HTTP/1.0 400 Bad Request",
        b"HTTP/1.1 400 Bad Request",
    )
    assert get(router.ports["web"], "/healthz").status == 200


def test_request_body_is_not_awaited(router: RouterProcess, sockets: list[socket.socket]) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"
    assert read_until_close(dial(router.ports["web"], sockets, head)).endswith(b"\r\n\r\nOK\n")


def test_connection_serves_one_request_only(router: RouterProcess, sockets: list[socket.socket]) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert read_until_close(dial(router.ports["web"], sockets, head * 50)).count(b"HTTP/1.1 200") == 1


def test_half_closed_connections_are_answered(router: RouterProcess, sockets: list[socket.socket]) -> None:
    connection = dial(router.ports["web"], sockets, b"GET /healthz HTTP/1.0\r\n\r\n")
    connection.shutdown(socket.SHUT_WR)
    assert read_until_close(connection).endswith(b"OK\n")


def test_idle_connections_do_not_block_requests(router: RouterProcess, sockets: list[socket.socket]) -> None:
    web = router.ports["web"]
    before = scrape(web).sum("sluice_http_refused_total", reason="host")
    for _ in range(2 * MAX_HOST_CONNECTIONS):
        dial(web, sockets, b"GET /healthz HT")
    assert get(web, "/healthz").status == 200
    poll(
        lambda: scrape(web).sum("sluice_http_refused_total", reason="host") - before >= MAX_HOST_CONNECTIONS,
        "the first have gone",
    )
    assert scrape(web).sum("sluice_http_connections") <= MAX_HOST_CONNECTIONS
    sockets[0].settimeout(PATIENCE)
    assert read_until_close(sockets[0]) == b""  # the oldest is closed first


def test_host_with_many_half_requests_displaces_no_other(router: RouterProcess, sockets: list[socket.socket]) -> None:
    """A slow request of another host is not closed to make room."""
    web = router.ports["web"]
    slow = dial(web, sockets, b"GET /healthz HTTP/1.0\r\n")
    for number in range(5 * MAX_HOST_CONNECTIONS):
        hostile = (f"127.0.0.{66 + number % 2}", 0)
        opened = socket.create_connection(("127.0.0.1", web), PATIENCE, source_address=hostile)
        sockets.append(opened)
        opened.sendall(b"GET /healthz HT")
    assert get(web, "/healthz").status == 200
    slow.sendall(b"\r\n")
    assert read_until_close(slow).endswith(b"OK\n")


def test_slow_request_is_closed(router: RouterProcess, sockets: list[socket.socket]) -> None:
    web = router.ports["web"]
    slow = scrape(web).sum("sluice_http_refused_total", reason="slow")
    started = time.monotonic()
    connection = dial(web, sockets, b"GET /healthz HTTP/1.1\r\n")
    connection.settimeout(0.5)
    ended = False
    while not ended and time.monotonic() - started < PATIENCE:
        try:
            connection.sendall(b"X: y\r\n")
            ended = connection.recv(100) == b""
        except TimeoutError:
            continue
        except ConnectionError:
            ended = True
    assert ended
    assert time.monotonic() - started > 9
    poll(lambda: scrape(web).sum("sluice_http_refused_total", reason="slow") == slow + 1, "counted")


def test_amqp_clients_are_served_during_http_flood(start: Start, sockets: list[socket.socket]) -> None:
    router = start([listener(), WEB], workers=1)
    request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for _ in range(300):
        dial(router.ports["web"], sockets, request)
    peer = AmqpPeer.opened(router.port)
    receiver = peer.receiver("a", 10)
    peer.sender("a").send(b"\x00\x53\x77\xa1\x01x")
    receiver.next()
    peer.drop()
    answers = [read_until_close(one) for one in sockets]
    assert sum(answer.startswith(b"HTTP/1.1 200") for answer in answers) > 0
    assert get(router.ports["web"], "/healthz").status == 200
