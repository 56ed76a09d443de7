"""Log: line format, levels, sinks, live changes, counters, kept lines, and several processes sharing a file.

management.md 4.1 to 4.3, 4.5, 4.6.
"""

import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sluice.router.control.codec import encode
from sluice.router.control.messages import Logged
from sluice.router.escapes import escape_unprintable
from sluice.router.log import (
    CRITICAL,
    DEBUG,
    ERROR,
    INFO,
    KEPT_LINES,
    LEVEL_NAMES,
    LEVELS,
    MAX_TEXT,
    MODULES,
    NOTICE,
    TRACE,
    WARNING,
    LogEntry,
    LogError,
    LogSettings,
    ModuleSettings,
    ProcessLog,
    open_outputs,
)
from sluice.router.log.writer import MOST_HELD

ROOT = Path(__file__).parents[4]


INFO_AND_ABOVE = INFO | NOTICE | WARNING | ERROR | CRITICAL


def test_line_with_default_timestamp(make_log):
    log, lines = make_log(timestamp=True)
    before = time.time()
    log.info("SERVER", "text")
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\.(\d{6}) ([+-]\d{4}) SERVER \(info\) text", lines()[0])
    assert match is not None
    seconds = time.mktime(time.strptime(match.group(1), "%Y-%m-%d %H:%M:%S"))
    assert before - 1 <= seconds + int(match.group(2)) / 1e6 <= time.time()


@pytest.mark.parametrize("level", LEVEL_NAMES)
def test_levels_are_filtered_by_mask(make_log, level):
    log, lines = make_log(mask=LEVELS[level])
    for each in LEVEL_NAMES:
        getattr(log, each)("AGENT", "by name")
        log.write(LEVELS[each], "AGENT", "by bit")
        assert log.enabled("AGENT", LEVELS[each]) == (each == level)
    assert lines() == [f"AGENT ({level}) by name", f"AGENT ({level}) by bit"]


def test_default_levels_start_at_info(make_log):
    log, lines = make_log()
    for level in LEVEL_NAMES:
        getattr(log, level)("MAIN", "x")
    assert lines() == [f"MAIN ({level}) x" for level in LEVEL_NAMES[2:]]


def test_unknown_module_raises_error(make_log):
    log, _ = make_log()
    with pytest.raises(KeyError):
        log.info("NONE", "x")


def test_source_of_each_line_is_its_own_caller(make_log):
    """The log remembers the lines of calling instructions."""
    log, lines = make_log(source=True)
    for _ in range(2):
        log.info("SERVER", "first")
        log.write(INFO, "SERVER", "second")
    places = [int(line.rpartition(":")[2][:-1]) for line in lines()]
    assert places == 2 * [places[0], places[0] + 1]


def test_source_names_file_and_line(make_log):
    log, lines = make_log(source=True)
    log.info("SERVER", "text")
    number = sys._getframe().f_lineno - 1
    assert lines() == [f"SERVER (info) text ({__file__}:{number})"]


