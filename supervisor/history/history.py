"""History of the main figures, and of events, for whoever looks after something has happened. Decision 0080."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sluice.router.config.entities import Configuration, RouterConfig
from sluice.router.config.policy_entities import VhostConfig
from sluice.router.log import WARNING, ProcessLog
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.history.connector_changes import ConnectorChanges
from sluice.supervisor.history.events import HistoryEvents
from sluice.supervisor.history.figures import FigureReading
from sluice.supervisor.history.file import HistoryFileError, read_history, write_history
from sluice.supervisor.history.neighbourhood import Neighbourhood
from sluice.supervisor.history.processor_limit import ProcessorLimit
from sluice.supervisor.history.ring import HistoryRing
from sluice.supervisor.runtime.availability import ConnectorStates
from sluice.supervisor.runtime.threads import Threads
from sluice.supervisor.runtime.waker import Waker
from sluice.supervisor.subsystem import Subsystem

if TYPE_CHECKING:
    from sluice.supervisor.runtime.waker import Cancellable

STEP: Final = 5  # seconds between readings
# Seconds of a period, and number of periods: an hour, a day, 30 days. 2,880 values of 8 octets for each of the 29
# figures are 668 kB.
RINGS: Final = ((STEP, 720), (60, 1440), (3600, 720))
SAVED_EVERY: Final = 300  # seconds between two writes of the file, which lose at most that much in a crash
FILE_SECONDS: Final = 5.0  # time limit for reading the file, and for writing it at the end
LOG_MODULE: Final = "SERVER"


class FigureHistory(Subsystem):
    """Rings of figures, and events. Owner: the core."""

    def __init__(self, waker: Waker, neighbourhood: Neighbourhood, limit: ProcessorLimit, log: ProcessLog) -> None:
        self.rings: Final = [HistoryRing(step, size) for step, size in RINGS]
        self.events: Final = HistoryEvents()
        self.loads: Mapping[int, float] = {}  # by worker, the share of a core that it used before the last reading
        self.limit: Final = limit
        self._waker: Final = waker
        self._neighbourhood: Final = neighbourhood
        self._log: Final = log
        self._read: Callable[[], FigureReading] | None = None
        self._connectors: Callable[[], ConnectorStates] = tuple
        self._connector_changes: Final = ConnectorChanges()
        self._path: str | None = None
        self._stopped = False
        self._threads: Threads | None = None
        self._saved: float | None = None  # time of the last write of the file, or of the first reading; monotonic clock
        self._timer: Cancellable | None = None
        self._starting: asyncio.Task[None] | None = None

    def measure(self, read: Callable[[], FigureReading], connectors: Callable[[], ConnectorStates] = tuple) -> None:
        """Set the source of readings, and of the states of connectors. Without readings, there are fewer events."""
        self._read = read
        self._connectors = connectors

    # Life and configuration

    def start(self, configuration: Configuration) -> None:
        self._path = configuration.router.history_file
        if self._read is not None:
            self._starting = self._waker.loop.create_task(self._begin())

    async def _begin(self) -> None:
        """Continue the history of the file, then take readings."""
        if self._path is not None:
            try:
                state = await self._run(partial(read_history, self._path))
                if state is not None:
                    self._restore(state)
            except (HistoryFileError, OSError) as error:
                self._log.warning(LOG_MODULE, f"The history begins anew, since '{self._path}' cannot be used: {error}")
        self._event("start", "The router started")
        self._take()

    def commit(self, change: ConfigurationChange) -> None:
        if change.undo:
            return
        if change.whole:
            self._event("reload", "The configuration was reloaded")
        else:
            for text in dict.fromkeys(_changed(change)):
                self._event("configuration", text)
        if change.old.vhosts != change.new.vhosts or change.old.policy != change.new.policy:
            self._event("policy", "The policy changed")
        if change.concerns(RouterConfig):
            self._path = change.new.router.history_file

    def stop(self) -> None:
        self._stopped = True
        self._event("stop", "The router was stopped")
        for handle in (self._timer, self._starting):
            if handle is not None:
                handle.cancel()

    async def hand_over(self) -> None:
        """Write the file for the last time, because another process continues the history."""
        await self.finish()
        self._path = None

    async def finish(self) -> None:
        """Write the file for the last time."""
        if self._path is not None and self._read is not None:
            await self._save(self._path)

    # Events

    def worker_lost(self, worker: WorkerProcess) -> None:
        if not self._stopped:  # workers exit with the router
            self._event("worker", f"Worker {worker.index} exited and is replaced")

    def reload_refused(self, reason: str) -> None:
        """Note that a reload was refused; the configuration is unchanged."""
        self._event("reload refused", f"The configuration is unchanged: {reason.partition(chr(10))[0]}")

    def _event(self, kind: str, text: str) -> None:
        self.events.add(time.time(), kind, text)

    # Readings

    def _take(self) -> None:
        """Take a reading, and plan the next one for the next multiple of STEP in the time of day."""
        assert self._read is not None
        reading = self._read()
        self.loads = reading.loads
        now = time.time()
        nearest = round(now / STEP) * STEP
        for ring in self.rings:
            ring.add(nearest, reading)
        for kind, text in (*self._neighbourhood.changes(), *self._connector_changes.take(self._connectors())):
            self._event(kind, text)
        throttled = self.limit.take()
        if throttled is not None:
            self._event("processor", throttled)
        if self._saved is None:
            self._saved = reading.clock
        if self._path is not None and reading.clock - self._saved >= SAVED_EVERY:
            self._saved = reading.clock
            self._waker.loop.create_task(self._save(self._path))
        self._timer = self._waker.later(nearest + STEP - now, self._take)

    # File

    def _run(self, work: Callable[[], Any]) -> "asyncio.Future[Any]":
        if self._threads is None:
            self._threads = Threads(self._waker.loop, "history", 1)
        return self._threads.run(work, FILE_SECONDS)

    async def _save(self, path: str) -> None:
        state = {"rings": [ring.state() for ring in self.rings], "events": self.events.state()}
        try:
            await self._run(partial(write_history, path, state))
        except (HistoryFileError, OSError) as error:
            self._log.repeated(WARNING, LOG_MODULE, "history", f"The history cannot be saved: {error}")

    def _restore(self, state: dict[str, Any]) -> None:
        """Continue the history of an earlier process. Raises HistoryFileError."""
        try:
            for ring, before in zip(self.rings, msgspec.convert(state.get("rings"), list[Any]), strict=True):
                ring.restore(before)
            self.events.restore(state.get("events"))
        except ValueError as error:
            raise HistoryFileError(f"it is damaged: {error!r}") from error


def _changed(change: ConfigurationChange) -> Iterator[str]:
    """Yield a text for each changed entity, other than those of the policy.

    It has no name, so that thousands of entities that a program creates are one event with a count.
    """
    for each in change.entities:
        if not isinstance(each.new or each.old, VhostConfig):
            verb = "created" if each.old is None else "deleted" if each.new is None else "changed"
            yield f"{each.type} {verb}"
