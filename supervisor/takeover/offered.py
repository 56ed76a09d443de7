"""Router as a new router process takes it over: its listening sockets, and its drain."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Final

from sluice.router.version import VERSION
from sluice.supervisor.composition import RouterCore, Services
from sluice.supervisor.configuration.live import LiveConfiguration
from sluice.supervisor.drain.drain import DEFAULT_GRACE, HandOver, RouterDrain
from sluice.supervisor.service_manager import ServiceManager
from sluice.supervisor.takeover.messages import Handed, HandedSocket, Peer


class OfferedRouter:
    """Router that can be taken over (`RunningRouter`). Owner: the supervisor."""

    def __init__(
        self,
        core: RouterCore,
        services: Services,
        live: LiveConfiguration,
        drain: RouterDrain,
        manager: ServiceManager,
        is_ending: Callable[[], bool],
    ) -> None:
        self._core: Final = core
        self._services: Final = services
        self._live: Final = live
        self._drain: Final = drain
        self._manager: Final = manager
        self._is_ending: Final = is_ending
        self._finishing: asyncio.Task[None] | None = None

    @property
    def identity(self) -> tuple[str, str]:
        """See RunningRouter."""
        return self._live.configuration.router.id, VERSION

    def refusal(self) -> str | None:
        """See RunningRouter."""
        return "the router is about to exit" if self._is_ending() or self._drain.active else None

    def handed(self) -> tuple[Handed, Sequence[socket.socket]]:
        """See RunningRouter."""
        found = [
            (HandedSocket(listener.config.name, hosts=() if listener.config.port else listener.config.hosts), opened)
            for listener in (*self._services.acceptor.listeners, *self._services.http.open_listeners)
            for opened in listener.own_sockets
        ]
        inherited = self._core.inherited_sockets.of_manager
        found += [(HandedSocket(name, by_manager=True), opened) for name, opened in inherited]
        notify, watchdog = self._manager.variables
        handed = Handed([described for described, _ in found], notify=notify, watchdog=watchdog)
        return handed, [opened for _, opened in found]

    def hand_over(self, to: Peer, taken: Sequence[socket.socket], yielded: Callable[[], None]) -> None:
        """See RunningRouter."""

        async def finish() -> None:
            await self._core.history.hand_over()  # before the new router reads the file
            self._manager.hand_over(to.pid)  # before the new router notifies the service manager
            yielded()

        def begin_to_finish() -> None:
            self._finishing = asyncio.get_running_loop().create_task(finish())

        router = self._live.configuration.router
        seconds = router.shutdown_grace_seconds or DEFAULT_GRACE
        reason = f"Take-over by process {to.pid}"
        self._drain.begin(seconds, router.shutdown_connections_per_second, reason, HandOver(taken, begin_to_finish))
