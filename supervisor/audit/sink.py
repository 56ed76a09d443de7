"""An audit log: its queue, its thread, and the numbers of its lines."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from router.config.entities import AuditConfig
from supervisor.audit.audit_file import AuditFile
from supervisor.audit.line import LINE_MOST, encode, numbered
from supervisor.audit.line_queue import LineQueue
from supervisor.audit.output import AuditOutput
from supervisor.audit.system_log import JournalOutput, SyslogOutput
from supervisor.audit.writer import AuditWriter

NUMBER_OCTETS: Final = 40  # that the sequence number adds to a line
RESERVE: Final = 4 * LINE_MOST  # octets that a log with `onFull: refuse` keeps for what has been admitted

Report = Callable[["AuditSink", str | None, str | None], object]


def open_output(config: AuditConfig) -> AuditOutput:
    """Open the place that an `audit` section names. Raises OSError."""
    match config.output:
        case "syslog":
            return SyslogOutput()
        case "journald":
            return JournalOutput()
    assert config.path is not None
    return AuditFile(config.path, config.max_size, config.keep)


class AuditSink:
    """An audit log that is written. Owner: the audit subsystem; all methods are for the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: AuditConfig,
        output: AuditOutput,
        about: Callable[[str, Mapping[str, Any]], Mapping[str, Any]],
        report: Report,
    ) -> None:
        """about: makes an event of this log's own from a name and its detail. report: takes changes of its state:
        what is wrong (None: nothing any more), and a warning."""
        self.config = config
        self.dropped = 0  # lines that were never written
        self.fault: str | None = None
        self.sequence = 0  # of the last line, written or dropped
        self._about: Final = about
        self._report: Final = report
        self._loop: Final = loop
        self._output: Final = output
        self._missing = 0  # dropped lines since the last one that found room
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
        """Return how many lines were written."""
        return self._writer.lines

    @property
    def full(self) -> bool:
        """Return whether what is about to happen may find no room."""
        return bool(self._missing) or not self._queue.room(min(RESERVE, self._queue.most // 2))

    def write(self, line: bytes) -> bool:
        """Add an encoded line, after one about lines that are missing; False: there is no room, and it is counted."""
        lines = []
        if self._missing:
            about = {"count": self._missing, "first": self.sequence - self._missing + 1, "last": self.sequence}
            lines.append(numbered(encode(self._about("audit.dropped", about)), self.sequence + 1))
        lines.append(numbered(line, self.sequence + len(lines) + 1))
        if self._queue.put(lines):
            self.sequence += len(lines)
            self._missing = 0
            return True
        self.sequence += 1
        self._missing += 1
        self.dropped += 1
        return False

    def use(self, config: AuditConfig) -> None:
        """Go by other limits; the place is as before."""
        self.config = config
        self._queue.most = config.max_queued
        if isinstance(self._output, AuditFile):
            self._output.most, self._output.keep = config.max_size, config.keep

    def reopen(self) -> None:
        """Begin a new file where somebody has renamed the present one."""
        self._writer.reopen()

    def close(self) -> None:
        """Take no further lines; `ended` is done when those that are there are written, or cannot be."""
        self._queue.close()

    # From the thread

    def _call(self, function: Callable[..., object], *words: object) -> None:
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
