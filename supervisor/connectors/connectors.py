"""Connectors of a running router: attempts, timers, connections (brokers-and-edge.md 2.3, 2.7)."""

import asyncio
import socket
import traceback
from collections.abc import Iterable, Mapping
from typing import Any, Final

from sluice.router.config import password
from sluice.router.config.build import MAX_USER
from sluice.router.config.entities import Configuration, ConnectorConfig
from sluice.router.config.roles import EDGE, INTER_EDGE, INTER_ROUTER, ROUTE_CONTAINER
from sluice.router.control.handover import InitiateData
from sluice.router.log import ERROR, NOTICE, WARNING, ProcessLog
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.connections.connections import ConnectionEnd, RegisteredConnection, describe_opened
from sluice.supervisor.connections.registry import Connections
from sluice.supervisor.connectors.dial import DialError, dial, port_number
from sluice.supervisor.connectors.failover import FailoverEntry
from sluice.supervisor.connectors.proxy import dial_through
from sluice.supervisor.connectors.state import ConnectorState
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.listeners.acceptor import Acceptor
from sluice.supervisor.listeners.profiles import ListenerProfiles
from sluice.supervisor.runtime.availability import Availability, AvailabilityLog
from sluice.supervisor.runtime.host_names import MAX_RESOLVERS
from sluice.supervisor.runtime.threads import Threads
from sluice.supervisor.runtime.waker import Waker
from sluice.supervisor.subsystem import LiveAttributes, Subsystem

MAX_LOGIN: Final = MAX_USER  # maximum octets of user name and password together
MAX_PASSWORD_FILES: Final = 16  # maximum number of password files that are read at a time
PASSWORD_SECONDS: Final = 5.0  # time limit for reading a password file
_LEVELS: Final = {"error": ERROR, "warning": WARNING}


