"""Events that strangers can cause as often as they like: the first ones of a kind are lines, the rest are counted.

A kind is the name of an event, a remote host and what else the router knows by itself, never a value that a peer
chooses freely. AT_ONCE events of a kind within WINDOW_SECONDS are lines of their own. What comes beyond that is
combined: one line at the end of the window with what all of them have in common, their number (`repeated`) and when the
first came (`since`). As long as a window has some, the next one has no lines of their own.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from supervisor.audit.line import shortened

WINDOW_SECONDS: Final = 10.0
AT_ONCE: Final = 10
MOST_KINDS: Final = 10_000  # within one window; events of further kinds are combined over all hosts
ALL_PER_SECOND: Final = 200.0  # lines of their own, of all kinds together; further ones are combined

Kind = tuple[object, ...]
Event = Mapping[str, Any]


class _Window:
    """Events of one kind that have come."""

    __slots__ = ("began", "combined", "count", "lines", "since", "time")

    def __init__(self, began: float, lines: int) -> None:
        self.began = began
        self.lines = lines  # of their own that it may still have
        self.count = 0  # events that are combined
        self.combined: dict[str, Any] = {}
        self.since = self.time = ""  # of the first and the last of these


class Repetitions:
    """All windows. Owner: the audit trail."""

    def __init__(self, emit: Callable[[Event], object], clock: Callable[[], float] = time.monotonic) -> None:
        """emit: takes each combined event."""
        self._emit: Final = emit
        self._clock: Final = clock
        self._windows: OrderedDict[Kind, _Window] = OrderedDict()  # in the order in which they began
        self._combining = 0  # windows with combined events
        self._tokens = ALL_PER_SECOND
        self._at = clock()

    def admit(self, kind: Kind, event: Event) -> bool:
        """Return whether an event is to be a line of its own; else it is part of a combined one. kind: its
        first members are the name of the event and the host. The event has its `time`."""
        now = self._clock()
        self._expire(now)
        window = self._windows.get(kind)
        if window is None:
            if len(self._windows) >= MOST_KINDS:
                kind = (kind[0],)  # there are few names of events
            window = self._windows.setdefault(kind, _Window(now, AT_ONCE if len(kind) > 1 else 0))
        if window.lines and self._take(now):
            window.lines -= 1
            return True
        self._combine(window, event)
        return False

    def _take(self, now: float) -> bool:
        self._tokens = min(ALL_PER_SECOND, self._tokens + (now - self._at) * ALL_PER_SECOND)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _combine(self, window: _Window, event: Event) -> None:
        if not window.count:
            window.since = str(event.get("time"))
            window.combined = shortened(event)
            self._combining += 1
        else:
            window.combined = common(window.combined, shortened(event))
        window.time = str(event.get("time"))
        window.count += 1
        window.lines = 0

    def flush(self, *, everything: bool = False) -> None:
        """Emit what windows that are over have combined."""
        self._expire(math.inf if everything else self._clock())

    def _expire(self, now: float) -> None:
        """Begin new windows in place of those that are over and had more than lines of their own."""
        while self._windows:
            kind, window = next(iter(self._windows.items()))
            if now < window.began + WINDOW_SECONDS:
                return
            del self._windows[kind]
            if window.count:
                self._combining -= 1
                times = {"time": window.time, "since": window.since}
                host = {"remote": kind[1]} if len(kind) > 1 and kind[1] else {}  # several addresses of one network
                self._emit({**times, **host, **window.combined, **times, "repeated": window.count})
                if now < math.inf:
                    self._windows[kind] = _Window(now, 0)

    @property
    def deadline(self) -> float:
        """Return when `flush` has something to emit."""
        if not self._combining:
            return math.inf
        return next(iter(self._windows.values())).began + WINDOW_SECONDS


def common(one: Event, other: Event) -> dict[str, Any]:
    """Return the members that two events have in common."""
    found: dict[str, Any] = {}
    for name, value in one.items():
        if name not in other:
            continue
        theirs = other[name]
        if isinstance(value, Mapping) and isinstance(theirs, Mapping):
            found[name] = common(value, theirs)
        elif value == theirs:
            found[name] = value
    return found
