"""Log: its settings in this process and in the workers, its files, and the lines that workers write."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from sluice.router.config.entities import LogConfig
from sluice.router.control import messages as control
from sluice.router.control.handlers import HandlerTable
from sluice.router.control.ops import LogOp, Op
from sluice.router.log import (
    LEVELS,
    MODULES,
    LogChange,
    LogEntry,
    LogError,
    LogSettings,
    ProcessLog,
    Sink,
    close_outputs,
    open_outputs,
)
from sluice.supervisor.children.worker import WorkerFaultError, WorkerProcess
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.configuration.errors import ChangeError
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.runtime.threads import Threads
from sluice.supervisor.runtime.waker import Waker
from sluice.supervisor.subsystem import Subsystem

# Callback for entries of the log, with the number of the worker that wrote them (None: the supervisor), and the number
# of its entries before them that are missing.
OnEntries = Callable[[Iterable[LogEntry], int | None, int], None]

LOG_SECONDS: Final = 10.0  # timeout for opening log files
KEPT: Final = "A log file was not reopened, and lines still go to the old file"
MAX_LOG_FILES: Final = 8  # threads for opening log files


class Logging(Subsystem):
    """Log settings of the router and its workers. Owner: the core."""

    def __init__(self, journal: Journal, waker: Waker, log: ProcessLog) -> None:
        self._journal = journal
        self._waker = waker
        self._log = log
        self.lost_lines: Final = log.lost_lines
        self._op = LogOp(log.settings.to_dict(), 0)
        self._threads: Threads | None = None  # created on demand, inside the event loop
        self._prepared: LogChange | None = None
        self._on_entries: OnEntries | None = None

    def export(self, on_entries: OnEntries | None) -> None:
        """Pass each entry that the supervisor or a worker writes from here on to `on_entries`; None: to nobody."""
        self._on_entries = on_entries
        self._log.on_line = None if on_entries is None else lambda entry: on_entries((entry,), None, 0)

    def recent(self) -> list[LogEntry]:
        """Return the last entries, oldest first."""
        return self._log.recent()

    # Workers

    def snapshot_ops(self) -> Iterable[Op]:
        return (self._op,)

    def messages(self, handlers: HandlerTable[WorkerProcess]) -> None:
        handlers.on(control.Log, self._line)
        handlers.on(control.Logged, self._news)

    def _line(self, worker: WorkerProcess, message: control.Log) -> None:
        module, level = message.module, message.level
        if level not in LEVELS or module not in MODULES:
            raise WorkerFaultError(f"log: module {module!r} or level {level!r} does not exist")
        self._log.write(LEVELS[level], module, message.text)

    def _news(self, worker: WorkerProcess, message: control.Logged) -> None:
        for line in message.lines:
            if line.level not in LEVELS:
                raise WorkerFaultError(f"logged: level {line.level!r} does not exist")
        try:
            self._log.add_log_changes(message.counts, message.lines)
        except (KeyError, ValueError) as error:
            raise WorkerFaultError(f"logged: its lines cannot be read: {error!r}") from error
        if self._on_entries is not None:
            self._on_entries(message.lines, worker.index, max(message.missing, 0))

    def change(self, settings: LogSettings, *, reopen: bool) -> None:
        """Announce the log settings to workers. reopen: they reopen their files."""
        self._op = LogOp(settings.to_dict(), self._op.opened + reopen)
        self._journal.append(self._op)

    # Changes of the configuration

    def gather(self, change: ConfigurationChange) -> "asyncio.Future[dict[str, Sink]] | None":
        """Open the new log files in a thread."""
        if not change.concerns(LogConfig):
            return None
        missing = self._log.missing(change.new.log_settings())
        return self._waker.loop.create_task(self._open(missing)) if missing else None

    async def _open(self, names: Iterable[str]) -> dict[str, Sink]:
        """Open log files in a thread. Raises ChangeError."""
        try:
            return await self._in_thread(names)
        except (LogError, OSError) as error:
            raise _refusal(error) from error

    def _in_thread(self, names: Iterable[str]) -> "asyncio.Future[dict[str, Sink]]":
        if self._threads is None:
            self._threads = Threads(self._waker.loop, "log files", MAX_LOG_FILES)
        return self._threads.run(partial(open_outputs, names), LOG_SECONDS)

    def prepare(self, change: ConfigurationChange) -> None:
        if not change.concerns(LogConfig):
            return
        settings = change.new.log_settings()
        outputs = change.gathered.pop(self, {})
        if settings == self._log.settings:
            close_outputs(outputs)
            return
        try:
            self._prepared = self._log.prepare(settings, outputs)
        except LogError as error:
            raise _refusal(error) from error

    def commit(self, change: ConfigurationChange) -> None:
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            self._log.use(prepared)
            self.change(prepared.settings, reopen=False)

    def discard(self, change: ConfigurationChange) -> None:
        close_outputs(change.gathered.pop(self, {}))
        if self._prepared is not None:
            self._prepared.discard()
            self._prepared = None

    # SIGHUP

    async def reopen(self) -> None:
        """Reopen the log files here and in the workers, because they may have been renamed."""
        names = self._log.files
        opening = [self._in_thread([name]) for name in names]
        for name, future in zip(names, opening, strict=True):
            try:
                self._log.replace_descriptors(await future)
            except LogError as error:
                self._log.error("SERVER", f"{KEPT}: {error}")
            except OSError as error:
                self._log.error("SERVER", f"{KEPT}: '{name}': {error.strerror}")
        self.change(self._log.settings, reopen=True)
        self._waker.wake()


def _refusal(error: LogError | OSError) -> ChangeError:
    """Return the error for a change whose log files cannot be opened."""
    text = str(error) if isinstance(error, LogError) else f"Failed to open log files: {error.strerror}"
    return ChangeError(500, f"CError: Configuration: {text}")
