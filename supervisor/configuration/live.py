"""Configuration in force, and the execution of its changes. Each change is made completely or not at all.

A reload has the same result as a restart with the same file, except for attributes that require a restart. In
particular, entities that management has created and the file does not contain are removed (decision 0011). The event
loop never waits for a file system or a name server: changes that need one are made in steps (decision 0018).
"""

import asyncio
import sys
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from sluice.router.addressing.settings import AddressSettings
from sluice.router.config.diff import Change, Kind
from sluice.router.config.entities import Configuration, ExchangeConfig
from sluice.router.config.entity import EntityConfig
from sluice.router.config.errors import RequestError
from sluice.router.config.inventory import Inventory
from sluice.router.config.request import create, update
from sluice.router.config.schema import SCHEMA, EntityType
from sluice.router.log import ProcessLog
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.configuration.errors import ChangeError
from sluice.supervisor.configuration.files import check_files
from sluice.supervisor.configuration.prepare import PreparedReload, without_refused
from sluice.supervisor.runtime.waker import Waker
from sluice.supervisor.subsystem import Events, Subsystem

# Switch interval of the interpreter in seconds: the time a computing thread may delay the event loop.
SWITCH_INTERVAL: Final = 0.0005

_Result = TypeVar("_Result")
# Change in steps. After each step other events are handled; if a future was yielded, the next step waits for it. The
# steps raise ChangeError.
ChangeSteps = Generator["asyncio.Future[Any] | None", None, _Result]
_Warnings = list[tuple[str, str]]


