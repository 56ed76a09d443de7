"""Messages that are repeated: the first is logged, the others are counted."""

import pytest

from sluice.router.log import (
    ALL_LEVELS,
    CRITICAL,
    ERROR,
    REPEAT_AFTER,
    TRACE,
    LogEntry,
    LogSettings,
    ModuleSettings,
)
from sluice.router.log.log import MOST_REPEATS


def test_repeated_messages_are_counted(make_log, monkeypatch):
    now, later = [100.0], []
    monkeypatch.setattr("sluice.router.log.log.time.monotonic", lambda: now[0])
    log, lines = make_log()
    log.later = lambda seconds, action: later.append((now[0] + seconds, action))

    def run():
        now[0], action = later.pop(0)
        action()

    for number in range(5):
        log.repeated(ERROR, "SERVER", "a", f"a {number}")
    log.repeated(CRITICAL, "SERVER", "b", "b\n Traceback")
    assert lines() == ["SERVER (error) a 0", "SERVER (critical) b", "    |  Traceback"]
    run()
    run()
    assert lines()[3:] == ["SERVER (error) 4 more of this kind in 10 seconds, the last: a 4"]
    log.repeated(ERROR, "SERVER", "a", "a 5")
    log.repeated(CRITICAL, "SERVER", "b", "b again")  # the first of its kind for ten seconds
    run()
    run()
    run()
    assert lines()[4:] == ["SERVER (critical) b again",
                                  "SERVER (error) 1 more of this kind in 10 seconds, the last: a 5"]  # fmt: skip
    assert not later  # no timer is left for a kind that has ended
    log.repeated(ERROR, "SERVER", "a", "a 6")
    assert lines()[-1] == "SERVER (error) a 6"
    assert log.counters()["SERVER"]["error"] == 7


@pytest.mark.parametrize("module", ["SERVER", "DEFAULT"])
def test_changed_module_settings_show_failures_again(make_log, module):
    """After a change of a module's settings its next failure is logged again. Other modules are unaffected."""
    log, lines = make_log()
    for _ in range(3):
        log.repeated(ERROR, "SERVER", "a", "server")
        log.repeated(ERROR, "AGENT", "a", "agent")
    assert lines() == ["SERVER (error) server", "AGENT (error) agent"]
    before = log.settings.modules
    level = LogSettings({**before, "AGENT": before["DEFAULT"]}) if module == "SERVER" else log.settings
    log.apply(level)
    assert lines()[2:] == [], "nothing has changed for either"
    own = before["DEFAULT"]
    changed = ModuleSettings(mask=ALL_LEVELS & ~TRACE, timestamp=own.timestamp, source=own.source, output=own.output)
    log.apply(LogSettings({**level.modules, module: changed}))
    modules = ["SERVER"] if module == "SERVER" else ["SERVER", "AGENT"]
    told = [f"{each} (error) 2 more of this kind in 10 seconds, the last: {each.lower()}" for each in modules]
    assert lines()[2:] == told
    log.repeated(ERROR, "SERVER", "a", "server")
    log.repeated(ERROR, "AGENT", "a", "agent")
    assert lines()[2 + len(told) :] == [f"{each} (error) {each.lower()}" for each in modules]


def test_local_repeated_lines_are_withheld_from_on_line(make_log, monkeypatch):
    now, later = [100.0], []
    monkeypatch.setattr("sluice.router.log.log.time.monotonic", lambda: now[0])
    log, lines = make_log()
    log.later = lambda seconds, action: later.append(action)
    told: list[LogEntry] = []
    log.on_line = told.append
    for _ in range(3):
        log.repeated(ERROR, "SERVER", "local", "of the export itself", local=True)
    log.repeated(ERROR, "SERVER", "other", "of something else")
    now[0] += REPEAT_AFTER
    for action in list(later):
        action()
    assert [entry.text for entry in told] == ["of something else"]
    assert lines() == [
        "SERVER (error) of the export itself",
        "SERVER (error) of something else",
        "SERVER (error) 2 more of this kind in 10 seconds, the last: of the export itself",
    ]
    assert log.on_line == told.append


def test_kinds_of_repeated_messages_are_bounded(make_log):
    log, lines = make_log()
    for number in range(2 * MOST_REPEATS):
        log.repeated(ERROR, "SERVER", f"kind {number}", f"text {number}")
    log.repeated(ERROR, "SERVER", "kind 0", "text 0 again")
    assert len(lines()) == MOST_REPEATS + 1
    log.close()
    assert len(lines()) == MOST_REPEATS + 3  # the counts are logged at the end
