"""Sinks of log lines: priorities for systemd's journal, and reports of lost lines in the format of the lines."""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluice.router import json_codec
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog, sinks
from sluice.router.log.journal import JournalSocket
from sluice.router.log.sinks import JOURNAL_STREAM


@contextmanager
def stderr_as_file(path: Path) -> Iterator[None]:
    """Replace standard error by a file that the test may name as the journal. Within the test: pytest has its own
    standard error in each phase.
    """
    kept = os.dup(2)
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(opened, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(opened)
        os.close(kept)


def name_as_journal(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    found = path.stat()
    monkeypatch.setenv(JOURNAL_STREAM, f"{found.st_dev}:{found.st_ino}")


def test_lines_to_journal_have_priorities(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sinks, "JournalSocket", lambda: JournalSocket(str(tmp_path / "none")))
    with stderr_as_file(tmp_path / "stderr"):
        name_as_journal(monkeypatch, tmp_path / "stderr")
        log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(timestamp=False)}))
        log.notice("SERVER", "a")
        log.critical("SERVER", "Internal error\n  File x")
        log.close()
    expected = ["<5>SERVER (notice) a", "<2>SERVER (critical) Internal error", "<2>    |   File x"]
    assert (tmp_path / "stderr").read_text().splitlines() == expected


class JournalDaemon:
    """Datagram socket in the place of the journal."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        monkeypatch.setattr(sinks, "JournalSocket", lambda: JournalSocket(str(path)))
        self.path = path
        self.begin()

    def begin(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.socket.bind(str(self.path))

    def end(self) -> None:
        self.socket.close()
        self.path.unlink()

    def next(self) -> dict[str, str]:
        """Return the fields of the next entry, which has been sent already."""
        fields, rest = {}, self.socket.recv(1 << 20)
        while rest:
            name, _, rest = rest.partition(b"\n")
            (size,) = struct.unpack("<Q", rest[:8])
            fields[name.decode()] = rest[8 : 8 + size].decode()
            assert rest[8 + size : 9 + size] == b"\n"
            rest = rest[9 + size :]
        return fields


def test_journal_gets_fields(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    daemon = JournalDaemon(monkeypatch, tmp_path / "journal")
    with stderr_as_file(tmp_path / "stderr"):
        name_as_journal(monkeypatch, tmp_path / "stderr")
        log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(timestamp=True)}))
        log.hold()
        log.warning("SERVER", "[C7][L12] \nPRIORITY=0\n\u00e9")
        log.critical("AGENT", "Internal error\n  File x")
        log.close()
    first, second = daemon.next(), daemon.next()
    assert first.pop("SYSLOG_IDENTIFIER")
    assert first.pop("CODE_FILE") == __file__
    assert int(first.pop("CODE_LINE")) > 0
    assert first == {
        "MESSAGE": "SERVER (warning) [C7][L12] \\nPRIORITY=0\\n\u00e9", "PRIORITY": "4", "SLUICE_MODULE": "SERVER",
        "SLUICE_CONNECTION": "7", "SLUICE_LINK": "12",
    }  # fmt: skip
    assert (second["MESSAGE"], second["PRIORITY"]) == ("AGENT (critical) Internal error\n  File x", "2")
    assert "SLUICE_CONNECTION" not in second
    assert (tmp_path / "stderr").read_text() == ""


def test_journal_gets_lines_in_configured_format(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    daemon = JournalDaemon(monkeypatch, tmp_path / "journal")
    with stderr_as_file(tmp_path / "stderr"):
        name_as_journal(monkeypatch, tmp_path / "stderr")
        log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(format="json")}))
        log.info("SERVER", "a")
        log.close()
    assert json_codec.decode(daemon.next()["MESSAGE"].encode())["message"] == "a"


def test_lines_go_to_stream_while_journal_takes_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    daemon = JournalDaemon(monkeypatch, tmp_path / "journal")
    with stderr_as_file(tmp_path / "stderr"):
        name_as_journal(monkeypatch, tmp_path / "stderr")
        log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(timestamp=False)}))
        daemon.end()
        log.info("SERVER", "gone")
        daemon.begin()
        log.info("SERVER", "back")
        while "many" not in (tmp_path / "stderr").read_text():  # the daemon does not read until its queue is full
            log.info("SERVER", "many")
        log.close()
    assert daemon.next()["MESSAGE"] == "SERVER (info) back"
    assert (tmp_path / "stderr").read_text().splitlines() == ["<6>SERVER (info) gone", "<6>SERVER (info) many"]


@pytest.mark.parametrize("variable", [None, "", "1", "1:2", "x:y:z"])
def test_lines_to_other_streams_have_no_priorities(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str | None
) -> None:
    if variable is None:
        monkeypatch.delenv(JOURNAL_STREAM, raising=False)
    else:
        monkeypatch.setenv(JOURNAL_STREAM, variable)
    with stderr_as_file(tmp_path / "stderr"):
        log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(timestamp=False)}))
        log.error("SERVER", "a")
        log.close()
    assert (tmp_path / "stderr").read_text() == "SERVER (error) a\n"


def test_log_file_has_no_priorities_beside_journal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "log"
    with stderr_as_file(tmp_path / "stderr"):
        name_as_journal(monkeypatch, tmp_path / "stderr")
        log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(timestamp=False, output=str(path))}))
        log.error("SERVER", "a")
        log.close()
    assert path.read_text() == "SERVER (error) a\n"


def test_report_of_lost_lines_has_format_of_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(output=str(path), format="json")}))
    os.close(reader)
    log.info("SERVER", "lost")
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log.info("SERVER", "back")
    back, report = (json_codec.decode(line) for line in os.read(reader, 1000).splitlines())
    os.close(reader)
    log.close()
    assert back["message"] == "back"
    assert report == {
        "level": "warning", "module": "ERROR", "message": "1 log lines before the one above were lost",
    }  # fmt: skip
    assert "Broken pipe" in capfd.readouterr().err
