"""Combination of events that strangers can repeat: each event is counted, and the number of lines is bounded."""

import math
from typing import Any

import pytest

from supervisor.audit.repetitions import (
    ALL_PER_SECOND,
    AT_ONCE,
    MOST_KINDS,
    WINDOW_SECONDS,
    Repetitions,
    common,
)


class Site:
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
def site() -> Site:
    return Site()


def test_first_events_are_lines_and_the_rest_is_one(site: Site) -> None:
    admitted = [site.happen("h", detail={"claimed": f"u{number}", "mechanism": "PLAIN"}) for number in range(100)]
    assert admitted == [True] * AT_ONCE + [False] * (100 - AT_ONCE)
    assert site.repetitions.deadline == 100.0 + WINDOW_SECONDS
    site.now += WINDOW_SECONDS
    site.repetitions.flush()
    assert site.lines[AT_ONCE:] == [
        {
            "time": "t100", "event": "login.refused", "remote": "h", "detail": {"mechanism": "PLAIN"},
            "since": "t100", "repeated": 100 - AT_ONCE,
        }
    ]  # fmt: skip


def test_combined_line_has_the_times_of_its_first_and_last_event(site: Site) -> None:
    for _ in range(AT_ONCE + 3):
        site.happen("h")
        site.now += 0.5
    site.repetitions.flush(everything=True)
    last = site.lines[-1]
    assert (last["since"], last["time"], last["repeated"]) == ("t105", "t106", 3)


def test_guessing_on_costs_one_line_a_window(site: Site) -> None:
    for _ in range(100):
        for _ in range(50):
            site.happen("h")
        site.now += WINDOW_SECONDS
    site.repetitions.flush()
    assert len(site.lines) == AT_ONCE + 100
    assert site.events == 5000


def test_quiet_window_gives_lines_of_their_own_again(site: Site) -> None:
    for _ in range(AT_ONCE + 1):
        site.happen("h")
    for _ in range(3):
        site.now += WINDOW_SECONDS
        site.repetitions.flush()
    assert site.happen("h")
    assert site.repetitions.deadline == math.inf


def test_other_host_has_its_own_lines(site: Site) -> None:
    for _ in range(1000):
        site.happen("guesser")
    assert site.happen("owner")


def test_many_hosts_are_bounded_together(site: Site) -> None:
    for number in range(5000):
        site.happen(f"h{number}")
    assert len(site.lines) <= ALL_PER_SECOND
    site.now += WINDOW_SECONDS
    site.repetitions.flush()
    assert site.events == 5000


def test_more_hosts_than_are_remembered_are_combined(site: Site) -> None:
    for number in range(MOST_KINDS + 500):
        site.happen(f"h{number}")
    site.repetitions.flush(everything=True)
    assert site.events == MOST_KINDS + 500
    assert max(line.get("repeated", 1) for line in site.lines) == 500
    assert not site.repetitions._windows


def test_combined_event_keeps_no_long_values(site: Site) -> None:
    for _ in range(AT_ONCE + 2):
        site.happen("h", detail={"address": "x" * 100_000, "asked": {str(n): n for n in range(10_000)}})
    (window,) = site.repetitions._windows.values()
    assert len(str(window.combined)) < 1000


def test_combined_line_about_several_addresses_names_their_network(site: Site) -> None:
    for number in range(AT_ONCE + 2):
        event = {"time": "t", "event": "login.refused", "remote": f"2001:db8::{number}"}
        site.repetitions.admit(("login.refused", "2001:db8::/64"), event)
    site.repetitions.flush(everything=True)
    assert [line["remote"] for line in site.lines] == ["2001:db8::/64"]


def test_flush_of_everything_leaves_nothing_out(site: Site) -> None:
    for _ in range(AT_ONCE + 5):
        site.happen("h")
    site.repetitions.flush(everything=True)
    assert site.events == AT_ONCE + 5
    assert site.repetitions.deadline == math.inf


def test_common_members_are_those_with_equal_values() -> None:
    one = {"a": 1, "b": {"x": 1, "y": 2}, "c": 3, "d": None}
    assert common(one, {"a": 1, "b": {"x": 1, "y": 3}, "c": 4, "d": None}) == {"a": 1, "b": {"x": 1}, "d": None}
