"""The connectors of a running router: attempts, timers, and the connections that came of them."""
import asyncio
import socket
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from router.config.build import MAX_USER
from router.config.entities import ConnectorConfig
from router.ipc.control import Initiate
from router.log import ERROR, WARNING, Log
from supervisor.acceptor import Acceptor
from supervisor.connections import Connection, Ending, describe_opened
from supervisor.connectors import password
from supervisor.connectors.dial import DialError, dial
from supervisor.connectors.ring import Entry
from supervisor.connectors.state import ConnectorState
from supervisor.core import Core
from supervisor.names import MAX_RESOLVERS
from supervisor.neighbours import INTER_ROUTER
from supervisor.threads import Threads

MAX_LOGIN: Final = MAX_USER  # octets of user and password together
MAX_PASSWORD_FILES: Final = 16  # that are read at a time
PASSWORD_SECONDS: Final = 5.0  # for reading one
_LEVELS: Final = {"error": ERROR, "warning": WARNING}


class Connectors:
    """All connectors. Owner: supervisor. changed(): called when there is something to send to workers."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        core: Core,
        acceptor: Acceptor,
        log: Log,
        changed: Callable[[], object],
    ) -> None:
        self.loop: Final = loop
        self.resolvers: Final = Threads(loop, "resolver", MAX_RESOLVERS)
        self.files: Final = Threads(loop, "password", MAX_PASSWORD_FILES)
        self.core: Final = core
        self.acceptor: Final = acceptor
        self.log: Final = log
        self.changed: Final = changed
        self._running: dict[str, _Connector] = {}  # by name

    def replace(self, wanted: Iterable[ConnectorConfig]) -> None:
        """Have these connectors, and no others. One that stays keeps its connection unless host or port change."""
        configs = {config.name: config for config in wanted}
        for gone in [running.config for name, running in self._running.items() if name not in configs]:
            self.remove(gone)
        for name, config in configs.items():
            running = self._running.get(name)
            if running is None:
                self.add(config)
            elif running.config != config:
                running.change(config)
        self.changed()

    def add(self, config: ConnectorConfig) -> None:
        """Have a further one."""
        self._running[config.name] = _Connector(self, config)

    def remove(self, config: ConnectorConfig) -> None:
        """Have one no more."""
        self._running.pop(config.name).delete()

    def shown(self, config: ConnectorConfig) -> Mapping[str, Any]:
        """The live attributes of a connector (management specification 6.6)."""
        running = self._running.get(config.name)
        state = _state(config) if running is None else running.state
        return {
            "connectionStatus": state.status.value,
            "connectionMsg": state.message,
            "failoverUrls": state.ring.urls,
        }

    def stop(self) -> None:
        """The router ends: try nothing any more."""
        for running in self._running.values():
            running.stop()


class _LoginError(Exception):
    """There is no logging in; the text says why."""


class _Connector:
    """One connector that runs. Owner: the connectors."""

    def __init__(self, owner: Connectors, config: ConnectorConfig) -> None:
        self.config = config
        self.state = _state(config)
        self._owner = owner
        self._offer: str | None = None  # what workers know its attributes by, once all of them do
        self._connection: Connection | None = None  # the present one, open or not yet
        self._attempt: asyncio.Task[None] | None = None
        self._inquiry: asyncio.Task[None] | None = None  # about the file of the password
        self._timer: asyncio.TimerHandle | None = None
        self._configured()
        self._make_offer()

    # Configuration

    def change(self, config: ConnectorConfig) -> None:
        """Go by another configuration: at once where it is about host or port, else from the next connection on."""
        moved = config.place != self.config.place
        self.config = config
        self._configured()
        if moved:
            self._drop()
            self.state = _state(config)
        self._make_offer()

    def delete(self) -> None:
        """Close the connection, and try nothing any more."""
        self._owner.log.info("CONN_MGR", f"Deleted Connector: {self.config.place}")
        self._drop()
        if self._offer is not None:
            self._owner.core.offers.retire(self._offer)
            self._offer = None

    def _drop(self) -> None:
        self.state.delete()
        self.stop()
        if self._connection is not None:
            self._owner.core.close(self._connection)
            self._connection = None

    def stop(self) -> None:
        """Try nothing any more."""
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
        config, log = self.config, self._owner.log
        family = config.family or "any"
        log.info("CONN_MGR", f"Configured Connector: {config.place} proto={family}, role={config.role}")
        if config.sasl_password is None:
            return
        if password.in_file(config.sasl_password):
            self._inquiry = self._owner.loop.create_task(self._look_at(config.sasl_password))
        else:
            self._remark(password.find(config.sasl_password))

    async def _look_at(self, written: str) -> None:
        """Say what is wrong with the file of the password, if anything."""
        try:
            self._remark(await self._find(written))
        except Exception:  # noqa: BLE001 - logged with its trace
            self._owner.log.critical("CONN_MGR", f"Password not looked for: {traceback.format_exc()}".rstrip())

    async def _find(self, written: str) -> password.Password:
        if not password.in_file(written):
            return password.find(written)
        try:
            return await self._owner.files.run(lambda: password.find(written), PASSWORD_SECONDS)
        except OSError as error:
            path = written.partition(":")[2]
            return password.Password(written, password.not_read(path, error.strerror or str(error)))

    def _remark(self, found: password.Password) -> None:
        if found.remark is not None:
            module, level, text = found.remark
            self._owner.log.write(_LEVELS[level], module, text)

    def _make_offer(self) -> None:
        """Tell the workers what the connection may do; when they know, it is used."""
        core, config = self._owner.core, self.config
        offer, epoch = core.offers.add(config)
        core.epochs.call_when_all(epoch, lambda: self._offered(config, offer))

    def _offered(self, config: ConnectorConfig, offer: str) -> None:
        if self.config is not config or self.state.closing:
            self._owner.core.offers.retire(offer)
            return
        if self._offer is not None:
            self._owner.core.offers.retire(self._offer)
        self._offer = offer
        if self._connection is None and self._attempt is None and self._timer is None:
            self._begin()

    # Attempts

    def _begin(self) -> None:
        self._timer = None
        number = self._owner.core.take_connection_number()
        self._attempt = self._owner.loop.create_task(self._try(number, self.state.begin()))

    async def _try(self, number: int, entry: Entry) -> None:
        """One attempt. Whatever comes of it, another one follows, unless the connection is handed over."""
        opened: socket.socket | None = None
        try:
            login = await self._login()
            opened = await dial(entry, self._owner.resolvers)
            self._attempt = None
            self._hand_over(number, entry, opened, login)
        except (DialError, _LoginError) as error:
            self._attempt = None
            self._failed(number, str(error))
        except Exception as error:  # noqa: BLE001 - logged with its trace, and tried again
            self._attempt = self._connection = None
            if opened is not None:
                opened.close()
            trace = traceback.format_exc().rstrip()
            self._owner.log.critical("SERVER", f"[C{number}] Connection to {self.config.place}: {trace}")
            self._failed(number, f"amqp:internal-error {error}")

    async def _login(self) -> Initiate:
        """What the worker has to know to log in. Raises _LoginError."""
        config = self.config
        initiate: Initiate = {"host": "", "user": config.sasl_username}
        if config.sasl_username is not None and config.sasl_password is not None:
            initiate["password"] = (await self._find(config.sasl_password)).text
            if len(f"{config.sasl_username}{initiate['password']}".encode()) > MAX_LOGIN:
                raise _LoginError("amqp:unauthorized-access user name and password are too long for SASL")
        return initiate

    def _failed(self, number: int, reason: str) -> None:
        text = f"[C{number}] Connection to {self.config.place} failed: {reason}"
        self._owner.log.info("SERVER", text)
        self._again(self.state.failed(text))

    def _hand_over(self, number: int, entry: Entry, opened: socket.socket, login: Initiate) -> None:
        config, owner = self.config, self._owner
        assert self._offer is not None
        login["host"] = entry.host
        self._connection = owner.core.initiate(number, config, self._offer, self, login)
        owner.acceptor.give(self._connection, opened)

    def _again(self, seconds: float) -> None:
        if not self.state.closing:
            self._timer = self._owner.loop.call_later(seconds, self._begin)

    # What becomes of the connection

    def opened(self, connection: Connection) -> None:
        """It is open."""
        if connection is self._connection:
            self.state.opened(describe_opened(connection), connection.properties)
        else:
            self._owner.core.close(connection)  # the worker had not got it yet when it was to be closed

    def ended(self, connection: Connection, ending: Ending, text: str) -> None:
        """It has ended, or failed to open."""
        if connection is not self._connection:
            return
        self._connection = None
        if ending is Ending.FAILED:
            self._again(self.state.failed(text))
        elif ending is Ending.ORPHANED:
            self._again(self.state.worker_died())
        else:
            self._again(self.state.ended())


def _state(config: ConnectorConfig) -> ConnectorState:
    """That of a connector that has done nothing yet."""
    return ConnectorState(config.host, config.port_text, to_router=config.role == INTER_ROUTER)
