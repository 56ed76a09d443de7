"""Audit lines to the daemons of the system: their format, and daemons that restart or do not read."""

import json
import os
import re
import socket
import struct
import syslog
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.supervisor.audit.line import encode, with_sequence_number
from sluice.supervisor.audit.system_log import JournalOutput, SyslogOutput

LINE = with_sequence_number(encode({"event": "login.refused", "outcome": "denied", "user": "a\nPRIORITY=0"}), 1)


class FakeLogDaemon:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(10)

    def next(self) -> bytes:
        return self.socket.recv(1 << 16)

    def close(self) -> None:
        self.socket.close()
        self.path.unlink()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeLogDaemon]:
    made = FakeLogDaemon(tmp_path / "log")
    yield made
    made.socket.close()


def test_syslog_line_has_facility_and_priority(daemon: FakeLogDaemon) -> None:
    output = SyslogOutput(str(daemon.path))
    assert output.write([LINE]) == (1, None, None)
    output.close()
    found = re.fullmatch(rb"<(\d+)>\w{3} [ \d]\d \d\d:\d\d:\d\d [\w.-]+\[(\d+)\]: (\{.*\})", daemon.next())
    assert found is not None
    assert int(found[1]) == syslog.LOG_AUTHPRIV | syslog.LOG_NOTICE
    assert int(found[2]) == os.getpid()
    assert json.loads(found[3]) == json.loads(LINE)


def test_journal_fields_cannot_be_forged(daemon: FakeLogDaemon) -> None:
    output = JournalOutput(str(daemon.path))
    assert output.write([LINE]) == (1, None, None)
    output.close()
    fields, rest = {}, daemon.next()
    while rest:
        name, _, rest = rest.partition(b"\n")
        (size,) = struct.unpack("<Q", rest[:8])
        fields[name.decode()] = rest[8 : 8 + size]
        assert rest[8 + size : 9 + size] == b"\n"
        rest = rest[9 + size :]
    assert fields["MESSAGE"] == LINE[:-1]
    assert fields["PRIORITY"] == b"5"
    assert fields["SYSLOG_FACILITY"] == b"10"
    assert fields["SLUICE_EVENT"] == b"login.refused"
    assert fields["SLUICE_USER"] == b"a\nPRIORITY=0"


def test_restarted_daemon_gets_next_line(daemon: FakeLogDaemon) -> None:
    output = SyslogOutput(str(daemon.path))
    daemon.close()
    lost = output.write([LINE, LINE])
    assert lost.lines == 0
    assert lost.fault is not None
    again = FakeLogDaemon(daemon.path)
    assert output.write([LINE, LINE]) == (2, None, None)
    assert again.next().endswith(LINE[:-1])
    again.socket.close()
    output.close()


def test_stalled_daemon_loses_no_line(daemon: FakeLogDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.supervisor.audit.system_log.SECONDS", 0.05)
    output = SyslogOutput(str(daemon.path))
    sent = 0
    while (written := output.write([LINE])).fault is None:
        sent += written.lines
    for _ in range(sent):
        daemon.next()
    assert output.write([LINE]) == (1, None, None)
    output.close()


def test_missing_daemon_is_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        SyslogOutput(str(tmp_path / "none"))
