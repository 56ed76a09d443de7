"""HTTP listeners: sockets of the supervisor, served in its event loop by aiohttp within the limits of the gate."""
import asyncio
import errno
import logging
import socket
import traceback
from collections import Counter
from collections.abc import Iterable
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from router.config.entities import ListenerConfig, RouterConfig
from router.ipc.layout import Region
from router.ipc.scan import AddressCounters
from router.log import DEBUG, WARNING, Log, place
from supervisor.acceptor import Listener, ListenError
from supervisor.core import Core
from supervisor.http.collect import Collector
from supervisor.http.families import Builder, HttpCounts
from supervisor.http.guard import MAX_REQUEST, Gate, Guard
from supervisor.http.health import Health
from supervisor.http.pages import Answer, MetricsPage, Pages
from supervisor.names import Found

# As the product names itself in AMQP, without a version. 1.19 said qpid-dispatch-router.
SERVER_NAME: Final = "sluice-router"
BACKLOG: Final = 128  # connections the kernel keeps for us, at most
ACCEPTS_PER_WAKE: Final = 16  # then other events have their turn
RETRY_AFTER: Final = 0.5  # seconds without accepting when the system has no descriptors or memory
MAX_HEADERS: Final = 64

_OF_THE_PEER: Final = frozenset((errno.ECONNABORTED, errno.EPROTO, errno.EINTR, errno.EPERM))


class _Request(web.BaseRequest):
    """A request whose answer bears our name, errors of the library included."""

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        response.headers["Server"] = SERVER_NAME
        response.headers["Connection"] = "close"
        response.force_close()


class HttpService:
    """All HTTP listeners. Owner: the supervisor."""

    def __init__(self, loop: asyncio.AbstractEventLoop, log: Log, pages: Pages, metrics: MetricsPage) -> None:
        self._loop = loop
        self._log = log
        self._pages = pages
        self._metrics = metrics
        self._gate = Gate(loop)
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
            keepalive_timeout=0,  # the guard has the time
            lingering_time=0,
        )

    @property
    def open_listeners(self) -> Iterable[Listener]:
        """The listeners that take connections."""
        return self._open.values()

    def counts(self) -> HttpCounts:
        """What this service counts of itself."""
        return HttpCounts(self._requests, self._gate.refused, self._gate.connections, self._metrics.cost)

    def bind(self, config: ListenerConfig, found: Found | None = None) -> Listener:
        """Open a listener without taking connections yet. Raises ListenError. found: what its host stands for."""
        listener = self._bound[config.name] = Listener(config, found)
        return listener

    def listen(self, name: str) -> Listener:
        """Begin to take connections on a bound listener. Raises ListenError; the listener is closed then."""
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
        """Take connections of a listener that listens already: one that comes at run time."""
        name = listener.config.name
        self._bound[name] = self._open[name] = listener
        for opened in listener.sockets:
            self._loop.add_reader(opened, self._accept, listener, opened)

    def close(self, name: str) -> None:
        """Close a listener; connections that it took are answered. Does nothing if there is none of this name."""
        listener = self._bound.pop(name, None)
        if listener is None:
            return
        if self._open.pop(name, None) is not None:
            for opened in listener.sockets:
                self._loop.remove_reader(opened)
        listener.close()

    async def stop(self) -> None:
        """Close everything."""
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
                accepted, _ = opened.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _OF_THE_PEER:
                    continue
                self._rest(listener, opened, error)
                return
            accepted.setblocking(False)
            task = self._loop.create_task(self._connect(listener.config, accepted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connect(self, config: ListenerConfig, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: Guard(self._gate, config, self._server), accepted)
        except OSError as error:  # gone already
            self._log.debug("HTTP", f"Connection to listener {config.name} failed: {error.strerror}")
            accepted.close()
        except Exception:  # noqa: BLE001 - logged with its trace
            self._log.critical("HTTP", f"Connection to listener {config.name}: {traceback.format_exc()}".rstrip())
            accepted.close()

    def _rest(self, listener: Listener, opened: socket.socket, error: OSError) -> None:
        """Accepting is impossible for a reason that will pass: try again later."""
        text = f"Accepting connections rests for {RETRY_AFTER} seconds: {error.strerror}"
        self._log.repeated(WARNING, "HTTP", "rests", text)
        self._loop.remove_reader(opened)

        def resume() -> None:
            if self._open.get(listener.config.name) is listener:
                self._loop.add_reader(opened, self._accept, listener, opened)

        self._loop.call_later(RETRY_AFTER, resume)

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        guard = request.transport.get_protocol() if request.transport is not None else None
        if not isinstance(guard, Guard):
            raise ConnectionResetError("the client has gone")
        guard.asked()
        answer = await self._pages.answer(guard.listener, request.method, request.path, request.headers)
        self._requests[answer.page, answer.status] += 1
        if self._log.enabled("HTTP", DEBUG):
            self._log.debug("HTTP", f"{request.remote} {request.method} {request.path[:80]!r}: {answer.status}")
        return _response(answer)


def _response(answer: Answer) -> web.Response:
    headers = {"Content-Type": answer.content_type, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return web.Response(status=answer.status, body=answer.body, headers={**headers, **(answer.headers or {})})


class _LogHandler(logging.Handler):
    """Writes what the library logs into the router's log: bad requests at debug, all else as a warning."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        text = record.getMessage() + (f": {type(error).__name__}: {error}" if error is not None else "")
        if isinstance(error, HttpProcessingError):
            self._log.write(DEBUG, "HTTP", text)
        else:
            self._log.repeated(WARNING, "HTTP", "" if error is None else place(error), text)


def _logger(log: Log) -> logging.Logger:
    """A logger of its own, outside of the library's tree."""
    logger = logging.Logger("supervisor.http", logging.INFO)
    logger.addHandler(_LogHandler(log))
    return logger


def make(
    loop: asyncio.AbstractEventLoop, log: Log, router: RouterConfig, version: str, core: Core, region: Region,
    counters: AddressCounters, health: Health,
) -> HttpService:  # fmt: skip
    """The service with all its parts."""
    metrics = MetricsPage()
    service = HttpService(loop, log, Pages(metrics, health), metrics)
    collector = Collector(core, region, counters, metrics.pause)
    metrics.use(collector, Builder(router, version, core, region, health, service.counts))
    return service
