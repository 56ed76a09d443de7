"""Lines of the log in syslog (management.md 4.3)."""

import contextlib
import os
import re
import socket

import pytest

from sluice.router.log import ALL_LEVELS, LogSettings, ModuleSettings, ProcessLog


@pytest.fixture
def daemon(tmp_path, monkeypatch):
    """Yield the socket of a fake syslog daemon."""
    path = str(tmp_path / "syslog")
    monkeypatch.setattr("sluice.router.log.sinks.SYSLOG_PATH", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(path)
        made.setblocking(False)
        yield made


def to_syslog(make_log):
    log, _ = make_log()
    log.apply(LogSettings({"DEFAULT": ModuleSettings(output="syslog")}))
    return log


def test_syslog_line_has_priority_and_process(make_log, daemon):
    to_syslog(make_log).error("AGENT", "text")
    found = daemon.recv(4096).decode()
    assert re.fullmatch(rf"<27>\w{{3}} [ \d]\d \d\d:\d\d:\d\d \S+\[{os.getpid()}\]: AGENT \(error\) text", found)


def test_syslog_daemon_that_does_not_read_loses_counted_lines(make_log, daemon):
    log = to_syslog(make_log)
    for number in range(2000):
        log.info("AGENT", f"{number} {'x' * 500}")
    taken = []
    with contextlib.suppress(BlockingIOError):
        while line := daemon.recv(4096):
            taken.append(line)
    assert 0 < len(taken) < 2000
    log.info("AGENT", "again")
    assert daemon.recv(4096).endswith(b": AGENT (info) again")
    lost = b": ERROR (warning) %d log lines before the one above were lost" % (2000 - len(taken))
    assert daemon.recv(4096).endswith(lost)


def test_syslog_daemon_may_be_replaced(make_log, daemon, tmp_path):
    log = to_syslog(make_log)
    log.info("AGENT", "first")
    daemon.close()
    log.info("AGENT", "lost")
    path = tmp_path / "syslog"
    path.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen()
        log.info("AGENT", "second")
        with listening.accept()[0] as taken:
            taken.settimeout(10)
            received = taken.recv(4096)
            while received.count(b"\0") < 2:
                received += taken.recv(4096)
    second, lost, rest = received.split(b"\0")
    assert second.endswith(b"AGENT (info) second")
    assert lost.endswith(b"1 log lines before the one above were lost")
    assert rest == b""


def test_syslog_line_has_no_timestamp(daemon):
    log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(mask=ALL_LEVELS, timestamp=True, output="syslog")}))
    log.trace("SERVER", "a\0b")
    log.error("SERVER", "c")
    log.close()
    sent = [daemon.recv(4096) for _ in range(2)]
    assert [line[:4] for line in sent] == [b"<31>", b"<27>"]
    assert [line.partition(b"]: ")[2] for line in sent] == [b"SERVER (trace) a\\x00b", b"SERVER (error) c"]
