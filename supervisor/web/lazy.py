"""Loading of the HTTP service on demand, because its libraries take long to load."""

import asyncio
import socket
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Final, Protocol

from sluice.router.config.entities import ListenerConfig
from sluice.router.log import ProcessLog
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.listeners.inherited_sockets import InheritedSockets
from sluice.supervisor.listeners.listener import Listener
from sluice.supervisor.runtime.host_names import HostAddresses
from sluice.supervisor.runtime.threads import Threads
from sluice.supervisor.subsystem import Subsystem
from sluice.supervisor.web.http_counts import HttpCounts

_MODULE: Final = "sluice.supervisor.web.server"


class HttpListeners(Protocol):
    """Interface of the HTTP service for opening and closing listeners."""

    @property
    def open_listeners(self) -> Iterable[Listener]:
        """Return the listeners that accept connections."""

    @property
    def connections(self) -> int:
        """Return the number of accepted connections."""

    def bind(
        self, config: ListenerConfig, found: HostAddresses | None = None, inherited: InheritedSockets | None = None
    ) -> Listener:
        """Bind a listener without accepting connections yet. Raises ListenError."""

    def listen(self, name: str) -> Listener:
        """Accept connections on a bound listener. Raises ListenError."""

    def add(self, listener: Listener) -> None:
        """Accept connections of a listener that listens already."""

    def close(self, name: str) -> None:
        """Close the listener of this name, if there is one."""

    def answer_page(self, worker: WorkerProcess, number: int, opened: socket.socket, certified: bool) -> None:
        """Answer an HTTPS client whose connection belongs to a worker. number: of that connection. certified: the
        client has presented a certificate."""

    def counts(self) -> HttpCounts:
        """Return the counters of the service."""

    async def stop(self) -> None:
        """Close all listeners and connections."""


class LazyHttp(Subsystem):
    """Creator of the HTTP service for the first HTTP listener. Owner: supervisor."""

    def __init__(self, loop: asyncio.AbstractEventLoop, make: Callable[[], HttpListeners], log: ProcessLog) -> None:
        """make(): loads the modules, unless they are loaded, and creates the service."""
        self._loop: Final = loop
        self._threads: Final = Threads(loop, "HTTP", 1)
        self._make: Final = make
        self._log: Final = log
        self._service: HttpListeners | None = None

    def service(self) -> HttpListeners:
        """Return the service, creating it if needed."""
        if self._service is None:
            self._service = self._make()
        return self._service

    def answer_page(self, worker: WorkerProcess, number: int, opened: socket.socket, certified: bool) -> None:
        """Answer an HTTPS client whose connection belongs to a worker. number: of that connection. certified: the
        client has presented a certificate."""
        self.service().answer_page(worker, number, opened, certified)

    @property
    def open_listeners(self) -> Iterable[Listener]:
        """Return the HTTP listeners that accept connections."""
        return () if self._service is None else self._service.open_listeners

    def gather(self, change: ConfigurationChange) -> "asyncio.Future[None] | None":
        """Load the libraries in a thread."""
        if _MODULE in sys.modules or not change.concerns(ListenerConfig):
            return None
        wanted = change.new.listeners if change.whole else change.made(ListenerConfig)
        return self._loop.create_task(self._load()) if any(listener.http for listener in wanted) else None

    async def _load(self) -> None:
        try:
            await self._threads.run(lambda: import_module(_MODULE))
        except Exception as error:  # noqa: BLE001 - raised again when the service is created, and answered there
            self._log.error("HTTP", f"The HTTP service cannot be loaded, so no HTTP listener can be opened: {error!r}")

    def release(self) -> None:
        """Close all HTTP listeners, because another process takes over. Accepted clients are still answered."""
        for listener in list(self.open_listeners):
            self.service().close(listener.config.name)

    @property
    def connections(self) -> int:
        """Number of accepted connections."""
        return 0 if self._service is None else self._service.connections

    @property
    def counts(self) -> HttpCounts | None:
        """Counters of the service; None if it has not been created."""
        return None if self._service is None else self._service.counts()

    async def close(self) -> None:
        """Close the service. Until then it reports the shutdown."""
        if self._service is not None:
            await self._service.stop()
