"""The configuration in force, and the ways to change it. Each change is made completely or not at all.

A reload ends where a restart with the same file would, except for what takes a restart: whatever management has made
meanwhile and the file does not name goes. Decision record 0011 has the reasons. Nothing that may wait for a file system
or a name server is done in the event loop: changes that need it are made in steps, and 0018 says in which order.
"""

import asyncio
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from router.config.diff import Change
from router.config.entities import (
    AddressConfig,
    AutoLinkConfig,
    BindingConfig,
    Configuration,
    ConnectorConfig,
    EntityConfig,
    ExchangeConfig,
    LinkRouteConfig,
    ListenerConfig,
    LogConfig,
)
from router.config.errors import RequestError
from router.config.inventory import Inventory
from router.config.request import create, update
from router.config.schema import SCHEMA, EntityType
from router.log import Log, LogError, Sink, close_outputs, open_outputs
from router.routing.settings import AddressSettings
from supervisor.acceptor import Acceptor, ListenError
from supervisor.autolinks import AutoLinks
from supervisor.configure import address_entries, address_entry
from supervisor.connectors.connectors import Connectors
from supervisor.core import Core
from supervisor.exchanges import ExchangeError
from supervisor.live.errors import ChangeError
from supervisor.live.listeners import Listening
from supervisor.live.prepare import Prepared, http_loaded, load_http, without_refused
from supervisor.names import Answers
from supervisor.threads import Threads

# Seconds for which a thread that computes may keep the event loop waiting.
SWITCH_INTERVAL: Final = 0.0005
LOG_SECONDS: Final = 10.0  # for opening log files
MAX_LOG_FILES: Final = 8  # threads that do it

_NONE: Final[Answers] = {}
_Result = TypeVar("_Result")
# A change in steps: between two of them others have their turn, until the future is done where there is one. Raises
# ChangeError.
Changing = Generator["asyncio.Future[Any] | None", None, _Result]