class LiveConfiguration:
    """Configuration in force, and the execution of changes. Owner: supervisor."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        configuration: Configuration,
        settings: AddressSettings,
        subsystems: Events,
        waker: Waker,
        log: ProcessLog,
    ) -> None:
        """Take the initial configuration. settings: its address settings."""
        self._loop: Final = loop
        self._subsystems: Final = subsystems
        self._waker: Final = waker
        self._log: Final = log
        # Refused exchanges and bindings are left out; the subsystems have logged the refusals.
        self._inventory = Inventory(without_refused(configuration, settings)[0])
        # Entities of the file as last read, by type and identity, with the values that they got then.
        self._filed = _by_identity(self._inventory.configuration)
        self._held: asyncio.Future[None] | None = None  # management changes wait until it completes
        sys.setswitchinterval(SWITCH_INTERVAL)

    @property
    def configuration(self) -> Configuration:
        """Configuration in force."""
        return self._inventory.configuration

    def entities(self, entity_type: str) -> Sequence[EntityConfig]:
        """Return all entities of a type, in order of creation."""
        return self._inventory.of_type(entity_type)

    def find(self, name: str | None, identity: str | None) -> list[EntityConfig]:
        """Return all entities with this name or, without a name, with this identity."""
        if name is not None:
            return self._inventory.named(name)
        return [] if identity is None else self._inventory.identified(identity)

    def in_file(self, entity: EntityConfig) -> bool:
        """Return whether a restart with the configuration file, as it was last read, would keep an entity as it is.

        False for what management has created or changed since.
        """
        filed = self._filed.get((entity.type, entity.identity))
        return filed is not None and (filed is entity or filed.values == entity.values)

    # Single changes

    def hold(self) -> None:
        """Make management changes wait until `release`."""
        if self._held is None:
            self._held = self._loop.create_future()

    def release(self) -> None:
        """Let waiting management changes continue."""
        held, self._held = self._held, None
        if held is not None:
            held.set_result(None)

    def _turn(self) -> ChangeSteps[None]:
        """Wait while changes are held. Afterwards the configuration stays unchanged until the caller's next step."""
        while self._held is not None:
            yield self._held

    def create(self, entity_type: str, name: str | None, attributes: object) -> ChangeSteps[EntityConfig]:
        """Create an entity. Raises ChangeError."""

        def made() -> tuple[list[Change], EntityConfig, _Warnings]:
            self._check_files(_kind(entity_type), attributes, None)
            try:
                entity, warnings = create(_kind(entity_type), name, attributes, self._inventory)
            except RequestError as error:
                raise ChangeError(error.status, str(error)) from error
            return [_change("create", entity, None, entity)], entity, warnings

        return (yield from self._carry_out(made))

    def update(self, entity: EntityConfig, attributes: Mapping[str, Any]) -> ChangeSteps[EntityConfig]:
        """Change attributes of an entity; the value None removes an attribute. Raises ChangeError. security.md P-82."""

        def made() -> tuple[list[Change], EntityConfig, _Warnings]:
            present = self._present(entity)
            self._check_files(present.entity_type, attributes, present)
            try:
                new, warnings = update(present, attributes, self.configuration)
            except RequestError as error:
                raise ChangeError(error.status, str(error)) from error
            return [_change("update", new, present, new)], new, warnings

        return (yield from self._carry_out(made))

    def delete(self, entity: EntityConfig) -> ChangeSteps[None]:
        """Delete an entity; with an exchange also its bindings. Raises ChangeError."""

        def made() -> tuple[list[Change], None, _Warnings]:
            present = self._present(entity)
            gone: list[EntityConfig] = [present]
            if isinstance(present, ExchangeConfig):
                gone = [each for each in self.configuration.bindings if each.exchange_name == present.name] + gone
            return [_change("delete", each, each, None) for each in gone], None, []

        return (yield from self._carry_out(made))

    def _check_files(self, kind: EntityType, attributes: object, present: EntityConfig | None) -> None:
        """Refuse attributes that name files, unless management may set them. Raises ChangeError."""
        if not self.configuration.router.files_by_management:
            check_files(kind, attributes, present)

    def _present(self, entity: EntityConfig) -> EntityConfig:
        """Return the present state of an entity. Raises ChangeError if it does not exist."""
        for each in self._inventory.identified(entity.identity):
            if each.type == entity.type:
                return each
        raise ChangeError(404, f"No entity with identity={entity.identity}")

    def _carry_out(self, made: Callable[[], tuple[list[Change], _Result, _Warnings]]) -> ChangeSteps[_Result]:
        """Make the changes of a request.

        made: derive the changes from the configuration in force; called again if other changes may have been made.
        """
        yield from self._turn()
        changes, result, warnings = made()
        change = self._change_of(changes)
        if (yield from self.gather(change)):
            try:
                yield from self._turn()
                changes, result, warnings = made()
            except ChangeError:
                self.discard(change)
                raise
            change = self._change_of(changes, change.gathered)
        self._make(change)
        gone = [each.old for each in changes if each.old is not None]
        self._inventory.change(gone, [each.new for each in changes if each.new is not None], change.new)
        self._waker.wake()
        self._log_warnings(warnings)
        return result

    def _change_of(self, changes: list[Change], gathered: dict[object, Any] | None = None) -> ConfigurationChange:
        """Combine changes of single entities into one. gathered: earlier results of `gather` for the same changes."""
        gone = [change.old for change in changes if change.old is not None]
        made = [change.new for change in changes if change.new is not None]
        before = self.configuration
        return ConfigurationChange(before, before.changed(gone, made), changes, gathered=gathered or {})

    # Reloads

    def reload(self, prepared: PreparedReload) -> ConfigurationChange:
        """Return the change of a reload."""
        return ConfigurationChange(self.configuration, prepared.reached, whole=True, addresses=prepared.addresses)

    def apply(self, change: ConfigurationChange, prepared: PreparedReload, *, from_file: bool) -> None:
        """Make the change of a reload, completely or not at all. Raises ChangeError.

        from_file: the configuration was read from the file, and is not an earlier one.
        """
        self._make(change)
        if prepared.plan.changes:
            self._inventory = prepared.inventory
        if from_file:
            self._filed = _by_identity(self._inventory.configuration)
        self._waker.wake()

    # Steps of a change

    def gather(self, change: ConfigurationChange) -> ChangeSteps[bool]:
        """Call `gather` of all subsystems and wait for the results. Returns True if that took time.

        Raises ChangeError, after the change was discarded.
        """
        waiting = [(each, future) for each in self._subsystems if (future := each.gather(change)) is not None]
        for _, future in waiting:
            if not future.done():
                yield future
        refusal: Exception | None = None
        for subsystem, future in waiting:
            error = future.exception()
            if error is None:
                change.gathered[subsystem] = future.result()
            elif isinstance(error, Exception):
                refusal = refusal or error
        if refusal is not None:
            self.discard(change)
            raise refusal
        return bool(waiting)

    def discard(self, change: ConfigurationChange) -> None:
        """Call `discard` of all subsystems, in reverse order."""
        _discard(change, list(self._subsystems))

    def _make(self, change: ConfigurationChange) -> None:
        """Prepare and commit. Raises ChangeError if nothing has changed."""
        try:
            for subsystem in self._subsystems:
                subsystem.prepare(change)
        except ChangeError:
            self.discard(change)
            raise
        except Exception as error:
            self.discard(change)
            raise self._restore_previous(change, error) from error
        waiting = deque(self._subsystems)
        try:
            while waiting:
                waiting.popleft().commit(change)
        except Exception as error:
            _discard(change, waiting)
            raise self._restore_previous(change, error) from error

    def _restore_previous(self, change: ConfigurationChange, fault: Exception) -> ChangeError:
        """Restore the previous configuration after an internal error, one subsystem after the other.

        Returns the error for the requester.
        """
        text = f"Internal error in a change of the configuration, which is undone: {_trace(fault)}"
        self._log.critical("AGENT", text)
        back = ConfigurationChange(change.new, change.old, whole=True, undo=True)
        for subsystem in self._subsystems:
            try:
                subsystem.prepare(back)
                subsystem.commit(back)
            except Exception as error:  # noqa: BLE001 - logged; the other subsystems are restored all the same
                text = f"Internal error while undoing a change of the configuration: {_trace(error)}"
                self._log.critical("AGENT", text)
        self._waker.wake()
        return ChangeError(500, f"Internal error: {fault!r}")

    def _log_warnings(self, warnings: Iterable[tuple[str, str]]) -> None:
        for module, text in warnings:
            self._log.warning(module, text)


def _change(kind: Kind, entity: EntityConfig, old: EntityConfig | None, new: EntityConfig | None) -> Change:
    return Change(kind, entity.type, entity.identity, {}, "live", old, new)


def _by_identity(configuration: Configuration) -> dict[tuple[str, str], EntityConfig]:
    return {(entity.type, entity.identity): entity for entity in configuration.entities()}


def _discard(change: ConfigurationChange, subsystems: Sequence[Subsystem]) -> None:
    """Let subsystems discard a change, in reverse order."""
    for subsystem in reversed(subsystems):
        subsystem.discard(change)


def _trace(error: Exception) -> str:
    return "".join(traceback.format_exception(error)).rstrip()


def _kind(entity_type: str) -> EntityType:
    kind = SCHEMA.find(entity_type)
    if kind is None:
        raise ChangeError(400, f"No such entity type '{entity_type}'")
    return kind