@pytest.mark.parametrize("character", ["a", "é", "€", "😀"])
def test_long_text_is_truncated(make_log, character):
    log, lines = make_log()
    log.info("SERVER", character * 3000)
    size = len(character.encode())
    assert lines() == ["SERVER (info) " + character * (MAX_TEXT // size)]
    assert log.recent()[-1].text == character * (MAX_TEXT // size)


def test_text_that_is_not_unicode_is_escaped(make_log):
    log, lines = make_log()
    log.info("SERVER", "\ud800")
    assert lines() == ["SERVER (info) \\ud800"]


def test_text_cannot_forge_lines(make_log):
    log, lines = make_log()
    log.info("SERVER", "a\n SERVER (info) forged\r\x1b[2J\x9b\0\tb\u2028\u202e\U000e0001")
    text = "a\\n SERVER (info) forged\\r\\x1b[2J\\x9b\\x00\tb\\u2028\\u202e\\U000e0001"
    assert lines() == [f"SERVER (info) {text}"]
    assert log.recent()[-1].text == text


def test_further_lines_of_traceback_are_marked(make_log):
    log, lines = make_log()
    log.critical("SERVER", "Internal error\n  File x\nValueError: a\u2028b\nSERVER (info) forged")
    marked = ["    |   File x", "    | ValueError: a\\u2028b", "    | SERVER (info) forged"]
    assert lines() == ["SERVER (critical) Internal error", *marked]


@pytest.mark.starts
def test_output_may_be_standard_stream():
    program = (
        "from sluice.router.log import *; m = ModuleSettings\n"
        "log = ProcessLog(LogSettings({'DEFAULT': m(timestamp=False), 'AGENT': m(output='stdout')}))\n"
        "log.info('SERVER', 'to stderr'); log.info('AGENT', 'to stdout')"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("AGENT (info) to stdout\n", "SERVER (info) to stderr\n")


def test_modules_inherit_from_default(tmp_path):
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    modules = {
        "DEFAULT": ModuleSettings(mask=DEBUG, timestamp=False, output=a),
        "AGENT": ModuleSettings(mask=ERROR),
        "SERVER": ModuleSettings(output=b),
    }
    log = ProcessLog(LogSettings(modules))
    for module in ("AGENT", "SERVER", "ROUTER", "MAIN"):
        log.debug(module, "d")
        log.error(module, "e")
    log.close()
    assert Path(a).read_text() == "AGENT (error) e\nROUTER (debug) d\nMAIN (debug) d\n"
    assert Path(b).read_text() == "SERVER (debug) d\n"


def test_append_and_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("x.log").write_text("before\n")
    log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(timestamp=False, output="x.log")}))
    log.info("SERVER", "after")
    log.close()
    assert Path("x.log").read_text() == "before\nSERVER (info) after\n"


def test_settings_may_change_while_running(make_log, tmp_path):
    log, lines = make_log()
    log.debug("SERVER", "one")
    descriptors = len(os.listdir("/proc/self/fd"))
    other = tmp_path / "other"
    settings = LogSettings({"DEFAULT": ModuleSettings(mask=DEBUG, timestamp=True, output=str(other))}, "T%%d", utc=True)
    log.apply(settings)
    log.debug("SERVER", "two")
    assert lines() == []
    assert re.fullmatch(r"T\d+ SERVER \(debug\) two\n", other.read_text())
    assert len(os.listdir("/proc/self/fd")) == descriptors  # the old file is closed
    assert log.settings == settings


@pytest.mark.parametrize("output", ["", "/", "/nonexistent/x", "a\0b"])
def test_invalid_file_leaves_settings_unchanged(make_log, tmp_path, output):
    log, lines = make_log()
    descriptors = len(os.listdir("/proc/self/fd"))
    modules = {
        "DEFAULT": ModuleSettings(mask=TRACE, output=str(tmp_path / "new")),
        "AGENT": ModuleSettings(output=output),
    }
    with pytest.raises(LogError, match="Failed to open log file") as caught:
        log.apply(LogSettings(modules))
    assert str(caught.value) == f"Failed to open log file '{output}'"
    log.info("AGENT", "as before")
    assert lines() == ["AGENT (info) as before"]
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_invalid_timestamp_format_leaves_settings_unchanged(make_log):
    log, lines = make_log()
    with pytest.raises(LogError, match="Invalid timestampFormat"):
        log.apply(LogSettings(timestamp_format="a\0"))
    log.info("AGENT", "as before")
    assert lines() == ["AGENT (info) as before"]


def test_counters_count_every_call(make_log):
    log, _ = make_log(mask=0)
    log.info("SERVER", "x")
    log.write(TRACE, "SERVER", "x")
    log.critical("SERVER", "x")
    log.critical("SERVER", "x")
    counters = log.counters()
    assert counters["SERVER"] == {
        "trace": 1, "debug": 0, "info": 1, "notice": 0, "warning": 0, "error": 0, "critical": 2,
    }  # fmt: skip
    assert set(counters) == {*MODULES, "MAIN", "DISPLAYNAME"}
    assert sum(sum(levels.values()) for levels in counters.values()) == 4


def test_lines_and_counters_of_other_log_are_merged(make_log):
    (mine, _), (other, _) = make_log(), make_log()
    told: list[LogEntry] = []
    other.on_line = told.append
    other.info("SERVER", "before")
    mine.add_log_changes(*other.take_log_changes())
    other.info("SERVER", "one")
    other.debug("AGENT", "not written")
    other.error("SERVER", "two")
    mine.info("SERVER", "own")
    mine.add_log_changes(*other.take_log_changes())
    assert [entry.text for entry in told] == ["before", "one", "two"]
    assert [entry.text for entry in mine.recent()] == ["before", "own", "one", "two"]
    assert mine.counters()["SERVER"]["info"] == 3
    assert mine.counters()["SERVER"]["error"] == 1
    assert mine.counters()["AGENT"]["debug"] == 1
    assert other.take_log_changes() == ({}, [])
    with pytest.raises(KeyError):
        mine.add_log_changes({"NONE": [0] * 7}, [])


@pytest.mark.skipif(os.getuid() != 0, reason="only root has links of other users")
def test_log_file_that_is_a_link_of_another_user_is_refused(tmp_path):
    (tmp_path / "log").symlink_to("victim")
    os.lchown(tmp_path / "log", 65534, 65534)
    text = f"Failed to open log file '{tmp_path}/log': It is a symbolic link that root has not made"
    with pytest.raises(LogError, match=re.escape(text)):
        ProcessLog(LogSettings({"DEFAULT": ModuleSettings(output=str(tmp_path / "log"))}))
    assert not (tmp_path / "victim").exists()


def test_files_are_reopened_after_rotation(tmp_path):
    path = tmp_path / "router.log"
    log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(output=str(path))}))
    log.info("SERVER", "before")
    path.rename(tmp_path / "old")
    log.info("SERVER", "between")
    log.reopen()
    log.info("SERVER", "after")
    assert "after" in path.read_text()
    assert "between" in (tmp_path / "old").read_text()
    descriptors = len(os.listdir("/proc/self/fd"))
    log.reopen()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    path.unlink()
    path.mkdir()
    with pytest.raises(LogError):
        log.reopen()
    log.info("SERVER", "goes on where it was")
    log.close()


