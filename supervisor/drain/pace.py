"""Rate limit of the steps of a drain."""


class Pace:
    """Token bucket that is empty at first, so that no burst precedes the rate. Owner: the drain."""

    __slots__ = ("_at", "_most", "_per_second", "_tokens")

    def __init__(self, per_second: int, interval: float, now: float) -> None:
        """per_second: rate. interval: seconds between two calls of `take`, of which one may be late."""
        self._per_second = per_second
        self._most = 1 + 2 * per_second * interval
        self._tokens = 0.0
        self._at = now

    def take(self, now: float, wanted: int) -> int:
        """Return how many of the wanted actions are allowed now, and count them."""
        self._tokens = min(self._most, self._tokens + self._per_second * (now - self._at))
        self._at = now
        taken = min(wanted, int(self._tokens))
        self._tokens -= taken
        return taken
