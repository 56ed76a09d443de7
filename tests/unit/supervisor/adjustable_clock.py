"""Clock for tests of code that takes a function returning the time."""


class AdjustableClock:
    """Clock whose time `now`, in seconds, only the test changes."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
