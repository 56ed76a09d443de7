"""Formats of log lines: text, JSON and logfmt."""

import re
from pathlib import Path

import pytest

from sluice.router import json_codec
from sluice.router.escapes import CONTINUED
from sluice.router.log import CRITICAL, WARNING, LogEntry, LogSettings, ModuleSettings, ProcessLog
from sluice.router.log.formats import FORMATS

ENTRY = LogEntry("ROUTER_CORE", "info", '[C7][L12] Link attached: name="a b"', "/x/a.py", 3, 9)
RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def test_text_line_is_that_of_dispatch() -> None:
    assert FORMATS["text"](ENTRY, "T", True) == f"T ROUTER_CORE (info) {ENTRY.text} (/x/a.py:3)"


def test_json_line_has_fields_of_entry() -> None:
    found = json_codec.decode(FORMATS["json"](ENTRY, "T", True))
    assert found == {
        "time": "T", "level": "info", "module": "ROUTER_CORE", "message": ENTRY.text, "connection": 7, "link": 12,
        "file": "/x/a.py", "line": 3,
    }  # fmt: skip


def test_logfmt_line_quotes_values_where_needed() -> None:
    text = '[C7][L12] Link attached: name=\\"a b\\"'
    expected = f'level=info module=ROUTER_CORE message="{text}" connection=7 link=12'
    assert FORMATS["logfmt"](ENTRY, None, False) == expected
    assert FORMATS["logfmt"](ENTRY._replace(text="word"), None, False).endswith(" message=word")
    assert FORMATS["logfmt"](ENTRY._replace(text=""), None, False).endswith(' message=""')


@pytest.mark.parametrize("name", ["json", "logfmt"])
def test_structured_line_of_traceback_is_one_line(name: str) -> None:
    line = FORMATS[name](ENTRY._replace(text=CONTINUED.join(("Internal error", "  File x"))), None, False)
    assert "Internal error\\n  File x" in line
    assert "\n" not in line


def open_log(path: Path, line_format: str | None) -> ProcessLog:
    return ProcessLog(LogSettings({"DEFAULT": ModuleSettings(output=str(path), format=line_format)}))


def test_log_in_json_writes_one_object_per_entry_in_utc(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", "json")
    log.warning("SERVER", "one\ntwo \x1b[2J")
    log.critical("SERVER", "Internal error\n  File x\nValueError")
    log.close()
    one, two = (json_codec.decode(line) for line in (tmp_path / "log").read_text().splitlines())
    assert RFC_3339.fullmatch(one.pop("time"))
    assert one == {"level": "warning", "module": "SERVER", "message": "one\\ntwo \\x1b[2J"}
    assert two["message"] == "Internal error\n  File x\nValueError"


def test_modules_of_log_may_have_different_formats(tmp_path: Path) -> None:
    path = tmp_path / "log"
    default = ModuleSettings(output=str(path), format="logfmt", timestamp=False)
    log = ProcessLog(LogSettings({"DEFAULT": default, "AGENT": ModuleSettings(format="text")}))
    log.write(WARNING, "SERVER", "a")
    log.write(CRITICAL, "AGENT", "b")
    log.close()
    assert path.read_text().splitlines() == ["level=warning module=SERVER message=a", "AGENT (critical) b"]


def test_worker_gets_format_with_settings(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", "json")
    assert LogSettings.from_dict(log.settings.to_dict()) == log.settings
    log.close()
