"""Audit outputs to system logs: syslog, and the journal of systemd."""

import os
import socket
import sys
import syslog
import time
from collections.abc import Sequence
from typing import Final

from sluice.router import json_codec
from sluice.router.log.journal import JOURNAL_PATH, encode_fields
from sluice.supervisor.audit.output import WriteResult

SYSLOG_PATH: Final = "/dev/log"
SECONDS: Final = 1.0  # time limit for a daemon to accept a line
FACILITY: Final = syslog.LOG_AUTHPRIV
# Priorities by outcome; other events have priority LOG_INFO.
_PRIORITIES: Final = {"denied": syslog.LOG_NOTICE, "failure": syslog.LOG_WARNING}


class _Datagrams:
    """Connection to a daemon that accepts one datagram for each line."""

    def __init__(self, path: str) -> None:
        """Connect. Raises OSError."""
        self._path: Final = path
        self._program: Final = os.path.basename(sys.argv[0]) or "sluice"
        self._socket: socket.socket | None = self._connect()

    def _connect(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            made.settimeout(SECONDS)
            made.connect(self._path)
        except OSError:
            made.close()
            raise
        return made

    def write(self, lines: Sequence[bytes]) -> WriteResult:
        """See AuditOutput."""
        for number, line in enumerate(lines):
            try:
                self._send(line[:-1])
            except OSError as error:
                return WriteResult(number, error.strerror or "the log daemon does not read its socket")
        return WriteResult(len(lines))

    def _send(self, line: bytes) -> None:
        """Send a line. If that fails, connect again and retry once: the daemon may have been restarted.

        Raises OSError.
        """
        octets = self._datagram(line)
        try:
            if self._socket is not None:
                self._socket.send(octets)
                return
        except TimeoutError:
            raise
        except OSError:
            self.close()
        self._socket = self._connect()
        self._socket.send(octets)

    def _datagram(self, line: bytes) -> bytes:
        """Encode a line as a datagram."""
        raise NotImplementedError

    def reopen(self) -> str | None:
        """See AuditOutput."""
        self.close()
        return None

    def close(self) -> None:
        """See AuditOutput."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class SyslogOutput(_Datagrams):
    """Output to the syslog daemon with facility authpriv, in the format of syslog(3), which all daemons accept."""

    def __init__(self, path: str = SYSLOG_PATH) -> None:
        """Connect. Raises OSError."""
        super().__init__(path)

    def _datagram(self, line: bytes) -> bytes:
        priority = FACILITY | priority_of(json_codec.decode(line))
        head = f"<{priority}>{time.strftime('%b %e %H:%M:%S')} {self._program}[{os.getpid()}]: "
        return head.encode() + line


class JournalOutput(_Datagrams):
    """Output to the journal of systemd, in its native protocol.

    Beside the line, the fields SLUICE_EVENT, SLUICE_OUTCOME and SLUICE_USER allow searching.
    """

    def __init__(self, path: str = JOURNAL_PATH) -> None:
        """Connect. Raises OSError."""
        super().__init__(path)

    def _datagram(self, line: bytes) -> bytes:
        event = json_codec.decode(line)
        fields = {
            "MESSAGE": line,
            "PRIORITY": str(priority_of(event)).encode(),
            "SYSLOG_FACILITY": str(FACILITY >> 3).encode(),
            "SYSLOG_IDENTIFIER": self._program.encode(),
        }
        for name in ("event", "outcome", "user"):
            if isinstance(value := event.get(name), str):
                fields[f"SLUICE_{name.upper()}"] = value.encode("utf-8", "backslashreplace")
        return encode_fields(fields)


def priority_of(event: dict[str, object]) -> int:
    """Return the syslog priority of an event."""
    return _PRIORITIES.get(str(event.get("outcome")), syslog.LOG_INFO)