class LiveConfiguration:
    """What the router is configured to be. Owner: supervisor.

    changed(): called when there may be something to send to workers.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        configuration: Configuration,
        core: Core,
        acceptor: Acceptor,
        listening: Listening,
        connectors: Connectors,
        autolinks: AutoLinks,
        log: Log,
        changed: Callable[[], object],
    ) -> None:
        self.loop: Final = loop
        self.core: Final = core
        self._acceptor: Final = acceptor
        self.listening: Final = listening
        self.connectors: Final = connectors
        self.autolinks: Final = autolinks
        self.log: Final = log
        self.changed: Final = changed
        self._files: Final = Threads(loop, "log files", MAX_LOG_FILES)
        # The core has logged what it refuses.
        self._inventory = Inventory(without_refused(configuration, core.settings.current)[0])
        self._held: asyncio.Future[None] | None = None  # until it is done, changes of management wait
        acceptor.limit = configuration.policy.max_connections
        sys.setswitchinterval(SWITCH_INTERVAL)

    @property
    def configuration(self) -> Configuration:
        """The configuration in force."""
        return self._inventory.configuration

    def entities(self, entity_type: str) -> Sequence[EntityConfig]:
        """All entities of a type, in order of creation."""
        return self._inventory.of_type(entity_type)

    def find(self, name: str | None, identity: str | None) -> list[EntityConfig]:
        """All entities with this name, else with this identity."""
        if name is not None:
            return self._inventory.named(name)
        return [] if identity is None else self._inventory.identified(identity)

    def start(self) -> None:
        """The router listens: what does not is tried again."""
        self.listening.expect(self.configuration.listeners)

    # Single changes

    def hold(self) -> None:
        """Let changes of management wait until `release`."""
        if self._held is None:
            self._held = self.loop.create_future()

    def release(self) -> None:
        """Let changes of management go on."""
        held, self._held = self._held, None
        if held is not None:
            held.set_result(None)

    def _turn(self) -> Changing[None]:
        """Wait while changes are held. What follows without a further step meets the configuration as it is then."""
        while self._held is not None:
            yield self._held

    def create(self, entity_type: str, name: str | None, attributes: object) -> Changing[EntityConfig]:
        """Make an entity. Raises ChangeError."""
        yield from self._turn()
        entity, warnings = self._created(entity_type, name, attributes)
        answers = _NONE
        if isinstance(entity, ListenerConfig):
            answers = yield from self._answers([entity])
            if entity.http and not http_loaded():
                yield self.loop.create_task(self._load_http())
            yield from self._turn()
            entity, warnings = self._created(entity_type, name, attributes)  # beside what has come meanwhile
        self._make([Change("create", entity.type, entity.identity, {}, "live", None, entity)], answers)
        self._log_warnings(warnings)
        return entity

    def _created(
        self, entity_type: str, name: str | None, attributes: object
    ) -> tuple[EntityConfig, list[tuple[str, str]]]:
        try:
            return create(_kind(entity_type), name, attributes, self._inventory)
        except RequestError as error:
            raise ChangeError(error.status, str(error)) from error

    def _answers(self, listeners: Sequence[ListenerConfig]) -> Changing[Answers]:
        """What the hosts of listeners stand for."""
        answers = self.listening.names.known(listeners)
        if answers is None:
            task = self.loop.create_task(self.listening.names.find(listeners))
            yield task
            answers = task.result()
        return answers

    async def _load_http(self) -> None:
        try:
            await self._files.run(load_http)
        except Exception as error:  # noqa: BLE001 - it comes up again, where it is answered
            self.log.error("HTTP", f"HTTP cannot be loaded: {error!r}")

    def update(self, entity: EntityConfig, attributes: Mapping[str, Any]) -> Changing[EntityConfig]:
        """Change attributes of an entity; None removes one. Raises ChangeError."""
        yield from self._turn()
        present, new, warnings = self._updated(entity, attributes)
        outputs: dict[str, Sink] = {}
        if isinstance(new, LogConfig):
            outputs = yield from self._outputs(self.configuration.changed([present], [new]))
            try:
                yield from self._turn()
                present, new, warnings = self._updated(entity, attributes)
            except BaseException:
                close_outputs(outputs)
                raise
        self._make([Change("update", new.type, new.identity, {}, "live", present, new)], _NONE, outputs)
        self._log_warnings(warnings)
        return new

    def _updated(
        self, entity: EntityConfig, attributes: Mapping[str, Any]
    ) -> tuple[EntityConfig, EntityConfig, list[tuple[str, str]]]:
        present = self._present(entity)
        try:
            return present, *update(present, attributes, self.configuration)
        except RequestError as error:
            raise ChangeError(error.status, str(error)) from error

    def _outputs(self, reached: Configuration) -> Changing[dict[str, Sink]]:
        """Open the files that the log of a configuration needs. Raises ChangeError."""
        future = self.open_outputs(reached)
        if future is None:
            return {}
        yield future
        try:
            return future.result()
        except (LogError, OSError) as error:
            raise log_error(error) from error

    def open_outputs(self, reached: Configuration) -> "asyncio.Future[dict[str, Sink]] | None":
        """Open the files that the log of a configuration needs, in a thread; None: they are open."""
        missing = self.log.missing(reached.log_settings())
        return self._files.run(partial(open_outputs, missing), LOG_SECONDS) if missing else None

    def delete(self, entity: EntityConfig) -> Changing[None]:
        """Remove an entity, and what depends on it. Raises ChangeError."""
        yield from self._turn()
        entity = self._present(entity)
        gone: list[EntityConfig] = [entity]
        if isinstance(entity, ExchangeConfig):
            gone = [each for each in self.configuration.bindings if each.exchange_name == entity.name] + gone
        self._make([Change("delete", each.type, each.identity, {}, "live", each, None) for each in gone])

    def _present(self, entity: EntityConfig) -> EntityConfig:
        """The entity as it is in force. Raises ChangeError."""
        for each in self._inventory.identified(entity.identity):
            if each.type == entity.type:
                return each
        raise ChangeError(404, f"No entity with identity={entity.identity}")

    def _make(
        self, changes: Sequence[Change], answers: Answers = _NONE, outputs: Mapping[str, Sink] | None = None
    ) -> None:
        """Carry out changes that a request asks for: of each type only its part. Raises ChangeError."""
        before = self.configuration
        gone = [change.old for change in changes if change.old is not None]
        made = [change.new for change in changes if change.new is not None]
        reached = before.changed(gone, made)
        try:
            for change in changes:
                self._apply_one(change, reached, answers, outputs or {})
        except ChangeError:
            raise
        except Exception as error:
            raise self._undone(before, error) from error
        self._inventory.change(gone, made, reached)
        self.changed()

    def _apply_one(
        self, change: Change, reached: Configuration, answers: Answers, outputs: Mapping[str, Sink]
    ) -> None:
        """Make one change. The first of several may be refused: raises ChangeError, and then nothing has changed."""
        core = self.core
        match change:
            case Change(new=None, old=AddressConfig() as address):
                core.settings.drop(address_entry(address)[0])
            case Change(new=AddressConfig() as address):
                core.settings.put(*address_entry(address))
            case Change(new=None, old=ExchangeConfig() as exchange):
                core.exchanges.remove_exchange(exchange.name)
            case Change(new=None, old=BindingConfig() as binding):
                core.exchanges.remove_binding(binding.name)
            case Change(new=ExchangeConfig() | BindingConfig() as entity):
                try:
                    core.exchanges.add(entity)
                except ExchangeError as error:
                    raise ChangeError(400, str(error)) from error
            case Change(new=None, old=LinkRouteConfig() as route):
                core.link_routes.remove(route)
            case Change(new=LinkRouteConfig() as route):
                core.link_routes.add(route)
            case Change(new=None, old=AutoLinkConfig() as link):
                self.autolinks.remove(link)
            case Change(new=AutoLinkConfig() as link):
                self.autolinks.add(link)
            case Change(new=None, old=ConnectorConfig() as connector):
                self.connectors.remove(connector)
            case Change(new=ConnectorConfig() as connector):
                self.connectors.add(connector)
            case Change(old=ListenerConfig()) | Change(new=ListenerConfig()):
                listening = self.listening
                prepared = listening.prepare(self.configuration.listeners, reached.listeners, answers, strict=False)
                listening.commit(prepared)
                listening.expect(reached.listeners)
            case Change(new=LogConfig()):
                self._use_log(reached, outputs)

    # All at once

    def apply(self, prepared: Prepared, answers: Answers, outputs: Mapping[str, Sink]) -> None:
        """Make the changes of a reload: what may fail first, so that all or nothing changes. Raises ChangeError.

        answers: what the hosts of listeners stand for. outputs: log files that were opened for it, which are taken
        over or closed.
        """
        before, reached = self.configuration, prepared.reached
        try:
            listeners = self.listening.prepare(before.listeners, reached.listeners, answers, strict=True)
        except ListenError as error:
            close_outputs(outputs)
            raise ChangeError(500, f"Listener error on {error.address}: {error.reason}") from error
        try:
            self._use_log(reached, outputs)
        except ChangeError:
            listeners.discard()
            raise
        try:
            self.core.settings.replace(prepared.entries, prepared.settings, prepared.changed)
            self._use(reached)
            self.listening.commit(listeners)
        except Exception as error:
            raise self._undone(before, error) from error
        self.listening.expect(reached.listeners)
        if prepared.plan.changes:
            self._inventory = prepared.inventory
        self.changed()

    def _use(self, reached: Configuration) -> None:
        """Have all that a configuration says, but for address settings, listeners and log."""
        for text in self.core.exchanges.replace(reached.exchanges, reached.bindings):
            self.log.error("ROUTER_CORE", text)
        self.core.use_link_routes(reached)
        if self.core.routers is not None:
            self.core.routers.configure(reached.router)
        self.autolinks.replace(reached.auto_links)
        self.connectors.replace(reached.connectors)
        self._acceptor.limit = reached.policy.max_connections

    def _undone(self, before: Configuration, fault: Exception) -> ChangeError:
        """A fault of this program came up in the middle of a change: go back to what was before, part by part."""
        self.log.critical("AGENT", f"A change of the configuration failed: {_trace(fault)}")
        for part in (self._use_settings, self._use, self._use_log, lambda old: self.listening.restore(old.listeners)):
            try:
                part(before)
            except Exception as error:  # noqa: BLE001 - logged; the other parts go back all the same
                self.log.critical("AGENT", f"A part of the configuration could not be restored: {_trace(error)}")
        self.changed()
        return ChangeError(500, f"Internal error: {fault!r}")

    def _use_settings(self, reached: Configuration) -> None:
        entries, _ = address_entries(reached.addresses)
        settings = self.core.settings
        patterns = {**entries, **dict.fromkeys(settings.patterns())}
        changed = [pattern for pattern in patterns if settings.attributes(pattern) != entries.get(pattern)]
        settings.replace(entries, AddressSettings(entries.items(), reached.router.default_distribution), changed)

    def _use_log(self, reached: Configuration, outputs: Mapping[str, Sink] | None = None) -> None:
        settings = reached.log_settings()
        if settings == self.log.settings:
            close_outputs(outputs or {})
            return
        try:
            self.log.apply(settings, outputs)
        except LogError as error:
            raise log_error(error) from error
        self.core.change_log(settings, reopen=False)

    async def reopen_log(self) -> None:
        """Open the log files anew, here and in the workers: somebody may have renamed them."""
        names = self.log.files
        opening = [self._files.run(partial(open_outputs, [name]), LOG_SECONDS) for name in names]
        for name, future in zip(names, opening, strict=True):
            try:
                self.log.go_on_in(await future)
            except LogError as error:
                self.log.error("SERVER", f"The log goes on in the file as it was: {error}")
            except OSError as error:
                self.log.error("SERVER", f"The log goes on in the file as it was: '{name}': {error.strerror}")
        self.core.change_log(self.log.settings, reopen=True)
        self.changed()

    def _log_warnings(self, warnings: Iterable[tuple[str, str]]) -> None:
        for module, text in warnings:
            self.log.warning(module, text)


def log_error(error: LogError | OSError) -> ChangeError:
    """The answer to a change whose log files cannot be opened."""
    text = str(error) if isinstance(error, LogError) else f"Failed to open log files: {error.strerror}"
    return ChangeError(500, f"CError: Configuration: {text}")


def _trace(error: Exception) -> str:
    return "".join(traceback.format_exception(error)).rstrip()


def _kind(entity_type: str) -> EntityType:
    kind = SCHEMA.find(entity_type)
    if kind is None:
        raise ChangeError(400, f"No such entity type '{entity_type}'")
    return kind
