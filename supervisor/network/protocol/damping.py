"""Damping of neighbours: delays the announcement of a neighbour that was lost repeatedly. A loss is announced at once.

inter-router-protocol.md 4.4.
"""

from sluice.supervisor.network.protocol.timers import Timers


class Damping:
    """Penalty of one neighbour."""

    __slots__ = ("_at", "_penalty", "_timers", "held_alone_until", "held_until")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._penalty = 0.0
        self._at = 0.0  # time of `_penalty`
        # Times before which the neighbour is not announced: if there is another path to it, and if there is none.
        self.held_until = -1e9
        self.held_alone_until = -1e9

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
        """Remove the penalty of a loss that was a restart of the neighbour's process."""
        self._penalty = max(0.0, self.penalty(now) - 1)
        self._at = now
        self.held_until = self.held_alone_until = -1e9

    def penalty(self, now: float) -> float:
        return float(self._penalty * 0.5 ** ((now - self._at) / self._timers.flap_half_life))


class DoublingPacer:
    """Rate limiter: permits an event at once after a quiet time, then after a gap that doubles with each event."""

    __slots__ = ("_first", "_gap", "_last", "_most")

    def __init__(self, first: float, most: float) -> None:
        """Store the first and the largest gap in seconds. The gap is reset after 2 * `most` seconds without events."""
        self._first = first
        self._most = most
        self._gap = first
        self._last = -1e9

    def when(self, now: float) -> float:
        """Return the time of the next permitted event."""
        return max(now, self._last + self._gap) if now - self._last < 2 * self._most else now

    def done(self, now: float) -> None:
        self._gap = min(2 * self._gap, self._most) if now - self._last < 2 * self._most else self._first
        self._last = now
