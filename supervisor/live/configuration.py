"""The configuration in force, and the ways to change it. Each change is made completely or not at all.

A reload ends where a restart with the same file would, except for what takes a restart: whatever management has made
meanwhile and the file does not name goes. Decision record 0011 has the reasons.
"""

import asyncio
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from router.config.diff import Change, Plan
from router.config.entities import (
    AddressConfig,
    BindingConfig,
    Configuration,
    EntityConfig,
    ExchangeConfig,
)
from router.config.errors import ConfigError, RequestError
from router.config.load import load
from router.config.request import create, update
from router.config.schema import SCHEMA, EntityType
from router.log import DEBUG, Log, LogError
from supervisor.acceptor import Acceptor, ListenError
from supervisor.autolinks import AutoLinks
from supervisor.configure import address_entry
from supervisor.connectors.connectors import Connectors
from supervisor.core import Core
from supervisor.exchanges import ExchangeError
from supervisor.live.errors import ChangeError
from supervisor.live.listeners import Listening
from supervisor.live.prepare import Prepared, prepare, with_changes, without_refused

# Seconds for which the thread that reads a file may keep the event loop waiting.
SWITCH_INTERVAL: Final = 0.0005

NICE: Final = 10  # of that thread: on a full machine the workers' messages go first

CHANGES_LOGGED: Final = 20  # of a reload, one by one, at level debug

Done = Callable[[Plan | ChangeError], None]
# What gives the configuration that a reload wants. Raises ChangeError.
_Source = Callable[[], Configuration]
_Result = TypeVar("_Result")


