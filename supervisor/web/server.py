"""HTTP listeners: sockets of the supervisor, served in its event loop by aiohttp within the limits of the gate.

brokers-and-edge.md H-1.
"""

import asyncio
import errno
import logging
import os
import socket
import ssl
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from sluice.router.config.entities import ListenerConfig, RouterConfig
from sluice.router.log import DEBUG, WARNING, ProcessLog, place
from sluice.router.ring.region import Region
from sluice.router.stats.sums import AddressCounters
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.composition import RouterCore
from sluice.supervisor.listeners.acceptor import Acceptor
from sluice.supervisor.listeners.inherited_sockets import InheritedSockets
from sluice.supervisor.listeners.listener import Listener, ListenError
from sluice.supervisor.listeners.proxied_connections import ProxiedConnections, is_proxy, refused_proxy
from sluice.supervisor.listeners.proxy_header import ProxyError
from sluice.supervisor.runtime.host_names import HostAddresses
from sluice.supervisor.telemetry.collect import MetricsCollector
from sluice.supervisor.telemetry.families import ExportCounts, MetricsBuilder
from sluice.supervisor.telemetry.health import Health
from sluice.supervisor.telemetry.usage import Usage
from sluice.supervisor.web.connection_limits import MAX_REQUEST, REQUEST_TIME, HttpConnection, HttpConnectionLimiter
from sluice.supervisor.web.files import Files
from sluice.supervisor.web.http_counts import HttpCounts
from sluice.supervisor.web.https import HttpsContexts
from sluice.supervisor.web.pages import HttpAnswer, MetricsPage, Pages
from sluice.supervisor.web.tokens import MetricsTokens

# The product as in AMQP, without a version. 1.19 sends qpid-dispatch-router.
SERVER_NAME: Final = "sluice-router"
BACKLOG: Final = 128  # limit of connections in the kernel's accept queue
ACCEPTS_PER_WAKE: Final = 16  # limit of connections accepted before other events are handled
RETRY_AFTER: Final = 0.5  # pause in seconds when the system is out of descriptors or memory
MAX_HEADERS: Final = 64
TLS_RECORD: Final = b"\x16"  # first octet of a TLS record
SHUTDOWN_TIME: Final = 1.0  # seconds for a client to end TLS

_OF_THE_PEER: Final = frozenset((errno.ECONNABORTED, errno.EPROTO, errno.EINTR, errno.EPERM))


class _Request(web.BaseRequest):
    """Request whose response has the router's Server header, including the library's error responses."""

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        response.headers["Server"] = SERVER_NAME
        response.headers["Connection"] = "close"
        response.force_close()


