"""When to connect again."""

import random

from msgspec import Struct


class Backoff(Struct, frozen=True):
    """Seconds between attempts: `first`, then `factor` times as many each time, `most` at most. A random part of up to
    `spread` of it keeps clients that lost the same router from coming back together. attempts: None for no limit."""

    first: float = 0.1
    factor: float = 2.0
    most: float = 10.0
    spread: float = 0.2
    attempts: int | None = None

    def delay(self, attempt: int) -> float | None:
        """Seconds before attempt 0, 1, …; None: no more."""
        if self.attempts is not None and attempt >= self.attempts:
            return None
        seconds = self.first
        for _ in range(attempt):
            seconds = min(seconds * self.factor, self.most)
            if seconds == self.most:
                break
        return seconds * (1 - self.spread * random.random())
