"""Events of a history: repetitions, bounds, and their state in a file."""

import pytest

from sluice.router import json_codec
from sluice.supervisor.history.events import MAX_EVENT_TEXT, MOST_EVENTS, REPEATED_WITHIN, HistoryEvents, as_map


def texts(events: HistoryEvents, since: float = 0.0) -> list[tuple[str, int]]:
    return [(event.text, event.count) for event in events.since(since)]


def test_repeated_event_is_counted() -> None:
    events = HistoryEvents()
    for moment in (100.0, 130.0, 180.0):
        events.add(moment, "worker", "a")
        events.add(moment, "worker", "b")
    assert texts(events) == [("a", 3), ("b", 3)]
    assert as_map(events.since(0.0)[0]) == {"time": 100.0, "kind": "worker", "text": "a", "count": 3, "last": 180.0}


def test_event_after_a_while_is_new() -> None:
    events = HistoryEvents()
    events.add(100.0, "reload", "a")
    events.add(100.0 + REPEATED_WITHIN, "reload", "a")
    assert texts(events) == [("a", 1), ("a", 1)]


def test_events_since_a_time_include_repetitions_after_it() -> None:
    events = HistoryEvents()
    events.add(100.0, "reload", "a")
    events.add(101.0, "worker", "b")
    events.add(120.0, "reload", "a")
    assert texts(events, 101.0) == [("a", 2)]


def test_events_are_bounded() -> None:
    events = HistoryEvents()
    for number in range(2 * MOST_EVENTS):
        events.add(float(number), "router lost", f"{number} " + "x" * 1000)
    found = events.since(-1.0)
    assert len(found) == MOST_EVENTS
    assert {len(event.text) for event in found} == {MAX_EVENT_TEXT}


def test_restored_events_come_first() -> None:
    before = HistoryEvents()
    before.add(1.0, "start", "a")
    before.add(2.0, "start", "a")
    events = HistoryEvents()
    events.add(9.0, "start", "b")
    events.restore(json_codec.decode(json_codec.encode(before.state())))
    assert texts(events) == [("a", 2), ("b", 1)]


@pytest.mark.parametrize("state", [5, None, {}, [5], [["x", "start", "a", 1, 1]], [[1.0, "start"]]])
def test_damaged_events_are_refused(state: list[list[object]]) -> None:
    events = HistoryEvents()
    with pytest.raises(ValueError):
        events.restore(state)
    assert texts(events) == []