def behind_traffic() -> None:
    """Give this thread, not the process (setpriority(2), on Linux), a lower priority."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


class LiveConfiguration:
    """What the router is configured to be. Owner: supervisor.

    changed(): called when there may be something to send to workers. served(): whether the router has begun to listen;
    until then reloads wait.
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
        self._loop: Final = loop
        self._core: Final = core
        self._acceptor: Final = acceptor
        self._listening: Final = listening
        self.connectors: Final = connectors
        self.autolinks: Final = autolinks
        self._log: Final = log
        self._changed: Final = changed
        self._thread: Final = ThreadPoolExecutor(1, "reload", behind_traffic)
        # The core has logged what it refuses.
        self._configuration = without_refused(configuration, core.settings.current)[0]
        self._previous: Configuration | None = None
        self._jobs: deque[tuple[_Source, bool, Done]] = deque()
        self._working = False
        self._started = False
        acceptor.limit = configuration.policy.max_connections
        sys.setswitchinterval(SWITCH_INTERVAL)

    @property
    def configuration(self) -> Configuration:
        """The configuration in force."""
        return self._configuration

    def entities(self, entity_type: str) -> Sequence[EntityConfig]:
        """All entities of a type, in order of creation."""
        kind = SCHEMA.find(entity_type)
        return [entity for entity in self._configuration.entities() if entity.entity_type is kind]

    # Single changes

    def create(self, entity_type: str, name: str | None, attributes: Mapping[str, Any]) -> EntityConfig:
        """Make an entity. Raises ChangeError."""
        try:
            entity, warnings = create(_kind(entity_type), name, attributes, self._configuration)
        except RequestError as error:
            raise ChangeError(error.status, str(error)) from error
        self._make(with_changes(self._configuration, [], [entity]), Change(
            "create", entity.type, entity.identity, {}, "live", None, entity
        ))  # fmt: skip
        self._log_warnings(warnings)
        return entity

    def update(self, entity: EntityConfig, attributes: Mapping[str, Any]) -> EntityConfig:
        """Change attributes of an entity; None removes one. Raises ChangeError."""
        entity = self._present(entity)
        try:
            new, warnings = update(entity, attributes, self._configuration)
        except RequestError as error:
            raise ChangeError(error.status, str(error)) from error
        entities = [new if each is entity else each for each in self._configuration.entities()]
        reached = Configuration.of(self._configuration.path, entities, self._configuration.warnings)
        self._make(reached, Change("update", entity.type, entity.identity, {}, "live", entity, new))
        self._log_warnings(warnings)
        return new

    def delete(self, entity: EntityConfig) -> None:
        """Remove an entity, and what depends on it. Raises ChangeError."""
        entity = self._present(entity)
        gone: list[EntityConfig] = [entity]
        if isinstance(entity, ExchangeConfig):
            gone = [each for each in self._configuration.bindings if each.exchange_name == entity.name] + gone
        changes = [Change("delete", each.type, each.identity, {}, "live", each, None) for each in gone]
        self._make(with_changes(self._configuration, gone, []), *changes)

    def _present(self, entity: EntityConfig) -> EntityConfig:
        """The entity as it is in force. Raises ChangeError."""
        for each in self._configuration.entities():
            if each.type == entity.type and each.identity == entity.identity:
                return each
        raise ChangeError(404, f"No entity with identity={entity.identity}")

    def _make(self, reached: Configuration, *changes: Change) -> None:
        """Carry out changes that a request asks for. Raises ChangeError."""
        self._apply(Plan(self._configuration, reached, changes), reached, None, strict=False)

    # Reload

    def plan(self, new: Configuration) -> Plan:
        """What would change if `new` were loaded."""
        return prepare(self._configuration, new).plan

    def reload(self, path: str | None = None, plan_only: bool = False) -> Plan:
        """Read the file again (another: `path`) and put it into force. Raises ChangeError."""
        return self._carry_out(self._prepare(self._file(path)), plan_only)

    def undo(self, plan_only: bool = False) -> Plan:
        """Go back to the configuration before the last reload or undo. Raises ChangeError."""
        return self._carry_out(self._prepare(self._before), plan_only)

    def reload_later(self, path: str | None, plan_only: bool, done: Done) -> None:
        """The same as `reload` without keeping others waiting; calls `done` when all workers go by it."""
        self._jobs.append((self._file(path), plan_only, done))
        self._next_job()

    def undo_later(self, plan_only: bool, done: Done) -> None:
        """The same as `undo` without keeping others waiting; calls `done` when all workers go by it."""
        self._jobs.append((self._before, plan_only, done))
        self._next_job()

    def start(self) -> None:
        """The router listens: reloads may begin."""
        self._started = True
        self._next_job()

    def _file(self, path: str | None) -> _Source:
        return lambda: _load(path or self._configuration.path)

    def _before(self) -> Configuration:
        if self._previous is None:
            raise ChangeError(400, "There is nothing to undo: no reload has changed the configuration")
        return self._previous

    def _prepare(self, source: _Source) -> Prepared:
        """Find out what is to be done. In a thread: touches nothing. Raises ChangeError."""
        return prepare(self._configuration, source())

    def in_thread(self, work: Callable[[], _Result], done: Callable[[_Result], object]) -> None:
        """Work on something without keeping others waiting, then call `done` with what came of it."""
        self._loop.run_in_executor(self._thread, work).add_done_callback(lambda future: done(future.result()))

    def _next_job(self) -> None:
        if self._started and not self._working and self._jobs:
            self._working = True
            task = self._loop.create_task(self._work(*self._jobs.popleft()))
            task.add_done_callback(self._worked)

    def _worked(self, task: "asyncio.Task[None]") -> None:
        self._working = False
        self._next_job()
        task.result()

    async def _work(self, source: _Source, plan_only: bool, done: Done) -> None:
        result: Plan | ChangeError
        try:
            prepared = await self._loop.run_in_executor(self._thread, self._prepare, source)
            while prepared.plan.old is not self._configuration:  # management was faster
                prepared = await self._loop.run_in_executor(self._thread, self._prepare, source)
            result = self._carry_out(prepared, plan_only)
        except ChangeError as error:
            result = error
            for line in error.text.splitlines():
                self._log.error("AGENT", f"The configuration stays as it is: {line}")
        self._core.when_in_force(lambda: done(result))
        self._changed()

    def _carry_out(self, prepared: Prepared, plan_only: bool) -> Plan:
        """Make the changes of a plan, unless it is only to be shown. Raises ChangeError."""
        if not plan_only:
            before = self._configuration
            self._apply(prepared.plan, prepared.reached, prepared, strict=True)
            if prepared.plan.changes:
                self._previous = before
            self._log_warnings(prepared.warnings)
            self._tell(prepared.plan)
        return prepared.plan

    def _tell(self, plan: Plan) -> None:
        """Log what a reload has changed."""
        count = len(plan.changes)
        changes = "1 change" if count == 1 else f"{count} changes"
        self._log.notice("AGENT", f"Configuration reloaded from {plan.new.path}: {changes}")
        if self._log.enabled("AGENT", DEBUG):
            for change in plan.changes[:CHANGES_LOGGED]:
                self._log.debug("AGENT", "\n".join(change.render()))
        for change in plan.changes:
            for name, (_, _, effect) in change.attributes.items():
                if change.kind == "update" and effect == "restart":
                    text = f"Attribute '{name}' of {change.title()} changes when the router is started again"
                    self._log.warning("AGENT", text)

    # Carrying out

    def _apply(self, plan: Plan, reached: Configuration, prepared: Prepared | None, *, strict: bool) -> None:
        """Make changes: what may fail first, so that all or nothing changes. Raises ChangeError."""
        try:
            listeners = self._listening.prepare(self._configuration.listeners, reached.listeners, strict=strict)
        except ListenError as error:
            raise ChangeError(500, f"Listener error on {error.address}: {error.reason}") from error
        try:
            self._apply_log(reached)
            if prepared is None:
                self._apply_core(plan.changes)
        except ChangeError:
            listeners.discard()
            raise
        if prepared is not None:
            self._core.settings.replace(prepared.entries, prepared.settings, prepared.changed)
            for text in self._core.exchanges.replace(reached.exchanges, reached.bindings):
                self._log.error("ROUTER_CORE", text)
        self._listening.commit(listeners)
        self._core.use_link_routes(reached)
        if self._core.routers is not None:
            self._core.routers.configure(reached.router)
        self.autolinks.replace(reached.auto_links)
        self.connectors.replace(reached.connectors)
        self._acceptor.limit = reached.policy.max_connections
        if plan.changes:
            self._configuration = reached
        self._changed()

    def _apply_log(self, reached: Configuration) -> None:
        settings = reached.log_settings()
        if settings != self._log.settings:
            try:
                self._log.apply(settings)
            except LogError as error:
                raise ChangeError(500, f"CError: Configuration: {error}") from error
            self._core.change_log(settings, reopen=False)

    def reopen_log(self) -> None:
        """Open the log files anew, here and in the workers: somebody may have renamed them."""
        try:
            self._log.reopen()
        except LogError as error:
            self._log.error("SERVER", f"The log goes on in the file as it was: {error}")
        self._core.change_log(self._log.settings, reopen=True)
        self._changed()

    def _apply_core(self, changes: Sequence[Change]) -> None:
        """Make the changes that a request asks for. The first may be refused: raises ChangeError."""
        settings, exchanges = self._core.settings, self._core.exchanges
        for change in changes:
            match change:
                case Change(new=None, old=AddressConfig() as address):
                    settings.drop(address_entry(address)[0])
                case Change(new=AddressConfig() as address):
                    settings.put(*address_entry(address))
                case Change(new=None, old=ExchangeConfig() as exchange):
                    exchanges.remove_exchange(exchange.name)
                case Change(new=None, old=BindingConfig() as binding):
                    exchanges.remove_binding(binding.name)
                case Change(new=ExchangeConfig() | BindingConfig() as entity):
                    try:
                        exchanges.add(entity)
                    except ExchangeError as error:
                        raise ChangeError(400, str(error)) from error

    def _log_warnings(self, warnings: Sequence[tuple[str, str]]) -> None:
        for module, text in warnings:
            self._log.warning(module, text)


def _load(path: str) -> Configuration:
    try:
        return load(path)
    except ConfigError as error:
        raise ChangeError(400, "\n".join(str(each) for each in error.errors)) from error


def _kind(entity_type: str) -> EntityType:
    kind = SCHEMA.find(entity_type)
    if kind is None:
        raise ChangeError(400, f"No such entity type '{entity_type}'")
    return kind
