"""Sinks of log lines: reports of lost lines in the format of the lines."""

import os
from pathlib import Path

import pytest

from sluice.router import json_codec
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog


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
