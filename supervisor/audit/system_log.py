"""The system's logs as places for audit lines: syslog, and the journal of systemd."""

import json
import os
import socket
import struct
import sys
import syslog
import time
from collections.abc import Sequence
from typing import Final

from supervisor.audit.output import Written

SYSLOG_PATH: Final = "/dev/log"
JOURNAL_PATH: Final = "/run/systemd/journal/socket"
SECONDS: Final = 1.0  # that a daemon may take for a line
FACILITY: Final = syslog.LOG_AUTHPRIV
# By outcome; what has none is information.
_PRIORITIES: Final = {"denied": syslog.LOG_NOTICE, "failure": syslog.LOG_WARNING}
_LENGTH: Final = struct.Struct("<Q")


class _Datagrams:
    """A daemon that takes a datagram for each line."""

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

    def write(self, lines: Sequence[bytes]) -> Written:
        """See AuditOutput."""
        for number, line in enumerate(lines):
            try:
                self._send(line[:-1])
            except OSError as error:
                return Written(number, error.strerror or "it does not read")
        return Written(len(lines))

    def _send(self, line: bytes) -> None:
        """Send a line, to a daemon that has been started anew after a second attempt. Raises OSError."""
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
    """The daemon of syslog: facility authpriv, in the form of syslog(3), which every daemon reads from this socket."""

    def __init__(self, path: str = SYSLOG_PATH) -> None:
        """Connect. Raises OSError."""
        super().__init__(path)

    def _datagram(self, line: bytes) -> bytes:
        priority = FACILITY | priority_of(json.loads(line))
        head = f"<{priority}>{time.strftime('%b %e %H:%M:%S')} {self._program}[{os.getpid()}]: "
        return head.encode() + line


class JournalOutput(_Datagrams):
    """The journal of systemd, in its own protocol: the fields SLUICE_EVENT, SLUICE_OUTCOME and SLUICE_USER beside the
    line can be searched for."""

    def __init__(self, path: str = JOURNAL_PATH) -> None:
        """Connect. Raises OSError."""
        super().__init__(path)

    def _datagram(self, line: bytes) -> bytes:
        event = json.loads(line)
        fields = {
            "MESSAGE": line,
            "PRIORITY": str(priority_of(event)).encode(),
            "SYSLOG_FACILITY": str(FACILITY >> 3).encode(),
            "SYSLOG_IDENTIFIER": self._program.encode(),
        }
        for name in ("event", "outcome", "user"):
            if isinstance(value := event.get(name), str):
                fields[f"SLUICE_{name.upper()}"] = value.encode("utf-8", "backslashreplace")
        return b"".join(_field(name.encode(), value) for name, value in fields.items())


def priority_of(event: dict[str, object]) -> int:
    """Return the priority of an event for daemons of system logs."""
    return _PRIORITIES.get(str(event.get("outcome")), syslog.LOG_INFO)


def _field(name: bytes, value: bytes) -> bytes:
    """Return a field of the journal's protocol, with its length: a value may have any octets."""
    return name + b"\n" + _LENGTH.pack(len(value)) + value + b"\n"
