"""HTTP listeners with real sockets: requests, refusals, TLS, and connections handed over to workers."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from sluice.router.config.load import load_text
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.router.ring.region import Region
from sluice.router.stats.sums import AddressCounters
from sluice.supervisor.telemetry.health import Health, Lag
from sluice.supervisor.telemetry.usage import Usage
from sluice.supervisor.web import server
from sluice.supervisor.web.connection_limits import MOST_ARRIVING_OF_HOST
from sluice.supervisor.web.server import HttpService
from tests.peer.pki import Pki, pki
from tests.unit.supervisor.harness import PATIENCE, configuration_text
from tests.unit.supervisor.listeners.test_acceptor import AcceptorWithWorkers, until

pytestmark = pytest.mark.filterwarnings("ignore:ssl:DeprecationWarning")  # of old versions, which a profile may name

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: amqp\r\n\r\n"
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp())


class HttpRouter(AcceptorWithWorkers):
    """Router with one HTTP listener that has these attributes."""

    def __init__(self, attributes: str) -> None:
        text = "listener {\nname: web\nhost: 127.0.0.1\nport: 0\nhttp: yes\n" + attributes + "\n}\n"
        self.configuration = load_text("router.conf", configuration_text() + text)
        super().__init__(configuration=self.configuration)
        self.config = self.configuration.listeners[1]
        self.web_log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(mask=0xFF, output=os.devnull)}))
        self.region = Region.create(2, 100, 1000, 4096)
        counters = AddressCounters(self.region)
        health = Health(self.core, Lag(), list, lambda: False)
        self.core.waker.connect(self.loop, lambda: None)
        self.service: HttpService = server.make(
            self.loop,
            self.web_log,
            self.configuration.router,
            "0.0",
            self.core,
            self.region,
            counters,
            Usage(self.configuration, self.region, self.core.policy.vhost_of),
            health,
            lambda: 0,
            dict,
            self.acceptor,
        )
        self.listener = self.service.bind(self.config)
        self.address = ("127.0.0.1", int(self.listener.port))

    async def ask(self, octets: bytes, context: ssl.SSLContext | None = None) -> bytes:
        """Send octets on a connection, and return all that comes until the router closes it."""
        reader, writer = await asyncio.open_connection(*self.address, ssl=context)
        writer.write(octets)
        try:
            return await asyncio.wait_for(reader.read(), PATIENCE)
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    async def get(self, path: str, **headers: str) -> bytes:
        """Request a page, and return the response."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in {"Host": "127.0.0.1", **headers}.items())
        return await self.ask(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode())

    def lines(self, level: str) -> list[str]:
        return [entry.text for entry in self.web_log.recent() if entry.level == level]


Scenario = Callable[[HttpRouter], Coroutine[Any, Any, None]]


def serve(scenario: Scenario, attributes: str = "", *, listens: bool = True) -> None:
    """Run a scenario with a router whose HTTP listener has these attributes."""

    async def body() -> None:
        router = HttpRouter(attributes)
        try:
            await router.core.tls.load(router.configuration)
            if listens:
                router.service.listen("web")
            await scenario(router)
        finally:
            await router.service.stop()
            router.close()
            router.region.close()

    asyncio.run(body())


@pytest.mark.parametrize(
    "octets", [b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"BAD\r\n\r\n"], ids=["page", "error"]
)
def test_response_names_router_and_closes_connection(octets: bytes) -> None:
    async def scenario(router: HttpRouter) -> None:
        head = (await router.ask(octets)).partition(b"\r\n\r\n")[0].split(b"\r\n")
        assert b"Server: sluice-router" in head
        assert b"Connection: close" in head

    serve(scenario)


def test_page_is_counted_by_path_and_status() -> None:
    async def scenario(router: HttpRouter) -> None:
        response = await router.get("/metrics")
        assert response.startswith(b"HTTP/1.1 200 ")
        assert b"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n" in response
        assert (await router.get("/nothing")).startswith(b"HTTP/1.1 404 ")
        assert dict(router.service.counts().requests) == {("/metrics", 200): 1, ("other", 404): 1}

    serve(scenario)


