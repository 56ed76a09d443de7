"""Audit subsystem: the configured audit logs, and the writing of each event to all of them.

Events arrive through the trail (`AuditTrail`). Before `open`, and without an `audit` section, they are discarded.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from sluice.router.config.diff import Change
from sluice.router.config.entities import AuditConfig, Configuration
from sluice.router.log import ERROR, WARNING, ProcessLog
from sluice.supervisor.audit.line import encode
from sluice.supervisor.audit.output import AuditOutput
from sluice.supervisor.audit.repetitions import Event
from sluice.supervisor.audit.sink import AuditSink, open_output
from sluice.supervisor.audit.trail import AuditTrail
from sluice.supervisor.configuration.change import ConfigurationChange
from sluice.supervisor.configuration.errors import ChangeError
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.runtime.threads import Threads
from sluice.supervisor.runtime.waker import Waker
from sluice.supervisor.subsystem import LiveAttributes, Subsystem

MODULE: Final = "SERVER"
OPEN_SECONDS: Final = 10.0  # time limit for opening an output
MOST_THREADS: Final = 4  # maximum number of threads that open outputs
CLOSE_SECONDS: Final = 2.0  # time limit for writing the last lines at the end of the router

_Opened = Mapping[str, AuditOutput]  # by name of the `audit` section


class AuditStartError(Exception):
    """Raised when an audit log cannot be opened at the start."""


class Audit(Subsystem):
    """Subsystem of all audit logs. Owner: the core."""

    def __init__(self, configuration: Configuration, waker: Waker, log: ProcessLog) -> None:
        self.trail: Final = AuditTrail(configuration.router.id, self)
        self._waker: Final = waker
        self._log: Final = log
        self._sinks: dict[str, AuditSink] = {}  # by name of the `audit` section
        self._ending: list[AuditSink] = []  # closed sinks that still write their last lines
        # Totals of sinks that have ended.
        self._dropped = 0
        self._lines = 0
        self._threads: Threads | None = None  # created on first use, inside the event loop
        self._prepared: dict[str, AuditOutput] = {}  # outputs opened for the change being made, by name of the section
        self._observers: list[Callable[[Sequence[Change]], object]] = []

    @property
    def enabled(self) -> bool:
        """True if at least one audit log is open."""
        return bool(self._sinks)

    @property
    def lines(self) -> int:
        """Number of lines written since the start, to present and former logs."""
        return self._lines + sum(sink.lines for sink in self._all())

    @property
    def dropped(self) -> int:
        """Number of lines dropped since the start, by present and former logs."""
        return self._dropped + sum(sink.dropped for sink in self._all())

    def _all(self) -> Iterator[AuditSink]:
        yield from self._sinks.values()
        yield from self._ending

    def when_changed(self, observer: Callable[[Sequence[Change]], object]) -> None:
        """Call `observer` with the changed entities of each change of the configuration, while it is committed."""
        self._observers.append(observer)

    # Lines

    @property
    def refuses(self) -> bool:
        """True if a log with `onFull: refuse` has no room: actions that would have to be reported must be refused."""
        return any(sink.config.refuses and sink.full for sink in self._sinks.values())

    def write(self, event: Event) -> None:
        """Write an event to all logs."""
        line = encode(event)
        for sink in self._sinks.values():
            self._write_to(sink, line)

    def _write_to(self, sink: AuditSink, line: bytes) -> None:
        if not sink.write(line):
            text = f"The audit log '{sink.config.name}' loses lines: {sink.fault or 'its output is too slow'}"
            self._log.repeated(ERROR, MODULE, f"audit {sink.config.name}", f"{text}; linesDropped counts them")

    def _about(self, name: str, detail: Mapping[str, Any]) -> Event:
        return self.trail.event(name, None, {}, detail)

    def _changed(self, sink: AuditSink, fault: str | None, warning: str | None) -> None:
        """Log a changed state of an audit log: a warning, a fault, or recovery from a fault."""
        name = sink.config.name
        if warning is not None:
            self._log.repeated(WARNING, MODULE, f"audit file {name}", f"The audit log '{name}': {warning}")
        elif fault is not None:
            text = f"The audit log '{name}' cannot be written: {fault}; its lines wait, and writing is retried"
            self._log.repeated(ERROR, MODULE, f"audit fault {name}", text)
        else:
            self._log.notice(MODULE, f"The audit log '{name}' can be written again")

    # Life

    def open(self, configuration: Configuration, detail: Mapping[str, Any]) -> None:
        """Open all logs at the start of the router and report the start. Raises AuditStartError.

        The router must have changed to its final user before. detail: details of the start event.
        """
        for config in _audits(configuration):
            try:
                self._begin(config, open_output(config))
            except OSError as error:
                raise AuditStartError(f"{configuration.path}:{config.line}: {_refusal(config, error)}") from error
        self.trail.report("router.start", None, {}, {**detail, "pid": os.getpid()})

    def _begin(self, config: AuditConfig, output: AuditOutput) -> None:
        sink = self._sinks[config.name] = AuditSink(self._waker.loop, config, output, self._about, self._changed)
        sink.start()
        shown = {"name": config.name, "output": config.output, "path": config.path}
        self._write_to(sink, encode(self._about("audit.start", shown)))

    def _end(self, name: str, reason: str) -> AuditSink:
        sink = self._sinks.pop(name)
        self._write_to(sink, encode(self._about("audit.stop", {"name": name, "reason": reason})))
        sink.close()
        self._ending.append(sink)
        sink.ended.add_done_callback(lambda _: self._ended(sink))
        return sink

    def _ended(self, sink: AuditSink) -> None:
        self._ending.remove(sink)
        self._lines += sink.lines
        self._dropped += sink.dropped
        if sink.fault is not None:
            text = f"The audit log '{sink.config.name}' was closed, and its last lines are lost: {sink.fault}"
            self._log.error(MODULE, text)

    async def finish(self, reason: str) -> None:
        """Report the end of the router and write the last lines. reason: a signal, or a failure."""
        self.trail.flush(everything=True)
        self.trail.report("router.stop", None, {}, {"reason": reason})
        ended = [self._end(name, "the router ends").ended for name in list(self._sinks)]
        ended += [sink.ended for sink in self._ending]
        if ended:
            await asyncio.wait(ended, timeout=CLOSE_SECONDS)

    def reopen(self) -> None:
        """Open all outputs again, so that log files renamed by an external tool are replaced by new ones."""
        for sink in self._sinks.values():
            sink.reopen()

    # Subsystem

    def live_attributes(self) -> Mapping[str, LiveAttributes]:
        return {AuditConfig.type: self._shown}

    def _shown(self, config: AuditConfig) -> Mapping[str, Any]:
        sink = self._sinks.get(config.name)
        if sink is None:
            return {}
        return {"linesWritten": sink.lines, "linesDropped": sink.dropped, "fault": sink.fault}

    def connection_closed(self, connection: RegisteredConnection) -> None:
        self.trail.forget(connection)

    def expire(self) -> None:
        self.trail.flush()

    @property
    def deadline(self) -> float:
        return self.trail.deadline

    # Changes of the configuration

    def _missing(self, configuration: Configuration) -> list[AuditConfig]:
        """Return the sections of a configuration whose outputs are not open yet."""
        return [config for config in _audits(configuration) if not self._has_same_output(config)]

    def _has_same_output(self, config: AuditConfig) -> bool:
        """True if the log of this section is open and writes to the same output."""
        sink = self._sinks.get(config.name)
        return sink is not None and (sink.config.output, sink.config.path) == (config.output, config.path)

    def gather(self, change: ConfigurationChange) -> "asyncio.Future[_Opened] | None":
        """Open the outputs that are not open yet."""
        missing = self._missing(change.new) if change.concerns(AuditConfig) else []
        return self._waker.loop.create_task(self._open(missing, change.new.path)) if missing else None

    async def _open(self, configs: Iterable[AuditConfig], path: str) -> _Opened:
        """Open the outputs of sections in threads. Raises ChangeError; then all outputs are closed again."""
        if self._threads is None:
            self._threads = Threads(self._waker.loop, "audit logs", MOST_THREADS)
        opened: dict[str, AuditOutput] = {}
        for config in configs:
            try:
                opened[config.name] = await self._threads.run(partial(open_output, config), OPEN_SECONDS)
            except OSError as error:
                _close(opened)
                raise ChangeError(500, f"{path}:{config.line}: {_refusal(config, error)}") from error
        return opened

    def prepare(self, change: ConfigurationChange) -> None:
        if not change.concerns(AuditConfig):
            return
        self._prepared = dict(change.gathered.pop(self, {}))
        for config in self._missing(change.new):
            if config.name not in self._prepared:  # the reverse change after an internal error has not called `gather`
                try:
                    self._prepared[config.name] = open_output(config)
                except OSError as error:
                    raise ChangeError(500, _refusal(config, error)) from error

    def commit(self, change: ConfigurationChange) -> None:
        for observer in self._observers:
            observer(change.entities)
        if not change.concerns(AuditConfig):
            return
        prepared, self._prepared = self._prepared, {}
        wanted = {config.name: config for config in _audits(change.new)}
        for name in [name for name in self._sinks if name not in wanted or not self._has_same_output(wanted[name])]:
            self._end(name, "the configuration has changed")
        for name, config in wanted.items():
            if name in self._sinks:
                self._sinks[name].use(config)
            else:
                self._begin(config, prepared.pop(name))
        _close(prepared)

    def discard(self, change: ConfigurationChange) -> None:
        _close(change.gathered.pop(self, {}))
        _close(self._prepared)
        self._prepared = {}


def _audits(configuration: Configuration) -> Iterator[AuditConfig]:
    return (each for each in configuration.others if isinstance(each, AuditConfig))


def _refusal(config: AuditConfig, error: OSError) -> str:
    """Return the message for a log that cannot be opened."""
    place = config.output if config.path is None else f"'{config.path}'"
    return f"The audit log '{config.name}' cannot be opened: {place}: {error.strerror or error}"


def _close(opened: Mapping[str, AuditOutput]) -> None:
    for output in opened.values():
        output.close()
