"""Combination of events that strangers can repeat: each event is counted, and the number of lines is bounded."""

import math
from typing import Any

import pytest

from sluice.supervisor.audit.repetitions import (
    AT_ONCE,
    MOST_KINDS,
    SINGLE_LINES_PER_SECOND,
    WINDOW_SECONDS,
    Repetitions,
    common_members,
)


class RepetitionLog:
    """Repetitions with a clock. `lines`: events as they are written."""

    def __init__(self) -> None:
        self.now = 100.0
        self.lines: list[dict[str, Any]] = []
        self.repetitions = Repetitions(lambda event: self.lines.append(dict(event)), lambda: self.now)

    def happen(self, host: str, name: str = "login.refused", **more: Any) -> bool:
        event = {"time": f"t{self.now:g}", "event": name, "remote": host, **more}
        admitted = self.repetitions.admit((name, host), event)
        if admitted:
            self.lines.append(event)
        return admitted

    @property
    def events(self) -> int:
        """Number of events that the lines stand for."""
        return sum(line.get("repeated", 1) for line in self.lines)


@pytest.fixture
def log() -> RepetitionLog:
    return RepetitionLog()


def test_first_events_get_lines_and_rest_is_combined(log: RepetitionLog) -> None:
    admitted = [log.happen("h", detail={"claimed": f"u{number}", "mechanism": "PLAIN"}) for number in range(100)]
    assert admitted == [True] * AT_ONCE + [False] * (100 - AT_ONCE)
    assert log.repetitions.deadline == 100.0 + WINDOW_SECONDS
    log.now += WINDOW_SECONDS
    log.repetitions.flush()
    assert log.lines[AT_ONCE:] == [
        {
            "time": "t100", "event": "login.refused", "remote": "h", "detail": {"mechanism": "PLAIN"},
            "since": "t100", "repeated": 100 - AT_ONCE,
        }
    ]  # fmt: skip


def test_combined_line_has_first_and_last_time(log: RepetitionLog) -> None:
    for _ in range(AT_ONCE + 3):
        log.happen("h")
        log.now += 0.5
    log.repetitions.flush(everything=True)
    last = log.lines[-1]
    assert (last["since"], last["time"], last["repeated"]) == ("t105", "t106", 3)


def test_continued_guessing_costs_one_line_per_window(log: RepetitionLog) -> None:
    for _ in range(100):
        for _ in range(50):
            log.happen("h")
        log.now += WINDOW_SECONDS
    log.repetitions.flush()
    assert len(log.lines) == AT_ONCE + 100
    assert log.events == 5000


def test_quiet_window_restores_single_lines(log: RepetitionLog) -> None:
    for _ in range(AT_ONCE + 1):
        log.happen("h")
    for _ in range(3):
        log.now += WINDOW_SECONDS
        log.repetitions.flush()
    assert log.happen("h")
    assert log.repetitions.deadline == math.inf


def test_hosts_have_separate_lines(log: RepetitionLog) -> None:
    for _ in range(1000):
        log.happen("guesser")
    assert log.happen("owner")


def test_lines_of_many_hosts_are_bounded(log: RepetitionLog) -> None:
    for number in range(5000):
        log.happen(f"h{number}")
    assert len(log.lines) <= SINGLE_LINES_PER_SECOND
    log.now += WINDOW_SECONDS
    log.repetitions.flush()
    assert log.events == 5000


def test_lines_of_many_hosts_resume_with_time(log: RepetitionLog) -> None:
    for number in range(1000):
        log.happen(f"h{number}")
    log.now += 0.25
    assert sum(log.happen(f"later{number}") for number in range(1000)) == SINGLE_LINES_PER_SECOND // 4


def test_hosts_beyond_memory_are_combined(log: RepetitionLog) -> None:
    for number in range(MOST_KINDS + 500):
        log.happen(f"h{number}")
    log.repetitions.flush(everything=True)
    assert log.events == MOST_KINDS + 500
    assert max(line.get("repeated", 1) for line in log.lines) == 500
    assert not log.repetitions._windows


def test_combined_event_drops_long_values(log: RepetitionLog) -> None:
    for _ in range(AT_ONCE + 2):
        log.happen("h", detail={"address": "x" * 100_000, "asked": {str(n): n for n in range(10_000)}})
    (window,) = log.repetitions._windows.values()
    assert len(str(window.combined)) < 1000


def test_combined_line_names_common_network(log: RepetitionLog) -> None:
    for number in range(AT_ONCE + 2):
        event = {"time": "t", "event": "login.refused", "remote": f"2001:db8::{number}"}
        log.repetitions.admit(("login.refused", "2001:db8::/64"), event)
    log.repetitions.flush(everything=True)
    assert [line["remote"] for line in log.lines] == ["2001:db8::/64"]


def test_complete_flush_counts_all_events(log: RepetitionLog) -> None:
    for _ in range(AT_ONCE + 5):
        log.happen("h")
    log.repetitions.flush(everything=True)
    assert log.events == AT_ONCE + 5
    assert log.repetitions.deadline == math.inf


def test_common_members_are_those_with_equal_values() -> None:
    one = {"a": 1, "b": {"x": 1, "y": 2}, "c": 3, "d": None}
    assert common_members(one, {"a": 1, "b": {"x": 1, "y": 3}, "c": 4, "d": None}) == {"a": 1, "b": {"x": 1}, "d": None}