def test_fifo_without_reader_is_refused(make_log, tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    log, lines = make_log()
    with pytest.raises(LogError, match="Failed to open log file"):
        log.apply(LogSettings({"DEFAULT": ModuleSettings(output=str(path))}))
    log.info("AGENT", "as before")
    assert lines() == ["AGENT (info) as before"]


def test_fifo_with_slow_reader_loses_counted_lines(make_log, tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log, _ = make_log()
    log.apply(LogSettings({"DEFAULT": ModuleSettings(output=str(path), timestamp=False)}))
    text = "x" * 1000
    for _ in range(200):
        log.info("AGENT", text)
    written = b""
    with contextlib.suppress(BlockingIOError):
        while octets := os.read(reader, 65536):
            written += octets
    log.info("AGENT", "again")
    *whole, last, report = (written + os.read(reader, 65536)).decode().splitlines()
    assert last == "AGENT (info) again"
    assert whole == [f"AGENT (info) {text}"] * len(whole)
    assert report == f"ERROR (warning) {200 - len(whole)} log lines before the one above were lost"
    os.close(reader)
    log.close()


def test_outputs_opened_before_are_reused(make_log, tmp_path):
    log, _ = make_log()
    descriptors = len(os.listdir("/proc/self/fd"))
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    settings = LogSettings({"DEFAULT": ModuleSettings(output=first)})
    assert log.missing(settings) == {first}
    log.apply(settings, open_outputs([first, second]))
    assert log.missing(settings) == set()
    assert log.files == [first]
    log.info("AGENT", "there")
    assert "there" in (tmp_path / "first").read_text()
    with pytest.raises(LogError):
        log.apply(LogSettings(timestamp_format="a\0"), open_outputs([second]))
    assert len(os.listdir("/proc/self/fd")) == descriptors, "what is not needed is closed"


def test_recent_lines_are_kept(make_log):
    log, _ = make_log()
    log.debug("SERVER", "not written, not kept")
    for number in range(KEPT_LINES + 5):
        log.info("SERVER", str(number))
    assert [entry.text for entry in log.recent()] == [str(number) for number in range(5, KEPT_LINES + 5)]
    assert [entry.text for entry in log.recent(2)] == [str(KEPT_LINES + 3), str(KEPT_LINES + 4)]
    assert log.recent(0) == []
    last = log.recent(1)[0].as_list()
    assert last[:4] == ["SERVER", "info", str(KEPT_LINES + 4), __file__]
    assert isinstance(last[4], int)
    assert abs(last[5] - time.time()) < 60
    assert len(last) == 6


def test_unwritable_file_is_reported_on_stderr(capfd):
    full = "/dev/full"
    log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(timestamp=False, output=full)}))
    log.info("SERVER", "one")
    log.info("SERVER", "two")
    assert capfd.readouterr().err == "log file '/dev/full' cannot be written: No space left on device\n"
    assert [entry.text for entry in log.recent()] == ["one", "two"]


def test_lost_lines_are_reported_when_writing_works_again(tmp_path, capfd):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(timestamp=False, output=str(path))}))
    os.close(reader)
    log.info("SERVER", "lost")
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log.info("SERVER", "back")
    expected = "SERVER (info) back\nERROR (warning) 1 log lines before the one above were lost\n"
    assert os.read(reader, 1000).decode() == expected
    os.close(reader)
    assert "cannot be written: Broken pipe" in capfd.readouterr().err