class Connectors(Subsystem):
    """Subsystem of all connectors. Owner: supervisor."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connections: Connections,
        profiles: ListenerProfiles,
        journal: Journal,
        acceptor: Acceptor,
        waker: Waker,
        log: ProcessLog,
    ) -> None:
        self.loop: Final = loop
        self.resolvers: Final = Threads(loop, "resolver", MAX_RESOLVERS)
        self.files: Final = Threads(loop, "password", MAX_PASSWORD_FILES)
        self.connections: Final = connections
        self.profiles: Final = profiles
        self.journal: Final = journal
        self.acceptor: Final = acceptor
        self.waker: Final = waker
        self.log: Final = log
        self.uplinks = False  # True: this edge router uses several uplinks at a time
        self.ending = False  # True: the router is about to exit, so nothing is tried again
        self._running: dict[str, list[_Connector]] = {}  # by name; one `_Connector` for each parallel connection
        self._availability: dict[str, Availability] = {}  # by name
        self._changes: Final = AvailabilityLog("Connector", "CONN_MGR", waker.later, log)

    def start(self, configuration: Configuration) -> None:
        self.uplinks = configuration.router.all_uplinks
        self.replace(configuration.connectors)

    def commit(self, change: ConfigurationChange) -> None:
        if change.whole:
            self.replace(change.new.connectors)
        for connector in change.removed(ConnectorConfig):
            self.remove(connector)
        for connector in change.made(ConnectorConfig):
            self.add(connector)

    def live_attributes(self) -> Mapping[str, LiveAttributes]:
        return {ConnectorConfig.type: self.shown}

    def replace(self, wanted: Iterable[ConnectorConfig]) -> None:
        """Replace all connectors. A connector that stays keeps its connection unless its host or port changes."""
        configs = {config.name: config for config in wanted}
        for gone in [running[0].config for name, running in self._running.items() if name not in configs]:
            self.remove(gone)
        for name, config in configs.items():
            running = self._running.get(name)
            if running is None:
                self.add(config)
            elif running[0].config != config:
                self._change(running, config)
        self.waker.wake()

    def _change(self, running: "list[_Connector]", config: ConnectorConfig) -> None:
        while len(running) > config.parallel_connections:
            running.pop().delete()
            self.note_closed(config.name, "it has fewer parallel connections now")
        for connector in running:
            connector.change(config)
        while len(running) < config.parallel_connections:
            running.append(_Connector(self, config, len(running)))

    def add(self, config: ConnectorConfig) -> None:
        """Add a connector."""
        self._availability[config.name] = Availability(config.name)
        self._running[config.name] = [_Connector(self, config, index) for index in range(config.parallel_connections)]

    def remove(self, config: ConnectorConfig) -> None:
        """Remove a connector."""
        self._changes.forget(self._availability.pop(config.name))
        for connector in self._running.pop(config.name):
            connector.delete()

    def shown(self, config: ConnectorConfig) -> Mapping[str, Any]:
        """Return the live attributes of a connector, taken from its first connection (management.md 6.6)."""
        running = self._running.get(config.name)
        state = _state(config) if running is None else running[0].state
        availability = self._availability.get(config.name) or Availability(config.name)
        return {
            "connectionStatus": state.status.value,
            "connectionMsg": state.message,
            "failoverUrls": state.ring.urls,
            "up": availability.up,
            "stateSeconds": int(availability.seconds),
            "attempts": availability.attempts,
            "downReason": availability.error or None,
        }

    def states(self) -> list[tuple[ConnectorConfig, Availability]]:
        """Return all connectors with their availability. A connector is up while one of its connections is open."""
        return [(running[0].config, self._availability[name]) for name, running in self._running.items()]

    def count_attempt(self, name: str) -> None:
        """Count an attempt to open a connection of a connector."""
        self._availability[name].attempts += 1

    def note_opened(self, name: str) -> None:
        """Note that a connection of a connector is open."""
        self._changes.rise(self._availability[name])

    def note_down(self, name: str, reason: str) -> None:
        """Note that a connection of a connector has ended or failed to open."""
        if not self.ending and not any(connector.is_open for connector in self._running.get(name, ())):
            self._changes.fall(self._availability[name], reason)

    def note_closed(self, name: str, reason: str) -> None:
        """Note that the router has closed a connection of a connector, which may not have been open."""
        if self._availability[name].up:
            self.note_down(name, reason)

    def stop(self) -> None:
        """End all attempts, and begin no others; existing connections stay."""
        self.ending = True
        for running in self._running.values():
            for connector in running:
                connector.stop()


class _LoginError(Exception):
    """Raised when the router cannot log in at the peer; the text is the reason."""


class _Connector:
    """Parallel connection of a connector, with its attempts. Owner: the connectors."""

    def __init__(self, owner: Connectors, config: ConnectorConfig, index: int) -> None:
        """Announce the profile; attempts begin once all workers have it.

        index: index among the parallel connections. Index 0 logs and reports for the whole connector.
        """
        self.config = config
        self.is_open = False  # the present connection is open
        self._first = index == 0
        self.state = _state(config)
        self._owner = owner
        self._profile: str | None = None  # key of its profile, once all workers have it
        self._connection: RegisteredConnection | None = None  # the present connection, open or not yet
        self._worker: int | None = None  # index of the worker that had the last connection
        self._attempt: asyncio.Task[None] | None = None  # task that dials
        self._inquiry: asyncio.Task[None] | None = None  # task that checks the password file
        self._timer: asyncio.TimerHandle | None = None  # timer of the next attempt
        self._configured()
        self._make_profile()

    # Configuration

    def change(self, config: ConnectorConfig) -> None:
        """Use a new configuration: at once if host or port differs, otherwise from the next connection on."""
        moved = config.place != self.config.place
        self.config = config
        self._configured()
        if not config.allow_redirect:
            self.state.ring.drop_announced()
        if moved:
            self._drop()
            self.state = _state(config)
            self._owner.note_closed(config.name, "its host or port has changed")
        self._make_profile()

    def delete(self) -> None:
        """Close the connection and end all attempts."""
        if self._first:
            self._owner.log.info("CONN_MGR", f"Deleted Connector: {self.config.place}")
        self._drop()
        if self._profile is not None:
            self._owner.profiles.retire(self._profile)
            self._profile = None

    def _drop(self) -> None:
        self.is_open = False
        self.state.delete()
        self.stop()
        if self._connection is not None:
            self._owner.connections.close(self._connection)
            self._connection = None

    def stop(self) -> None:
        """End all attempts; an existing connection stays."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._attempt is not None:
            self._attempt.cancel()
            self._attempt = None
        if self._inquiry is not None:
            self._inquiry.cancel()
            self._inquiry = None

    def _configured(self) -> None:
        # brokers-and-edge.md C-2.
        if not self._first:
            return
        config, log = self.config, self._owner.log
        family = config.family or "any"
        tls = f", sslProfile={config.ssl_profile}" if config.ssl_profile else ""
        log.info("CONN_MGR", f"Configured Connector: {config.place} proto={family}, role={config.role}{tls}")
        if config.sasl_password is None:
            return
        if password.in_file(config.sasl_password):
            self._inquiry = self._owner.loop.create_task(self._check_password_file(config.sasl_password))
        else:
            self._remark(password.find(config.sasl_password))

    async def _check_password_file(self, written: str) -> None:
        """Log an error of the password file, if any."""
        try:
            self._remark(await self._find(written))
        except Exception:  # noqa: BLE001 - logged with its trace
            text = f"Connector {self.config.place}: internal error while reading its password: {traceback.format_exc()}"
            self._owner.log.critical("CONN_MGR", text.rstrip())

    async def _find(self, written: str) -> password.Password:
        if not password.in_file(written):
            return password.find(written)
        try:
            return await self._owner.files.run(lambda: password.find(written), PASSWORD_SECONDS)
        except OSError as error:
            path = password.file_of(written) or ""
            return password.Password(written, password.not_read(path, error.strerror or str(error)))

    def _remark(self, found: password.Password) -> None:
        if found.remark is not None:
            module, level, text = found.remark
            self._owner.log.write(_LEVELS[level], module, text)

    def _make_profile(self) -> None:
        """Announce a profile for the present configuration; it is used once all workers have it."""
        owner, config = self._owner, self.config
        profile, epoch = owner.profiles.add(config)
        owner.journal.call_when_acknowledged(lambda: self._use_profile(config, profile), epoch)

    def _use_profile(self, config: ConnectorConfig, profile: str) -> None:
        if self.config is not config or self.state.closing:
            self._owner.profiles.retire(profile)
            return
        if self._profile is not None:
            self._owner.profiles.retire(self._profile)
        self._profile = profile
        if self._connection is None and self._attempt is None and self._timer is None:
            self._begin()

    # Attempts

    def _begin(self) -> None:
        self._timer = None
        self._owner.count_attempt(self.config.name)
        number = self._owner.connections.take_number()
        self._attempt = self._owner.loop.create_task(self._try(number, self.state.begin()))

    async def _try(self, number: int, entry: FailoverEntry) -> None:
        """Make one attempt. Another attempt follows unless the connection is handed over to a worker."""
        opened: socket.socket | None = None
        try:
            login = await self._login()
            if self.config.websockets:
                login.port = str(port_number(entry.port))
            opened = await self._dial(entry)
            self._attempt = None
            self._hand_over(number, entry, opened, login)
        except (DialError, _LoginError) as error:
            self._attempt = None
            self._failed(number, str(error))
        except Exception as error:  # noqa: BLE001 - logged with its trace; another attempt follows
            self._attempt = self._connection = None
            if opened is not None:
                opened.close()
            trace = traceback.format_exc().rstrip()
            text = f"[C{number}] Internal error while connecting to {self.config.place}: {trace}"
            self._owner.log.critical("SERVER", text)
            self._failed(number, f"amqp:internal-error {error}")

    async def _dial(self, entry: FailoverEntry) -> socket.socket:
        """Open a TCP connection, through a proxy if one is configured. Raises DialError."""
        proxy = self.config.proxy
        if proxy is None:
            return await dial(entry, self._owner.resolvers)
        secret = "" if proxy.password is None else (await self._find(proxy.password)).text
        return await dial_through(proxy, secret, entry, self._owner.resolvers)

    async def _login(self) -> InitiateData:
        """Return the data that the worker needs to log in. Raises _LoginError. security.md S-12."""
        config = self.config
        initiate = InitiateData("", config.sasl_username)
        if config.role in (EDGE, INTER_EDGE):
            initiate.mark = self._owner.connections.mark
            initiate.uplinks = self._owner.uplinks and config.role == EDGE
        if config.sasl_username is not None and config.sasl_password is not None:
            initiate.password = (await self._find(config.sasl_password)).text
            if len(f"{config.sasl_username}{initiate.password}".encode()) > MAX_LOGIN:
                raise _LoginError("amqp:unauthorized-access user name and password are too long for SASL")
        return initiate

    def _failed(self, number: int, reason: str) -> None:
        text = f"[C{number}] Connection to {self.config.place} failed: {reason}"
        self._owner.log.info("SERVER", text)
        self._owner.note_down(self.config.name, reason)
        self._again(self.state.failed(text))

    def _hand_over(self, number: int, entry: FailoverEntry, opened: socket.socket, login: InitiateData) -> None:
        config, owner = self.config, self._owner
        assert self._profile is not None
        login.host = entry.host
        self._connection = owner.connections.initiate(number, config, self._profile, self, login)
        self.state.connected(number)
        # A broker returns to the worker that keeps what waits for it (docs/internals/links.md, "Suspended links").
        owner.acceptor.give(self._connection, opened, self._former_worker())

    def _former_worker(self) -> WorkerProcess | None:
        """Return the worker of the last connection to a broker, if it takes connections."""
        if self._worker is None or self.config.role != ROUTE_CONTAINER:
            return None
        return self._owner.acceptor.worker(self._worker)

    def _again(self, seconds: float) -> None:
        if not (self.state.closing or self._owner.ending):
            self._timer = self._owner.loop.call_later(seconds, self._begin)

    # Events of the connection

    def opened(self, connection: RegisteredConnection) -> None:
        """Handle the peer's open."""
        if connection is self._connection:
            self._worker = connection.worker
            self._opened(describe_opened(connection), connection.properties)
            self.is_open = True
            self._owner.note_opened(self.config.name)
        else:
            self._owner.connections.close(connection)  # the connector dropped it before the worker had received it

    def _opened(self, text: str, properties: Mapping[str, Any] | None) -> None:
        """Note the peer's open, and the addresses that it names, to which the router may connect from here on."""
        before = self.state.ring.urls
        self.state.opened(text, properties if self.config.allow_redirect else None)
        if self.state.ring.urls != before:
            named = f"Connector '{self.config.name}': its peer names addresses to fail over to: {self.state.ring.urls}"
            self._owner.log.repeated(NOTICE, "CONN_MGR", f"failover {self.config.name}", named)

    def ended(self, connection: RegisteredConnection, ending: ConnectionEnd, text: str) -> None:
        """Schedule the next attempt after the connection has ended or failed to open."""
        if connection is not self._connection:
            return
        self._connection = None
        self.is_open = False
        self._owner.note_down(self.config.name, connection.end_reason)
        if ending is ConnectionEnd.FAILED:
            self._again(self.state.failed(text))
        elif ending is ConnectionEnd.ORPHANED:
            self._again(self.state.worker_died())
        else:
            self._again(self.state.ended())


def _state(config: ConnectorConfig) -> ConnectorState:
    """Return the initial state for a configuration."""
    return ConnectorState(config.host, config.port_text, to_router=config.role in (INTER_ROUTER, INTER_EDGE))
