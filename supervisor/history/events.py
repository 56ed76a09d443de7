"""Events of a history: the marks on its time axis. Repeated events are counted, so that none pushes out all others."""

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

MOST_EVENTS: Final = 500
MAX_EVENT_TEXT: Final = 200  # characters; text may contain names that peers have chosen
REPEATED_WITHIN: Final = 60.0  # seconds within which an event with the same text is a repetition
COMPARED: Final = 20  # latest events among which repetitions are searched


class HistoryEvent(Struct):
    """Event. `time`: of the first occurrence, in seconds since the epoch. `last`: of the last one."""

    time: float
    kind: str
    text: str
    count: int = 1
    last: float = 0.0


class HistoryEvents:
    """Latest events, oldest first. Owner: the history."""

    def __init__(self) -> None:
        self._events: deque[HistoryEvent] = deque(maxlen=MOST_EVENTS)

    def add(self, now: float, kind: str, text: str) -> None:
        """Add an event, or count it as a repetition of a recent one."""
        text = text[:MAX_EVENT_TEXT]
        for number in range(1, 1 + min(COMPARED, len(self._events))):
            event = self._events[-number]
            if (event.kind, event.text) == (kind, text) and now - event.last < REPEATED_WITHIN:
                event.count += 1
                event.last = now
                return
        self._events.append(HistoryEvent(now, kind, text, 1, now))

    def since(self, seconds: float) -> list[HistoryEvent]:
        """Return all events that have occurred after a time since the epoch."""
        return [event for event in self._events if event.last > seconds]

    def state(self) -> list[list[Any]]:
        """Return all events as plain data, for `restore`."""
        return [[event.time, event.kind, event.text, event.count, event.last] for event in self._events]

    def restore(self, state: object) -> None:
        """Put earlier events before the present ones. Raises ValueError for an unsuitable state."""
        earlier = [
            HistoryEvent(time, kind[:MAX_EVENT_TEXT], text[:MAX_EVENT_TEXT], count, last)
            for time, kind, text, count, last in msgspec.convert(state, list[tuple[float, str, str, int, float]])
        ]
        self._events = deque([*earlier, *self._events], maxlen=MOST_EVENTS)


def as_map(event: HistoryEvent) -> Mapping[str, Any]:
    """Return an event as management shows it."""
    return {"time": event.time, "kind": event.kind, "text": event.text, "count": event.count, "last": event.last}
