"""Sinks of log lines: priorities for systemd's journal, and reports of lost lines in the format of the lines."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sluice.router import json_codec
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
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
    with stderr_as_file(tmp_path / "stderr"):
        name_as_journal(monkeypatch, tmp_path / "stderr")
        log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(timestamp=False)}))
        log.notice("SERVER", "a")
        log.critical("SERVER", "Internal error\n  File x")
        log.close()
    expected = ["<5>SERVER (notice) a", "<2>SERVER (critical) Internal error", "<2>    |   File x"]
    assert (tmp_path / "stderr").read_text().splitlines() == expected


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