def test_page_of_foreign_site_is_refused() -> None:
    """A web page of another site could otherwise read the router's pages through the browser of its visitor."""

    async def scenario(router: HttpRouter) -> None:
        assert (await router.get("/metrics", Origin="http://evil.example")).startswith(b"HTTP/1.1 403 ")
        assert (await router.get("/metrics", Host="evil.example")).startswith(b"HTTP/1.1 403 ")

    serve(scenario)


def test_request_with_many_headers_is_refused() -> None:
    async def scenario(router: HttpRouter) -> None:
        response = await router.get("/metrics", **{f"X-{number}": "1" for number in range(server.MAX_HEADERS)})
        assert b" 400 " in response.partition(b"\r\n")[0]
        assert not router.lines("warning"), "a bad request of a client is no warning"

    serve(scenario)


def test_listener_accepts_connections_after_listen_only() -> None:
    async def scenario(router: HttpRouter) -> None:
        with pytest.raises(ConnectionRefusedError):
            await router.get("/livez")
        assert list(router.service.open_listeners) == []
        router.service.listen("web")
        assert list(router.service.open_listeners) == [router.listener]
        assert (await router.get("/livez")).startswith(b"HTTP/1.1 200 ")

    serve(scenario, listens=False)


def test_closed_listener_still_answers_accepted_connection() -> None:
    async def scenario(router: HttpRouter) -> None:
        reader, writer = await asyncio.open_connection(*router.address)
        await until(lambda: router.service.counts().connections == 1)
        router.service.close("web")
        router.service.close("web")  # there is none any more
        with pytest.raises(ConnectionRefusedError):
            await router.get("/livez")
        writer.write(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()

    serve(scenario)


def test_stop_closes_connections_without_request() -> None:
    async def scenario(router: HttpRouter) -> None:
        reader, writer = await asyncio.open_connection(*router.address)
        await until(lambda: router.service.counts().connections == 1)
        await router.service.stop()
        assert router.service.counts().connections == 0
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
        writer.close()

    serve(scenario)


class ExhaustedSocket(socket.socket):
    """Listening socket that accepts nothing at first, because its process has no descriptor left."""

    exhausted = True

    def accept(self) -> tuple[socket.socket, Any]:
        if self.exhausted:
            self.exhausted = False
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


def test_listener_without_descriptors_accepts_again_after_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "RETRY_AFTER", 0.02)

    async def scenario(router: HttpRouter) -> None:
        (opened,) = router.listener.sockets
        router.listener.sockets[:] = [ExhaustedSocket(fileno=opened.detach())]
        router.service.listen("web")
        assert (await router.get("/livez")).startswith(b"HTTP/1.1 200 ")
        (line,) = router.lines("warning")
        assert line.startswith(f"Listener {router.listener.text} accepts no connections for 0.02 seconds: ")

    serve(scenario, listens=False)


# -- Connections for workers


def test_websocket_request_is_handed_over_with_its_octets() -> None:
    async def scenario(router: HttpRouter) -> None:
        reader, writer = await asyncio.open_connection(*router.address)
        writer.write(UPGRADE)
        message, given = await router.receive(0)
        host, port = writer.get_extra_info("sockname")
        assert (message.octets, message.peer) == (UPGRADE, f"{host}:{port}")
        with given:
            given.send(b"of the worker")
            assert await reader.readexactly(13) == b"of the worker"
        assert router.service.counts().connections == 0, "the worker's connection has no place here"
        writer.close()

    serve(scenario)


def test_websocket_request_without_descriptors_is_answered_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def scenario(router: HttpRouter) -> None:
        monkeypatch.setattr("sluice.supervisor.web.server.os.dup", fail)
        assert (await router.ask(UPGRADE)).startswith(b"HTTP/1.1 503 ")
        monkeypatch.undo()
        (line,) = router.lines("warning")
        assert line.startswith(f"WebSocket request from 127.0.0.1 to listener {router.listener.text} refused: ")

    serve(scenario)


