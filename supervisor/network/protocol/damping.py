"""Delays the announcement of a neighbour that has been lost repeatedly. A loss is announced at once.

inter-router-protocol.md 4.4.
"""

from supervisor.network.protocol.timers import Timers


class Damping:
    """The penalty of one neighbour."""

    __slots__ = ("_at", "_penalty", "_timers", "held_alone_until", "held_until")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._penalty = 0.0
        self._at = 0.0  # when it was that
        self.held_until = -1e9  # not announced before, if there is another path to it
        self.held_alone_until = -1e9  # … and if there is none

    def lost(self, now: float) -> None:
        timers = self._timers
        self._penalty = self.penalty(now) + 1
        self._at = now
        if self._penalty > timers.flap_free:
            delay = 2 ** min(self._penalty - timers.flap_free - 1, 30.0)
            if delay > timers.flap_most:
                # A higher penalty would only delay the next announcement further.
                delay = timers.flap_most
                self._penalty = min(self._penalty, timers.flap_free + 7)
            self.held_until = now + delay
            self.held_alone_until = now + min(delay, timers.flap_alone)

    def restarted(self, now: float) -> None:
        """It was lost because its process ended: no flap."""
        self._penalty = max(0.0, self.penalty(now) - 1)
        self._at = now
        self.held_until = self.held_alone_until = -1e9

    def penalty(self, now: float) -> float:
        return float(self._penalty * 0.5 ** ((now - self._at) / self._timers.flap_half_life))


class Pace:
    """Pacing: at once after a quiet time, then after a gap that doubles with each event."""

    __slots__ = ("_first", "_gap", "_last", "_most")

    def __init__(self, first: float, most: float) -> None:
        """Both in seconds; after 2 * `most` without anything it is quiet again."""
        self._first = first
        self._most = most
        self._gap = first
        self._last = -1e9

    def when(self, now: float) -> float:
        """When it may be done."""
        return max(now, self._last + self._gap) if now - self._last < 2 * self._most else now

    def done(self, now: float) -> None:
        self._gap = min(2 * self._gap, self._most) if now - self._last < 2 * self._most else self._first
        self._last = now
