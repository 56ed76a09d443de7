"""Delays between attempts to connect."""

from msgspec import Struct


class Backoff(Struct, frozen=True):
    """Delays in seconds: `first`, then multiplied by `factor` each time, up to `most`.

    A random part of up to `spread` is subtracted, so that clients that lost the same router do not return at the same
    time. attempts: most attempts; None: no limit.
    """

    first: float = 0.1
    factor: float = 2.0
    most: float = 10.0
    spread: float = 0.2
    attempts: int | None = None

    def delay(self, attempt: int) -> float | None:
        """Return the seconds before attempt 0, 1, …; None: no further attempt."""
        if self.attempts is not None and attempt >= self.attempts:
            return None
        seconds = self.first
        for _ in range(attempt):
            seconds = min(seconds * self.factor, self.most)
            if seconds == self.most:
                break
        import random  # 2 ms that clients without reconnection do not need

        return seconds * (1 - self.spread * random.random())
