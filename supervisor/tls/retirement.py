"""Retirement of connections made with replaced credentials, a few at a time, so that clients reconnect gradually."""

from collections import deque
from collections.abc import Mapping
from typing import Final

from sluice.router.config.entities import SslProfileConfig
from sluice.router.control.messages import Opened
from sluice.router.log import ProcessLog
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.connections.registry import Connections
from sluice.supervisor.runtime.waker import Cancellable, Waker
from sluice.supervisor.subsystem import Subsystem
from sluice.supervisor.tls.profiles import TlsProfiles

FORCED: Final = "amqp:connection:forced"
STEPS_A_SECOND: Final = 20  # limit; at a high rate each step closes several connections
LEAST_A_SECOND: Final = 10
MOST_SECONDS: Final = 300  # time limit for the retirement of all connections; the rate follows from their number


class Retirement(Subsystem):
    """Connections that wait for their retirement. Owner: the core."""

    def __init__(
        self,
        profiles: TlsProfiles,
        connections: Connections,
        workers: Mapping[int, WorkerProcess],
        waker: Waker,
        log: ProcessLog,
    ) -> None:
        self._connections: Final = connections
        self._workers: Final = workers
        self._waker: Final = waker
        self._log: Final = log
        self._waiting: dict[str, deque[RegisteredConnection]] = {}  # open connections, by name of the profile
        self._pace: dict[str, int] = {}  # connections per second, by name of the profile
        self._timers: dict[str, Cancellable] = {}
        self._unopened: dict[int, RegisteredConnection] = {}  # connections that are to be retired when they have opened
        profiles.on_credentials_replaced(self._replaced)

    def _replaced(self, config: SslProfileConfig, epoch: int) -> None:
        """Retire the connections that a worker received before it acknowledged the new credentials.

        These connections were made with older credentials, or may have been.
        """
        if not config.retires_old:
            return
        name = config.name
        waiting = self._waiting.setdefault(name, deque())
        known = {connection.number for connection in waiting}
        for worker in self._workers.values():
            for number, connection in worker.connections.items():
                if connection.origin.ssl_profile != name or number in known or connection.epoch >= epoch:
                    continue
                if not connection.opened:
                    self._unopened[number] = connection
                elif connection.tls is not None:
                    waiting.append(connection)
        self._pace[name] = pace = max(LEAST_A_SECOND, -(-len(waiting) // MOST_SECONDS))
        if waiting:
            unit = "connection" if len(waiting) == 1 else "connections"
            text = f"closing {len(waiting)} {unit} with its previous credentials, {pace} a second"
            self._log.notice("CONN_MGR", f"sslProfile '{name}': {text}")
        self._go_on(name)

    def connection_opened(self, connection: RegisteredConnection, message: Opened) -> None:
        name = connection.origin.ssl_profile
        if self._unopened.pop(connection.number, None) is None or connection.tls is None or name is None:
            return
        self._waiting.setdefault(name, deque()).append(connection)
        self._go_on(name)

    def connection_closed(self, connection: RegisteredConnection) -> None:
        self._unopened.pop(connection.number, None)

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers = {}
        self._waiting = {}

    def _go_on(self, name: str) -> None:
        if self._waiting.get(name) and name not in self._timers:
            pace = self._pace[name]
            self._timers[name] = self._waker.later(_at_a_time(pace) / pace, lambda: self._step(name))

    def _step(self, name: str) -> None:
        del self._timers[name]
        waiting, left = self._waiting[name], _at_a_time(self._pace[name])
        text = f"The credentials of sslProfile '{name}' have been replaced: connect again"
        while waiting and left:
            connection = waiting.popleft()
            if connection.opened and not connection.closing and connection.number in self._connections.opened:
                self._connections.close(connection, FORCED, text)
                left -= 1
        self._waker.wake()
        self._go_on(name)


def _at_a_time(pace: int) -> int:
    """Return the number of connections to close in one step."""
    return -(-pace // STEPS_A_SECOND)
