"""Audit log in use: its output, queue and writing thread, and the sequence numbers of its lines."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from sluice.router.config.entities import AuditConfig
from sluice.supervisor.audit.audit_file import AuditFile
from sluice.supervisor.audit.line import MAX_LINE_OCTETS, encode, with_sequence_number
from sluice.supervisor.audit.line_queue import LineQueue
from sluice.supervisor.audit.output import AuditOutput
from sluice.supervisor.audit.system_log import JournalOutput, SyslogOutput
from sluice.supervisor.audit.writer import AuditWriter

# Octets that a log with `onFull: refuse` keeps free for events of actions that were admitted before it became full.
RESERVE: Final = 4 * MAX_LINE_OCTETS

Report = Callable[["AuditSink", str | None, str | None], object]


def open_output(config: AuditConfig) -> AuditOutput:
    """Open the output that an `audit` section names. Raises OSError."""
    match config.output:
        case "syslog":
            return SyslogOutput()
        case "journald":
            return JournalOutput()
    assert config.path is not None
    return AuditFile(config.path, config.max_size, config.keep)


class AuditSink:
    """Audit log that is being written. Owner: the audit subsystem; call all methods in the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: AuditConfig,
        output: AuditOutput,
        about: Callable[[str, Mapping[str, Any]], Mapping[str, Any]],
        report: Report,
    ) -> None:
        """Create the queue and the thread, which `start` starts.

        about: make an event about this log from an event name and a detail. report: called with the sink, its fault
        (None: no fault) and a warning (or None) when its state changes.
        """
        self.config = config
        self.dropped = 0  # number of lines that were never written
        self.fault: str | None = None  # reason of the present write failure
        self.sequence = 0  # sequence number of the last line, written or dropped
        self._about: Final = about
        self._report: Final = report
        self._loop: Final = loop
        self._output: Final = output
        self._missing = 0  # number of lines dropped since the last line that found room
        self._queue: Final = LineQueue(config.max_queued)
        self.ended: Final[asyncio.Future[None]] = loop.create_future()
        self._writer: Final = AuditWriter(
            self._queue, output, lambda *state: self._call(self._changed, *state), lambda: self._call(self._end)
        )

    def start(self) -> None:
        """Start the thread."""
        self._writer.start()

    @property
    def lines(self) -> int:
        """Number of lines written."""
        return self._writer.lines

    @property
    def full(self) -> bool:
        """True if an event that is about to happen might find no room."""
        return bool(self._missing) or not self._queue.room(min(RESERVE, self._queue.most // 2))

    def write(self, line: bytes) -> bool:
        """Queue an encoded line. Returns False if there is no room; then the line is counted as dropped.

        If lines were dropped before, an `audit.dropped` line about them comes first.
        """
        lines = []
        if self._missing:
            about = {"count": self._missing, "first": self.sequence - self._missing + 1, "last": self.sequence}
            lines.append(with_sequence_number(encode(self._about("audit.dropped", about)), self.sequence + 1))
        lines.append(with_sequence_number(line, self.sequence + len(lines) + 1))
        if self._queue.put(lines):
            self.sequence += len(lines)
            self._missing = 0
            return True
        self.sequence += 1
        self._missing += 1
        self.dropped += 1
        return False

    def use(self, config: AuditConfig) -> None:
        """Apply changed limits of the section; its output is unchanged."""
        self.config = config
        self._queue.most = config.max_queued
        if isinstance(self._output, AuditFile):
            self._output.most, self._output.keep = config.max_size, config.keep

    def reopen(self) -> None:
        """Open the output again, because an external tool has renamed the file."""
        self._writer.reopen()

    def close(self) -> None:
        """Refuse further lines. `ended` completes when the queued lines are written, or cannot be written."""
        self._queue.close()

    # Reports of the writing thread

    def _call(self, function: Callable[..., object], *words: object) -> None:
        """Call `function` in the event loop; called in the writing thread."""
        try:
            self._loop.call_soon_threadsafe(function, *words)
        except RuntimeError:
            return  # the loop has ended

    def _changed(self, fault: str | None, warning: str | None) -> None:
        self.fault = fault
        self._report(self, fault, warning)

    def _end(self) -> None:
        self.dropped += len(self._queue)
        if not self.ended.done():
            self.ended.set_result(None)