class HttpService:
    """All HTTP listeners. Owner: the supervisor."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, log: ProcessLog, pages: Pages, metrics: MetricsPage, tls: HttpsContexts,
        acceptor: Acceptor,
    ) -> None:  # fmt: skip
        self._loop = loop
        self._log = log
        self._pages = pages
        self._metrics = metrics
        self._tls = tls
        self._acceptor = acceptor
        self._gate = HttpConnectionLimiter(loop)
        self._proxies = ProxiedConnections(loop)
        self._requests: Counter[tuple[str, int]] = Counter()
        self._bound: dict[str, Listener] = {}  # by name
        self._open: dict[str, Listener] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        self._server = web.Server(
            self._handle,
            request_factory=lambda message, payload, protocol, writer, task: _Request(
                message, payload, protocol, writer, task, loop
            ),
            loop=loop,
            logger=_logger(log),
            access_log=None,
            max_line_size=MAX_REQUEST,
            max_field_size=MAX_REQUEST,
            max_headers=MAX_HEADERS,
            keepalive_timeout=0,  # the guard has the timers
            lingering_time=0,
        )

    @property
    def open_listeners(self) -> Iterable[Listener]:
        """Return the listeners that accept connections."""
        return self._open.values()

    @property
    def connections(self) -> int:
        """Return the number of accepted connections, with those that have not been assigned to the limiter yet."""
        return self._gate.connections + len(self._tasks)

    def counts(self) -> HttpCounts:
        """Return the counters of this service."""
        return HttpCounts(self._requests, self._gate.refused, self._gate.connections, self._metrics.work.cost)

    def bind(
        self, config: ListenerConfig, found: HostAddresses | None = None, inherited: InheritedSockets | None = None
    ) -> Listener:
        """Bind a listener without accepting connections yet. Raises ListenError.

        found: addresses of its host. inherited: sockets to use instead of binding.
        """
        listener = self._bound[config.name] = Listener(config, found, inherited)
        if config.websockets:
            listener.accepts_as = (config, config.name)
        return listener

    def listen(self, name: str) -> Listener:
        """Accept connections on a bound listener. Raises ListenError; the listener is closed then."""
        listener = self._bound[name]
        try:
            for opened in listener.sockets:
                opened.listen(BACKLOG)
        except OSError as error:
            self.close(name)
            raise ListenError(listener.text, error.strerror or str(error)) from error
        self.add(listener)
        return listener

    def add(self, listener: Listener) -> None:
        """Accept connections of a listener that listens already, added at run time."""
        name = listener.config.name
        self._bound[name] = self._open[name] = listener
        for opened in listener.sockets:
            self._loop.add_reader(opened, self._accept, listener, opened)

    def close(self, name: str) -> None:
        """Close the listener of this name, if there is one. Accepted connections are still answered."""
        listener = self._bound.pop(name, None)
        if listener is None:
            return
        if self._open.pop(name, None) is not None:
            for opened in listener.sockets:
                self._loop.remove_reader(opened)
        listener.close()

    async def stop(self) -> None:
        """Close all listeners and connections."""
        for name in list(self._bound):
            self.close(name)
        self._gate.abort_all()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.shutdown(0)

    def _accept(self, listener: Listener, opened: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_WAKE):
            try:
                accepted, address = opened.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _OF_THE_PEER:
                    continue
                self._rest(listener, opened, error)
                return
            accepted.setblocking(False)
            self._start(self._connect(listener, accepted, address))

    def _start(self, what: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def answer_page(self, worker: WorkerProcess, number: int, opened: socket.socket, certified: bool) -> None:
        """Answer an HTTPS client whose connection belongs to a worker. number: of that connection. certified: the
        client has presented a certificate."""
        connection = worker.connections.get(number)
        if connection is None or not isinstance(connection.origin, ListenerConfig):
            opened.close()
            return
        connection.page = True
        host = connection.peer.rpartition(":")[0]
        self._start(self._serve_page(connection.origin, host, opened, certified))

    async def _serve_page(self, config: ListenerConfig, host: str, opened: socket.socket, certified: bool) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: HttpConnection(
                    self._gate, config, self._server, lambda transport, octets: False, host, certified=certified
                ),
                opened,
            )
        except OSError as error:
            self._log.debug("HTTP", f"Request to listener {config.name} failed: {error.strerror or error}")
            opened.close()

    def _give(self, listener: Listener, address: tuple[str, int], transport: asyncio.Transport, octets: bytes) -> bool:
        """Hand over the connection of a client at `address` to a worker. Returns False if that is impossible."""
        if listener.accepts_as is None or transport.get_extra_info("ssl_object") is not None:
            return False
        try:
            given = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        except OSError as error:
            text = f"WebSocket request from {address[0]} to listener {listener.text} refused: {error.strerror}"
            self._log.repeated(WARNING, "HTTP", "upgrade", text)
            return False
        transport.abort()  # closes its descriptor; the duplicate keeps the connection open
        self._acceptor.upgrade(listener, given, f"{address[0]}:{address[1]}", octets)
        return True

    async def _connect(self, listener: Listener, accepted: socket.socket, address: tuple[str, int]) -> None:
        config = listener.config
        try:
            if is_proxy(address[0], config.proxy_networks):
                address = await self._proxies.client(accepted, address[:2])
            if not self._gate.arriving.take(address[0]):
                self._gate.refused["host"] += 1
                raise _NotServedError("too many connections, in total or from this host, have not sent a request")
            try:
                await self._take(listener, accepted, address)
            finally:
                self._gate.arriving.give_back(address[0])
        except ProxyError as error:
            self._log.repeated(WARNING, "HTTP", "proxy", refused_proxy(address[0], listener.text, error))
            accepted.close()
        except _NotServedError as error:
            text = f"Connection from {address[0]} to listener {config.name} refused: {error}"
            self._log.repeated(WARNING, "HTTP", "tls", text)
            accepted.close()
        except OSError as error:  # already closed, or not TLS
            text = f"Connection from {address[0]} to listener {config.name} failed: {error.strerror or error}"
            self._log.debug("HTTP", text)
            accepted.close()
        except Exception:  # noqa: BLE001 - logged with its traceback
            text = f"Internal error, connection to listener {config.name} closed: {traceback.format_exc()}"
            self._log.critical("HTTP", text.rstrip())
            accepted.close()

    async def _take(self, listener: Listener, accepted: socket.socket, address: tuple[str, int]) -> None:
        """Serve a connection by a guard, or hand it over to a worker before its TLS handshake.

        Raises _NotServedError and OSError.
        """
        config = listener.config
        context = await self._secure(config, accepted)
        if (
            context is not None
            and config.websockets
            and self._acceptor.hand_over_encrypted(listener, accepted, address)
        ):
            return
        await self._loop.connect_accepted_socket(
            lambda: HttpConnection(
                self._gate, config, self._server, partial(self._give, listener, address), address[0]
            ),
            accepted,
            ssl=context,
            ssl_handshake_timeout=None if context is None else REQUEST_TIME,
            ssl_shutdown_timeout=None if context is None else SHUTDOWN_TIME,
        )

    async def _secure(self, config: ListenerConfig, accepted: socket.socket) -> ssl.SSLContext | None:
        """Return the TLS context for a connection, or None for plain HTTP (brokers-and-edge.md H-6).

        Raises _NotServedError and OSError.
        """
        name = config.ssl_profile
        if name is None:
            if config.require_encryption:
                raise _NotServedError("Client connection unencrypted - forbidden")
            return None
        if not config.require_encryption and await self._first_octet(accepted) != TLS_RECORD:
            return None
        context = self._tls.context(name, config.verifies_peer, config.certificate_optional)
        if context is None:
            raise _NotServedError(f"sslProfile '{name}' cannot be used")
        return context

    async def _first_octet(self, accepted: socket.socket) -> bytes:
        """Return the first octet of the client without consuming it; empty if the client closes. Raises OSError."""
        try:
            async with asyncio.timeout(REQUEST_TIME):
                return await _peek(self._loop, accepted)
        except TimeoutError as error:
            self._gate.refused["slow"] += 1
            raise OSError("the client sent no data within the time limit") from error

    def _rest(self, listener: Listener, opened: socket.socket, error: OSError) -> None:
        """Pause accepting after a temporary failure of accept."""
        text = f"Listener {listener.text} accepts no connections for {RETRY_AFTER:g} seconds: {error.strerror}"
        self._log.repeated(WARNING, "HTTP", "rests", text)
        self._loop.remove_reader(opened)

        def resume() -> None:
            if self._open.get(listener.config.name) is listener:
                self._loop.add_reader(opened, self._accept, listener, opened)

        self._loop.call_later(RETRY_AFTER, resume)

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        guard = request.transport.get_protocol() if request.transport is not None else None
        if not isinstance(guard, HttpConnection):
            raise ConnectionResetError("the client has gone")
        guard.asked()
        refusal = guard.site.refusal(request.headers.get("Host"), request.headers.get("Origin"))
        if refusal is not None:
            answer = HttpAnswer(403, f"{refusal}\n".encode())
        else:
            answer = await self._pages.answer(
                guard.listener, request.method, request.path, request.headers, guard.certified
            )
        self._requests[answer.page, answer.status] += 1
        if self._log.enabled("HTTP", DEBUG):
            self._log.debug("HTTP", f"{request.remote} {request.method} {request.path[:80]!r}: {answer.status}")
        return _response(answer)


class _NotServedError(Exception):
    """Error when a connection is not served; the text is the reason."""


async def _peek(loop: asyncio.AbstractEventLoop, opened: socket.socket) -> bytes:
    """Return the first octet of a socket without consuming it; empty at its end. Raises OSError."""
    readable: asyncio.Future[None] = loop.create_future()

    def read() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(opened, read)
    try:
        await readable
    finally:
        loop.remove_reader(opened)
    return opened.recv(1, socket.MSG_PEEK)


def _response(answer: HttpAnswer) -> web.Response:
    headers = {"Content-Type": answer.content_type, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return web.Response(status=answer.status, body=answer.body, headers={**headers, **(answer.headers or {})})


class _LogHandler(logging.Handler):
    """Forwards the library's log records to the router's log: bad requests at debug, all others as warnings."""

    def __init__(self, log: ProcessLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        text = record.getMessage() + (f": {type(error).__name__}: {error}" if error is not None else "")
        if isinstance(error, HttpProcessingError):
            self._log.write(DEBUG, "HTTP", text)
        else:
            self._log.repeated(WARNING, "HTTP", "" if error is None else place(error), text)


def _logger(log: ProcessLog) -> logging.Logger:
    """Return a logger outside the library's logger tree."""
    logger = logging.Logger("supervisor.http", logging.INFO)
    logger.addHandler(_LogHandler(log))
    return logger


def make(
    loop: asyncio.AbstractEventLoop, log: ProcessLog, router: RouterConfig, version: str, core: RouterCore,
    region: Region, counters: AddressCounters, usage: Usage, health: Health,
    rows_lost: Callable[[], int], exports: Callable[[], ExportCounts], acceptor: Acceptor,
) -> HttpService:  # fmt: skip
    """Create the service with all its parts."""
    metrics = MetricsPage()
    pages = Pages(metrics, health, Files(loop), MetricsTokens(loop, log), log)
    service = HttpService(loop, log, pages, metrics, HttpsContexts(core.tls, log), acceptor)
    collector = MetricsCollector(core, region, counters, usage, metrics.work.pause)
    builder = MetricsBuilder(router, version, core, region, health, service.counts, rows_lost, exports)
    metrics.use(collector, builder)
    return service
