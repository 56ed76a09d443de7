"""Interface of subsystems, and the dispatch of events to all of them.

A subsystem owns one noun (connections, link routes, exchanges, …). `composition.py` lists all subsystems; the core
dispatches events to them in that order. Subsystems get each other through their constructors, and none sets an
attribute of another. docs/internals/supervisor.md has the details.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MethodType
from typing import Any, ClassVar, Final, TypeVar

from sluice.router.config.entities import Configuration
from sluice.router.config.entity import EntityConfig
from sluice.router.config.roles import EVERY_ROLE
from sluice.router.control.handlers import HandlerTable
from sluice.router.control.message import ControlMessage
from sluice.router.control.messages import Event, Local, Opened
from sluice.router.control.ops import Op
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.connections.connections import RegisteredConnection, RegisteredLink

NEVER: Final = math.inf  # deadline of a subsystem that waits for no time
RAW: Final = (Local,)  # types of worker messages that are followed by octets

# Handler of a worker's message with the octets that follow it. Raises WorkerFaultError.
RawHandler = Callable[[WorkerProcess, Local, bytes], None]
# Return the attributes of a configured entity that show its live state, for management.
LiveAttributes = Callable[[Any], Mapping[str, Any]]


T = TypeVar("T")
ByRole = dict[str, list[T]]  # methods of subsystems by the role of the connection concerned


def _by_role() -> ByRole[T]:
    return {role: [] for role in EVERY_ROLE}


class CompositionError(Exception):
    """Raised when two subsystems handle the same message or entity type, or no subsystem does."""


class Subsystem:
    """Base class of subsystems. Its methods do nothing; a subsystem overrides those that concern it."""

    __slots__ = ()

    #: Roles of the connections about which `connection_opened`, `connection_closed` and `link_dropped` are called.
    roles: ClassVar[tuple[str, ...]] = EVERY_ROLE

    # Contributions, collected when the supervisor is composed

    def messages(self, handlers: HandlerTable[WorkerProcess]) -> None:
        """Register this subsystem's handlers of worker messages by type. A handler raises WorkerFaultError."""

    def raw_messages(self) -> Mapping[type[Local], RawHandler]:
        """Return this subsystem's handlers of worker messages with octets, by type."""
        return {}

    def live_attributes(self) -> Mapping[str, LiveAttributes]:
        """Return callables for the live attributes of this subsystem's entities, by short name of the entity type."""
        return {}

    # Life

    def start(self, configuration: Configuration) -> None:
        """Begin to open, connect and attach, now that all workers serve for the first time."""

    def stop(self) -> None:
        """Begin nothing new, because the router ends."""

    # Changes of the configuration; `supervisor/configuration/change.py` has the order of the calls

    def gather(self, change: ConfigurationChange) -> "asyncio.Future[Any] | None":
        """Start to gather what a change needs from file systems and name servers; return None if nothing is needed.

        The result of the future is available later as `change.gathered[self]`. Its exception may be a ChangeError.
        """

    def prepare(self, change: ConfigurationChange) -> None:
        """Do everything that may fail, without visible effect yet. Raises ChangeError."""

    def commit(self, change: ConfigurationChange) -> None:
        """Put the change into force. Must not fail."""

    def discard(self, change: ConfigurationChange) -> None:
        """Undo `gather` and `prepare`, if they were called, because the change is not made."""

    # Events

    def connection_opened(self, connection: RegisteredConnection, message: Opened) -> None:
        """Handle the admitted open of a connection. message: the worker's `opened`."""

    def connection_closed(self, connection: RegisteredConnection) -> None:
        """Handle the end of a connection, whose links were dropped before."""

    def link_dropped(self, worker: WorkerProcess, link: RegisteredLink) -> None:
        """Handle the end of a link."""

    def worker_lost(self, worker: WorkerProcess) -> None:
        """Handle the exit of a worker."""

    # Each wake of the supervisor, in this order

    def work(self) -> bool:
        """Handle waiting messages for a limited time. Returns True if more wait."""
        return False

    def step(self) -> None:
        """Continue changes that take several epochs, before the next delta is taken."""

    def expire(self) -> None:
        """Do what is due, after `step`; called only in wakes after `deadline`."""

    @property
    def waiting(self) -> bool:
        """True if `step` has more to do after other events."""
        return False

    def before_delta(self) -> None:
        """Announce changes that earlier ones of the same delta made necessary."""

    def after_delta(self) -> None:
        """Continue work that waited for acknowledgements. Must not change the tables of workers."""

    @property
    def deadline(self) -> float:
        """Time at which `step` or `expire` is due without an event, in seconds of the monotonic clock."""
        return NEVER

    # New workers

    def snapshot_ops(self) -> Iterable[Op]:
        """Return the ops that a new worker needs from this subsystem. Called when all changes are published."""
        return ()