def test_page_is_answered_for_connection_of_worker() -> None:
    async def scenario(router: HttpRouter) -> None:
        worker = router.core.workers[0]
        connection = router.core.connections.adopt(worker, router.config, "127.0.0.1:1", "127.0.0.1:2")
        ours, theirs = socket.socketpair()
        theirs.send(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        router.service.answer_page(worker, connection.number, ours, False)
        reader, writer = await asyncio.open_unix_connection(sock=theirs)
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        assert connection.page
        writer.close()
        ended, other = socket.socketpair()
        router.service.answer_page(worker, connection.number + 1, ended, False)
        assert ended.fileno() == -1, "a connection that has ended gets no answer"
        other.close()

    serve(scenario)


# -- Refusals before a request


def test_unencrypted_client_is_refused_where_encryption_is_required() -> None:
    async def scenario(router: HttpRouter) -> None:
        assert await router.get("/livez") == b""
        (line,) = router.lines("warning")
        assert line.endswith("to listener web refused: Client connection unencrypted - forbidden")

    serve(scenario, "requireEncryption: yes")


def test_client_behind_proxy_has_address_of_header() -> None:
    async def scenario(router: HttpRouter) -> None:
        request = b"PROXY TCP4 192.0.2.7 127.0.0.1 5000 80\r\n" + UPGRADE
        _, writer = await asyncio.open_connection(*router.address)
        writer.write(request)
        message, given = await router.receive(0)
        assert message.peer == "192.0.2.7:5000"
        given.close()
        writer.close()
        assert await router.get("/livez") == b""
        (line,) = router.lines("warning")
        assert "127.0.0.1" in line

    serve(scenario, "proxyNetworks: 127.0.0.0/8")


# -- TLS


def secured(authority: Pki, *more: str) -> str:
    """Return the attributes of a listener with TLS, followed by its profile up to the last brace."""
    profile = f"name: p\ncertFile: {authority.server.certificate}\nprivateKeyFile: {authority.server.key}"
    return "\n".join(("sslProfile: p", "websockets: no", *more, "}", "sslProfile {", profile))


def test_first_octet_decides_between_tls_and_plain_http(authority: Pki) -> None:
    async def scenario(router: HttpRouter) -> None:
        context = ssl.create_default_context(cafile=str(authority.trusted))
        request = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        assert (await router.ask(request, context)).startswith(b"HTTP/1.1 200 ")
        assert (await router.ask(request)).startswith(b"HTTP/1.1 200 ")

    serve(scenario, secured(authority))


def test_plain_http_fails_where_encryption_is_required(authority: Pki) -> None:
    async def scenario(router: HttpRouter) -> None:
        assert b"200" not in await router.get("/livez")
        assert not router.lines("warning"), "clients cannot flood the log"

    serve(scenario, secured(authority, "requireEncryption: yes"))


def test_silent_client_is_closed_before_tls(authority: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_TIME", 0.02)

    async def scenario(router: HttpRouter) -> None:
        assert await router.ask(b"") == b""
        assert router.service.counts().refused["slow"] == 1

    serve(scenario, secured(authority))


def test_host_with_many_silent_connections_is_refused(authority: Pki) -> None:
    async def scenario(router: HttpRouter) -> None:
        silent = [await asyncio.open_connection(*router.address) for _ in range(MOST_ARRIVING_OF_HOST)]
        assert await router.get("/livez") == b""
        assert router.service.counts().refused["host"] == 1
        (line,) = router.lines("warning")
        assert line.startswith("Connection from 127.0.0.1 to listener web refused: too many connections")
        for reader, writer in silent:
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
        for _ in range(MOST_ARRIVING_OF_HOST + 1):
            assert (await router.get("/livez")).startswith(b"HTTP/1.1 200 "), "each connection gives back its place"

    serve(scenario, secured(authority))


def test_listener_with_unusable_profile_refuses_clients(authority: Pki, tmp_path: Path) -> None:
    async def scenario(router: HttpRouter) -> None:
        router.core.tls.held.clear()
        assert await router.get("/livez") == b""
        (line,) = router.lines("warning")
        assert line.endswith("to listener web refused: sslProfile 'p' cannot be used")

    serve(scenario, secured(authority, "requireEncryption: yes"))


# -- Log


def test_internal_error_of_library_is_one_warning() -> None:
    log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(output=os.devnull)}))
    logger: logging.Logger = server._logger(log)
    for _ in range(3):
        try:
            raise ValueError("broken")
        except ValueError:
            logger.exception("Error handling request")
    assert [(entry.level, entry.text) for entry in log.recent()] == [
        ("warning", "Error handling request: ValueError: broken")
    ]