def test_held_lines_are_written_on_release(tmp_path):
    """Error lines flush all held lines first, and no more is held than a pipe takes in one write."""
    path = tmp_path / "log"
    log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(timestamp=False, output=str(path))}))
    log.hold()
    log.info("SERVER", "one")
    log.info("SERVER", "two")
    assert path.read_text() == ""
    assert [entry.text for entry in log.recent()] == ["one", "two"]
    log.error("SERVER", "three")
    first = "SERVER (info) one\nSERVER (info) two\nSERVER (error) three\n"
    assert path.read_text() == first
    log.info("SERVER", "four")
    assert path.read_text() == first
    log.release()
    assert path.read_text() == first + "SERVER (info) four\n"
    log.info("SERVER", "five")
    assert path.read_text().endswith("five\n")
    log.hold()
    before = path.stat().st_size
    for _ in range(5):
        log.info("SERVER", "x" * 1000)
    assert 3000 < path.stat().st_size - before <= MOST_HELD
    log.close()
    assert path.read_text().count("x" * 1000) == 5


def test_held_lines_have_text_of_lines_written_at_once(tmp_path):
    texts = ["plain ~", "\u00e9 \u20ac \U0001f600", "\x7f \x1f \ud800", "", "x" * (MOST_HELD + 1)]
    written = []
    for holds in (False, True):
        path = tmp_path / str(holds)
        log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(timestamp=False, output=str(path))}))
        if holds:
            log.hold()
        for text in texts:
            log.info("SERVER", text)
        log.close()
        written.append(path.read_text())
    assert written[0] == written[1]
    assert written[0].count("\n") == len(texts)
    assert "\u00e9 \u20ac \U0001f600\n" in written[0]


def test_lost_held_lines_are_counted(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(timestamp=False, output=str(path))}))
    os.close(reader)
    log.hold()
    log.info("SERVER", "lost")
    log.info("SERVER", "too")
    log.release()
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log.info("SERVER", "back")
    expected = "SERVER (info) back\nERROR (warning) 2 log lines before the one above were lost\n"
    assert os.read(reader, 1000).decode() == expected
    os.close(reader)


WRITER = """
import sys
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
path, name, count = sys.argv[1:]
log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(timestamp=False, output=path)}))
sys.stdin.read()  # until both are there
for number in range(int(count)):
    log.info("SERVER", f"{name} {number} " + name * (number % 2000))
"""


@pytest.mark.starts
def test_log_file_is_shared_by_two_processes(tmp_path):
    path, count = tmp_path / "shared.log", 3000
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    writers = []
    for name in "ab":
        command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
        writers.append(subprocess.Popen(command, stdin=subprocess.PIPE, env=environment))
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.close()
    assert [writer.wait(60) for writer in writers] == [0, 0]
    lines = path.read_text().splitlines()
    for name in "ab":
        expected = [f"SERVER (info) {name} {number} " + name * (number % 2000) for number in range(count)]
        assert [line for line in lines if line.startswith(f"SERVER (info) {name} ")] == expected
    assert len(lines) == 2 * count


def test_half_of_surrogate_pair_is_logged_as_escape(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(output=str(path))}))
    log.info("SERVER", "a\ud800b")
    log.close()
    assert path.read_text().rstrip().endswith("a\\ud800b")
    assert [entry.text for entry in log.recent()] == ["a\\ud800b"]
    assert encode([Logged(*log.take_log_changes())])


@pytest.mark.parametrize("length", range(20))
@pytest.mark.parametrize("character", ["\x00", "\x1f", "\x7f", "\t", "\n", "é", "\x9f"])
def test_unprintable_character_at_any_place_is_escaped(make_log: Any, length: int, character: str) -> None:
    """Compiled code compares eight characters at once."""
    log, lines = make_log()
    for at in range(length):
        log.info("SERVER", "~" * at + character + " " * (length - at - 1))
    shown = escape_unprintable(character, lines=False)
    assert lines() == [f"SERVER (info) {'~' * at}{shown}{' ' * (length - at - 1)}" for at in range(length)]


@pytest.mark.parametrize("pattern", [None, "%H:%M:%S", "%%06luü", "%%3lu", "%Y"])
def test_held_lines_are_those_written_at_once(tmp_path: Path, pattern: str | None) -> None:
    """Held lines in format text are written by compiled code of their own."""
    path = tmp_path / "log"
    log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(output=str(path))}, timestamp_format=pattern))
    for text in ("plain", "", "a\tb", "ä", "x" * 5000):
        log.hold()
        log.info("SERVER", text)
        log.release()
        log.info("SERVER", text)
    found = [re.sub(r"\d", "0", line) for line in path.read_text().splitlines()]
    assert len(found) == 10
    assert found[::2] == found[1::2]
