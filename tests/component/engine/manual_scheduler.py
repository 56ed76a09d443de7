"""Scheduler for a router whose time passes on demand."""

from collections.abc import Callable


class ScheduledCall:
    """Call that is due at a given time of its scheduler."""

    def __init__(self, due: float, function: Callable[[], object]) -> None:
        self.due = due
        self.function = function
        self.cancelled = False

    def cancel(self) -> None:
        """Cancel the call."""
        self.cancelled = True


class ManualScheduler:
    """Stand-in for the supervisor's event loop."""

    def __init__(self) -> None:
        self._now = 0.0
        self._calls: list[ScheduledCall] = []

    def call_later(self, seconds: float, function: Callable[[], object]) -> ScheduledCall:
        """Schedule a call."""
        call = ScheduledCall(self._now + seconds, function)
        self._calls.append(call)
        return call

    def pass_time(self, seconds: float) -> None:
        """Run the calls that become due. Calls that they schedule wait for the next `pass_time`."""
        self._now += seconds
        due = sorted((call for call in self._calls if call.due <= self._now), key=lambda call: call.due)
        self._calls = [call for call in self._calls if call.due > self._now]
        for call in due:
            if not call.cancelled:
                call.function()
