"""Clock for tests of code that takes a function returning the time."""


class SettableClock:
    """Clock that stands still until the test sets `now`, in seconds."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
