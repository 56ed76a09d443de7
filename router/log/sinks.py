"""Sinks of log lines: files, the standard streams, syslog. management.md 4.3."""

import errno
import os
import socket
import sys
import syslog
import time
from collections.abc import Iterable, Mapping
from typing import Final

from sluice.router.files import open_trusted
from sluice.router.log.entry import LogEntry
from sluice.router.log.formats import FORMATS, TEXT, journal_fields
from sluice.router.log.journal import JournalSocket
from sluice.router.log.levels import CRITICAL, DEBUG, ERROR, INFO, NOTICE, TRACE, WARNING
from sluice.router.log.settings import LogError
from sluice.router.log.writer import MOST_HELD, HeldLines

FILE_MODE: Final = 0o666  # mode of a new log file, before the umask
SYSLOG_PATH = "/dev/log"
JOURNAL_STREAM: Final = "JOURNAL_STREAM"  # variable of systemd, kept for child processes (router/environment.py)
_SYSLOG_PRIORITIES: Final = {
    TRACE: syslog.LOG_DEBUG, DEBUG: syslog.LOG_DEBUG, INFO: syslog.LOG_INFO, NOTICE: syslog.LOG_NOTICE,
    WARNING: syslog.LOG_WARNING, ERROR: syslog.LOG_ERR, CRITICAL: syslog.LOG_CRIT,
}  # fmt: skip


class Sink(HeldLines):
    """Destination of log lines. Lines that cannot be written are counted and reported; they are never fatal.

    Owner: the Log that opened it.
    """

    def __init__(self, name: str) -> None:
        """Open `stderr`, `stdout`, or a file for append. Raises LogError."""
        self.name = name
        self._cut = False  # the last line was written only in part
        self._unwritten = 0  # lines lost by the last failed write
        self._owned = False
        self._journal: JournalSocket | None = None  # None: the sink is not the journal
        if name in ("stderr", "stdout"):
            self._descriptor = 2 if name == "stderr" else 1
            if _is_journal(self._descriptor):
                self._journal = JournalSocket()
                self.prefixes = True
            return
        # Non-blocking: neither open nor write waits for the reader of a FIFO.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        try:
            self._descriptor = open_trusted(name, flags, FILE_MODE)
        except (OSError, ValueError) as error:
            reason = f": {error.strerror}" if isinstance(error, OSError) and error.errno == errno.ELOOP else ""
            raise LogError(f"Failed to open log file '{name}'{reason}") from error
        self._owned = True

    @property
    def is_file(self) -> bool:
        """Whether the sink is a file rather than a standard stream."""
        return self._owned

    def become(self, opened: "Sink") -> None:
        """Continue with the file of another sink, which is closed."""
        self._flush()
        os.dup2(opened._descriptor, self._descriptor, inheritable=False)
        opened.close()

    def hold(self) -> None:
        """Buffer lines below level error until `release`, to write many at once."""
        self.holds = True

    def release(self) -> None:
        """Write the buffered lines, and each further line immediately."""
        self.holds = False
        self._flush()

    def write(self, line: str, level: int, line_format: str = TEXT, entry: LogEntry | None = None) -> None:
        """Write or buffer `line` and a newline. line_format: also of a report of lost lines after it.

        entry: parts of the line, which the journal gets as fields. If it does not take them, the line goes to the
        stream.
        """
        self.line_format = line_format
        if self._journal is not None:
            if entry is not None:
                fields = journal_fields(entry, None if line_format == TEXT else line)
                self._flush()
                if self._journal.send({**fields, "PRIORITY": str(_SYSLOG_PRIORITIES[level]).encode()}):
                    return
            line = self._prefixed(line, level)
        octets = f"{line}\n".encode("utf-8", "backslashreplace")
        if len(self.held) + len(octets) > MOST_HELD:
            self._flush()
        self.held += octets
        if not self.holds or self.lost or level >= ERROR:
            self._flush()

    def _prefixed(self, line: str, level: int) -> str:
        """Return `line` with the priority that the journal expects in front of each of its lines (sd-daemon(3))."""
        prefix = f"<{_SYSLOG_PRIORITIES[level]}>"
        return prefix + line.replace("\n", f"\n{prefix}")

    def _flush(self) -> None:
        if not self.held:
            return
        octets, self.held = self.held, bytearray()
        try:
            self._write(octets)
        except OSError as error:
            if self.lost == 0 and self._descriptor != 2:
                _report_on_stderr(f"log file '{self.name}' cannot be written: {error.strerror}")
            self.lost += self._unwritten
            return
        if self.lost:
            self._report_lost()

    def _write(self, lines: bytes | bytearray) -> None:
        """Write whole lines. Raises OSError; `_unwritten` is then the number of lines that are missing or cut."""
        octets = b"\n" + lines if self._cut else lines
        done = 0
        try:
            while done < len(octets):  # a full disk or pipe accepts only a part
                done += os.write(self._descriptor, octets[done:])
        except OSError:
            if done:
                self._cut = octets[done - 1 : done] != b"\n"
            self._unwritten = min(lines.count(b"\n"), octets[done:].count(b"\n"))
            raise
        self._cut = False

    def _report_lost(self) -> None:
        lost, self.lost = self.lost, 0
        try:
            line = _lost_line(lost, self.line_format)
            self._write(f"{line if self._journal is None else self._prefixed(line, WARNING)}\n".encode())
        except OSError:
            self.lost = lost

    def close(self) -> None:
        """Write the buffered lines, and close the descriptor if it is a file's."""
        self._flush()
        if self._journal is not None:
            self._journal.close()
        if self._owned:
            self._owned = False
            os.close(self._descriptor)

    def __del__(self) -> None:
        self.close()


