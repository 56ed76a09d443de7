"""Availability: state, time and reason of one object, and one line in the log for each change."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sluice.router.log import NOTICE, WARNING
from sluice.supervisor.runtime.availability import MAX_NAMES, STEADY_SECONDS, Availability, AvailabilityLog
from tests.unit.supervisor.adjustable_clock import AdjustableClock

WHERE = "connection broker"


class RecordedLog:
    """Log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, str, str]] = []

    def write(self, level: int, module: str, text: str) -> None:
        self.lines.append((level, module, text))

    def take(self) -> list[str]:
        """Return the texts since the last call, and check their levels."""
        taken, self.lines = self.lines, []
        for level, module, text in taken:
            assert (level, module) == (NOTICE if " up again " in text else WARNING, "M")
        return [text for _, _, text in taken]


class RecordedTimer:
    """Timer that a test fires."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.function: Callable[[], None] | None = function

    def cancel(self) -> None:
        self.function = None


class Objects:
    """Auto links with a log, a clock and timers."""

    def __init__(self) -> None:
        self.clock = AdjustableClock()
        self.log = RecordedLog()
        self.timers: list[RecordedTimer] = []
        self.changes = AvailabilityLog("Auto link", "M", self._later, self.log)  # type: ignore[arg-type]

    def _later(self, seconds: float, function: Callable[[], None]) -> RecordedTimer:
        assert seconds == STEADY_SECONDS
        self.timers.append(RecordedTimer(function))
        return self.timers[-1]

    def make(self, name: str) -> Availability:
        return Availability(name, self.clock)

    def steady(self) -> list[str]:
        """Let all objects that are up stay up, and return the lines about them."""
        timers, self.timers = self.timers, []
        self.clock.now += STEADY_SECONDS
        for timer in timers:
            if timer.function is not None:
                timer.function()
        return self.log.take()


@pytest.fixture
def objects() -> Objects:
    return Objects()


def test_first_rise_has_no_line(objects: Objects) -> None:
    one = objects.make("a")
    objects.clock.now += 5
    assert (one.up, one.seconds, one.error) == (False, 5, "")
    objects.changes.rise(one)
    assert (one.up, one.seconds) == (True, 0)
    assert objects.steady() == []


def test_change_of_state_has_one_line(objects: Objects) -> None:
    one = objects.make("a")
    for reason in ("refused", "refused", "not found"):
        objects.changes.fall(one, reason, WHERE)
        objects.clock.now += 2
    assert (one.up, one.seconds, one.error) == (False, 6, "not found")
    assert objects.log.take() == ["Auto link 'a' on connection broker is down: refused"]
    for _ in range(2):
        objects.changes.rise(one, WHERE)
    assert (one.up, one.error) == (True, "")
    assert objects.steady() == ["Auto link 'a' on connection broker is up again after 6 s"]
    objects.changes.fall(one, "again")
    assert objects.log.take() == ["Auto link 'a' is down: again"]


def test_short_recoveries_belong_to_one_outage(objects: Objects) -> None:
    one = objects.make("a")
    objects.changes.fall(one, "no queue", WHERE)
    assert len(objects.log.take()) == 1
    for _ in range(3):
        objects.clock.now += 5
        objects.changes.rise(one, WHERE)
        objects.changes.fall(one, "no queue", WHERE)
    assert objects.steady() == []
    objects.changes.rise(one, WHERE)
    objects.changes.fall_together([one], "lost", WHERE)
    assert objects.steady() == []
    objects.changes.rise(one, WHERE)
    assert objects.steady() == ["Auto link 'a' on connection broker is up again after 25 s"]


def test_objects_of_one_connection_share_lines(objects: Objects) -> None:
    several = [objects.make(f"n{number}") for number in range(MAX_NAMES + 2)]
    never = objects.make("never")
    for one in several:
        objects.changes.rise(one, WHERE)
    objects.changes.fall_together([*several, never], "lost", WHERE)
    named = ", ".join(f"'n{number}'" for number in range(MAX_NAMES))
    assert objects.log.take() == [f"Auto links {named} and 2 more on {WHERE} are down: lost"]
    assert never.error == "lost"
    *most, last = several
    for one in most:
        objects.clock.now += 1
        objects.changes.rise(one, WHERE)
    assert objects.steady() == [], "one is still down"
    objects.changes.rise(last, WHERE)
    seconds = round(MAX_NAMES + 1 + STEADY_SECONDS)
    assert objects.steady() == [f"Auto links {named} and 2 more on {WHERE} are up again after {seconds} s"]


def test_object_with_reason_of_its_own_leaves_group(objects: Objects) -> None:
    good, bad = objects.make("good"), objects.make("bad")
    for one in (good, bad):
        objects.changes.rise(one, WHERE)
    objects.changes.fall_together([good, bad], "lost", WHERE)
    objects.log.take()
    objects.changes.rise(good, WHERE)
    assert objects.steady() == []
    objects.changes.fall(bad, "no queue", WHERE)
    assert objects.log.take() == [
        "Auto link 'bad' on connection broker is down: no queue",
        "Auto link 'good' on connection broker is up again after 1 s",
    ]
    objects.changes.fall(bad, "no queue", WHERE)
    assert objects.steady() == []


def test_failed_object_without_connection_keeps_its_line(objects: Objects) -> None:
    one = objects.make("a")
    objects.changes.fall(one, "no queue", WHERE)
    objects.log.take()
    objects.changes.fall_together([one], "lost", WHERE)
    assert objects.log.take() == [], "it was down already"
    assert one.error == "lost"


def test_forgotten_object_does_not_hold_back_others(objects: Objects) -> None:
    kept, gone = objects.make("kept"), objects.make("gone")
    for one in (kept, gone):
        objects.changes.rise(one, WHERE)
    objects.changes.fall_together([kept, gone], "lost", WHERE)
    objects.changes.rise(kept, WHERE)
    objects.log.take()
    assert objects.steady() == []
    objects.changes.forget(gone, WHERE)
    assert objects.log.take() == ["Auto link 'kept' on connection broker is up again after 1 s"]
    objects.changes.forget(objects.make("other"), WHERE)


def test_faltering_object_gets_line_only_with_next_failure(objects: Objects) -> None:
    own, lost, well = objects.make("own"), objects.make("lost"), objects.make("well")
    for one in (own, lost, well):
        objects.changes.rise(one, WHERE)
        objects.changes.falter(one, "perhaps another's")
        assert (one.up, one.error) == (False, "perhaps another's")
    assert objects.log.take() == []
    objects.changes.rise(well, WHERE)
    objects.changes.fall(own, "no queue", WHERE)
    objects.changes.fall_together([own, lost], "gone", WHERE)
    assert objects.log.take() == [
        "Auto link 'own' on connection broker is down: no queue",
        "Auto link 'lost' on connection broker is down: gone",
    ]