class Events:
    """Ordered list of all subsystems, and the dispatch of events to them. Owner: the core.

    An event goes only to subsystems that override its method, and events of connections and links only to those that
    concern themselves with the connection's role.
    """

    def __init__(self) -> None:
        self._subsystems: list[Subsystem] = []
        self._messages = HandlerTable[WorkerProcess](Event, but=RAW)
        #: Handlers of worker messages without octets, by type. A handler raises WorkerFaultError.
        self.handlers: Final[Mapping[type[ControlMessage], Callable[[WorkerProcess, Any], None]]] = (
            self._messages.by_type
        )
        self._raw_messages: dict[type[ControlMessage], RawHandler] = {}
        self._live_attributes: dict[str, LiveAttributes] = {}
        # Methods of the subsystems that override them, in order.
        self._opened: ByRole[Callable[[RegisteredConnection, Opened], None]] = _by_role()
        self._closed: ByRole[Callable[[RegisteredConnection], None]] = _by_role()
        self._dropped: ByRole[Callable[[WorkerProcess, RegisteredLink], None]] = _by_role()
        self._lost: list[Callable[[WorkerProcess], None]] = []
        self._working: list[Callable[[], bool]] = []
        self._stepping: list[Callable[[], None]] = []
        self._expiring: list[Callable[[], None]] = []
        self._completing: list[Callable[[], None]] = []
        self._answering: list[Callable[[], None]] = []
        # Getters of overridden properties. A call is faster than an instruction that finds a property in objects of
        # several classes.
        self._waiting: list[Callable[[], bool]] = []
        self._due: list[Callable[[], float]] = []
        self._next_due = -math.inf  # deadline when it was read last

    def __iter__(self) -> Iterator[Subsystem]:
        return iter(self._subsystems)

    def add(self, *subsystems: Subsystem) -> None:
        """Append subsystems. Raises CompositionError."""
        for subsystem in subsystems:
            try:
                subsystem.messages(self._messages)
            except ValueError as error:
                raise CompositionError(f"{subsystem!r}: message type {error}") from error
            for kind, handler in subsystem.raw_messages().items():
                if kind in self._raw_messages:
                    raise CompositionError(f"{subsystem!r}: message type {kind.__name__} already has a handler")
                self._raw_messages[kind] = handler
            for name, shown in subsystem.live_attributes().items():
                if name in self._live_attributes:
                    raise CompositionError(f"{subsystem!r}: entity type {name!r} already has live attributes")
                self._live_attributes[name] = shown
            self._subsystems.append(subsystem)
            self._add_methods(subsystem)

    def _add_methods(self, subsystem: Subsystem) -> None:
        """List the methods and properties that a subsystem overrides."""
        methods: tuple[tuple[str, list[Any]], ...] = (
            ("worker_lost", self._lost),
            ("work", self._working),
            ("step", self._stepping),
            ("expire", self._expiring),
            ("before_delta", self._completing),
            ("after_delta", self._answering),
        )
        for name, listed in methods:
            if getattr(type(subsystem), name) is not getattr(Subsystem, name):
                listed.append(getattr(subsystem, name))
        by_role: tuple[tuple[str, ByRole[Any]], ...] = (
            ("connection_opened", self._opened),
            ("connection_closed", self._closed),
            ("link_dropped", self._dropped),
        )
        for name, listed_by_role in by_role:
            if getattr(type(subsystem), name) is not getattr(Subsystem, name):
                for role in subsystem.roles:
                    listed_by_role[role].append(getattr(subsystem, name))
        properties: tuple[tuple[str, list[Any]], ...] = (("waiting", self._waiting), ("deadline", self._due))
        for name, concerned in properties:
            if getattr(type(subsystem), name) is not getattr(Subsystem, name):
                concerned.append(MethodType(getattr(type(subsystem), name).fget, subsystem))

    def check_complete(self) -> None:
        """Raise CompositionError if a type of worker message has no handler."""
        try:
            self._messages.check_complete()
        except ValueError as error:
            raise CompositionError(str(error)) from error
        for kind in RAW:
            if kind not in self._raw_messages:
                raise CompositionError(f"no handler for message type {kind.__name__}")

    def handle_raw(self, worker: WorkerProcess, message: Local, octets: bytes) -> None:
        """Pass a worker's message with octets to its handler. Raises WorkerFaultError."""
        self._raw_messages[type(message)](worker, message, octets)

    def live_attributes(self, config: EntityConfig) -> Mapping[str, Any]:
        """Return the live attributes of an entity."""
        shown = self._live_attributes.get(config.type)
        return {} if shown is None else shown(config)

    def connection_opened(self, connection: RegisteredConnection, message: Opened) -> None:
        """See Subsystem."""
        for connection_opened in self._opened[connection.origin.role]:
            connection_opened(connection, message)

    def connection_closed(self, worker: WorkerProcess | None, connection: RegisteredConnection) -> None:
        """Notify of the end of a connection, and of its links before. worker: that had it; None: it had none."""
        role = connection.origin.role
        if worker is not None:
            dropped = self._dropped[role]
            for link in connection.links.values():
                for link_dropped in dropped:
                    link_dropped(worker, link)
        for connection_closed in self._closed[role]:
            connection_closed(connection)

    def link_dropped(self, worker: WorkerProcess, link: RegisteredLink) -> None:
        """See Subsystem."""
        for link_dropped in self._dropped[link.connection.origin.role]:
            link_dropped(worker, link)

    def worker_lost(self, worker: WorkerProcess) -> None:
        """See Subsystem."""
        for worker_lost in self._lost:
            worker_lost(worker)

    def work(self) -> bool:
        """Call `work` of all subsystems. Returns True if any has more to do; see Subsystem."""
        more = False
        for work in self._working:
            more |= work()
        return more

    def step(self) -> None:
        """See Subsystem."""
        for step in self._stepping:
            step()
        # A deadline that has been set and has passed since the last wake is read at the end of this one, which causes
        # another wake.
        if time.monotonic() >= self._next_due:
            for expire in self._expiring:
                expire()

    @property
    def waiting(self) -> bool:
        """True if any subsystem is waiting; see Subsystem."""
        return any(waiting() for waiting in self._waiting)

    def before_delta(self) -> None:
        """See Subsystem."""
        for before_delta in self._completing:
            before_delta()

    def after_delta(self) -> None:
        """See Subsystem."""
        for after_delta in self._answering:
            after_delta()

    @property
    def deadline(self) -> float:
        """Earliest deadline of all subsystems; see Subsystem."""
        due = NEVER
        for deadline_of in self._due:  # no `min`: each wake reads the deadline
            deadline = deadline_of()
            if deadline < due:
                due = deadline
        self._next_due = due
        return due

    def snapshot_ops(self) -> list[Op]:
        """Return the ops of all subsystems, in order; see Subsystem."""
        return [op for subsystem in self._subsystems for op in subsystem.snapshot_ops()]