class SyslogSink(Sink):
    """System log with facility daemon; the level determines the priority.

    Used instead of syslog(3), which blocks while the daemon does not read.
    """

    def __init__(self) -> None:
        self.name = "syslog"
        self._journal = None
        self._owned = False
        self._socket: socket.socket | None = None
        self._program = os.path.basename(sys.argv[0]) or "sluice"

    def hold(self) -> None:
        """Do nothing: each line is sent immediately."""

    def release(self) -> None:
        """Do nothing: no lines are buffered."""

    def write(self, line: str, level: int, line_format: str = TEXT, entry: LogEntry | None = None) -> None:
        """Send `line` to the daemon; count it as lost if the daemon does not accept it immediately."""
        if self._send(line, level):
            if self.lost and self._send(_lost_line(self.lost, line_format), WARNING):
                self.lost = 0
        else:
            self.lost += 1

    def _send(self, line: str, level: int) -> bool:
        head = f"<{_SYSLOG_PRIORITIES[level] | syslog.LOG_DAEMON}>{time.strftime('%b %e %H:%M:%S')} "
        octets = f"{head}{self._program}[{os.getpid()}]: {line}".encode("utf-8", "backslashreplace")
        for _ in range(2):  # the second attempt reaches a daemon that was restarted
            try:
                if self._socket is None:
                    self._socket = _connect_syslog()
                self._socket.sendall(octets + b"\0" if self._socket.type == socket.SOCK_STREAM else octets)
            except BlockingIOError:
                return False
            except OSError:
                self.close()
            else:
                return True
        return False

    def close(self) -> None:
        """Close the connection to the daemon."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _is_journal(descriptor: int) -> bool:
    """Return whether a standard stream leads to systemd's journal: JOURNAL_STREAM is its device and inode
    (systemd.exec(5)).
    """
    device, _, inode = os.environ.get(JOURNAL_STREAM, "").partition(":")
    try:
        found = os.fstat(descriptor)
    except OSError:  # the stream is closed
        return False
    return (device, inode) == (str(found.st_dev), str(found.st_ino))


def _lost_line(lost: int, line_format: str) -> str:
    """Return the report of lost lines."""
    text = f"{lost} log lines before the one above were lost"
    return FORMATS[line_format](LogEntry("ERROR", "warning", text, None, None, 0), None, False)


def _connect_syslog() -> socket.socket:
    """Return a non-blocking connection to the syslog daemon. Raises OSError."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        made.setblocking(False)
        made.connect(SYSLOG_PATH)
    except OSError as error:
        made.close()
        if error.errno != errno.EPROTOTYPE:
            raise
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            made.connect(SYSLOG_PATH)
        except OSError:
            made.close()
            raise
    return made


def open_outputs(names: Iterable[str]) -> dict[str, Sink]:
    """Open sinks by name, for a Log to take over.

    A slow file system blocks this call, so it may be made in another thread. Raises LogError; then no sink stays open.
    """
    opened: dict[str, Sink] = {}
    try:
        for name in sorted(names):
            opened[name] = SyslogSink() if name == "syslog" else Sink(name)
    except LogError:
        close_outputs(opened)
        raise
    return opened


def close_outputs(opened: Mapping[str, Sink]) -> None:
    """Close sinks that no Log has taken over."""
    for sink in opened.values():
        sink.close()


def _report_on_stderr(text: str) -> None:
    """Report on stderr that the log cannot be written."""
    try:
        os.write(2, f"{text}\n".encode("utf-8", "backslashreplace"))
    except OSError:
        return  # no output is left; the sink's count of lost lines remains
