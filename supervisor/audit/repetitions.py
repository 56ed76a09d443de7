"""Rate limit for audit events that unauthenticated peers can cause without limit.

Events are grouped by kind. A kind is the name of an event, a remote host and other facts that the router itself knows,
never a value that a peer chooses freely. The first AT_ONCE events of a kind within WINDOW_SECONDS get a line each.
Further events are combined into one line at the end of the window: with the members that all of them have in common,
their number (`repeated`) and the time of the first (`since`). If a window has combined events, all events of the next
window are combined.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from sluice.router.pacing.token_bucket import TokenBucket
from sluice.supervisor.audit.line import bounded_copy

WINDOW_SECONDS: Final = 10.0
AT_ONCE: Final = 10
MOST_KINDS: Final = 10_000  # maximum number of kinds at a time; events of further kinds are combined over all hosts
SINGLE_LINES_PER_SECOND: Final = 200  # lines for single events per second, of all kinds; further events are combined
_NS_A_SECOND: Final = 1_000_000_000
_NS_A_LINE: Final = _NS_A_SECOND // SINGLE_LINES_PER_SECOND

Kind = tuple[object, ...]
Event = Mapping[str, Any]


class _Window:
    """Time window for events of one kind."""

    __slots__ = ("began", "combined", "count", "lines", "since", "time")

    def __init__(self, began: float, lines: int) -> None:
        self.began = began
        self.lines = lines  # number of further events that get a line of their own
        self.count = 0  # number of combined events
        self.combined: dict[str, Any] = {}  # members that all combined events have in common
        self.since = self.time = ""  # timestamps of the first and the last combined event


class Repetitions:
    """Windows of all kinds of events. Owner: the audit trail."""

    def __init__(self, emit: Callable[[Event], object], clock: Callable[[], float] = time.monotonic) -> None:
        """Create without windows. emit: called with each combined event."""
        self._emit: Final = emit
        self._clock: Final = clock
        self._windows: OrderedDict[Kind, _Window] = OrderedDict()  # in order of their begin
        self._combining = 0  # number of windows with combined events
        self._bucket: Final = TokenBucket(_NS_A_SECOND, 0)  # lines for single events; a line costs _NS_A_LINE

    def admit(self, kind: Kind, event: Event) -> bool:
        """Decide about an event, which has its `time`: True if it gets a line of its own; otherwise it is combined.

        kind: its first members are the name of the event and the host.
        """
        now = self._clock()
        self._expire(now)
        window = self._windows.get(kind)
        if window is None:
            if len(self._windows) >= MOST_KINDS:
                kind = (kind[0],)  # the number of event names is small, so this window always has room
            window = self._windows.setdefault(kind, _Window(now, AT_ONCE if len(kind) > 1 else 0))
        if window.lines and self._take(now):
            window.lines -= 1
            return True
        self._combine(window, event)
        return False

    def _take(self, now: float) -> bool:
        """Take the tokens for a single event; False if there are too few."""
        self._bucket.refill(int(now * _NS_A_SECOND), 1, 0)
        if self._bucket.tokens < _NS_A_LINE:
            return False
        self._bucket.spend(_NS_A_LINE)
        return True

    def _combine(self, window: _Window, event: Event) -> None:
        """Add an event to the combined event of a window."""
        if not window.count:
            window.since = str(event.get("time"))
            window.combined = bounded_copy(event)
            self._combining += 1
        else:
            window.combined = common_members(window.combined, bounded_copy(event))
        window.time = str(event.get("time"))
        window.count += 1
        window.lines = 0

    def flush(self, *, everything: bool = False) -> None:
        """Emit the combined events of windows that have ended, or of all windows."""
        self._expire(math.inf if everything else self._clock())

    def _expire(self, now: float) -> None:
        """Remove windows that have ended and emit their combined events.

        A window with combined events is followed by a new one, in which all events are combined.
        """
        while self._windows:
            kind, window = next(iter(self._windows.items()))
            if now < window.began + WINDOW_SECONDS:
                return
            del self._windows[kind]
            if window.count:
                self._combining -= 1
                times = {"time": window.time, "since": window.since}
                # The events may have come from several addresses of one network; the kind has the network.
                host = {"remote": kind[1]} if len(kind) > 1 and kind[1] else {}
                self._emit({**times, **host, **window.combined, **times, "repeated": window.count})
                if now < math.inf:
                    self._windows[kind] = _Window(now, 0)

    @property
    def deadline(self) -> float:
        """Time by `clock` at which `flush` has something to emit; infinite: nothing is combined."""
        if not self._combining:
            return math.inf
        return next(iter(self._windows.values())).began + WINDOW_SECONDS


def common_members(one: Event, other: Event) -> dict[str, Any]:
    """Return the members that two events have in common."""
    found: dict[str, Any] = {}
    for name, value in one.items():
        if name not in other:
            continue
        theirs = other[name]
        if isinstance(value, Mapping) and isinstance(theirs, Mapping):
            found[name] = common_members(value, theirs)
        elif value == theirs:
            found[name] = value
    return found
