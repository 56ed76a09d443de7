"""Access to the event loop for code that is created before the loop."""

import asyncio
from collections.abc import Callable
from typing import Protocol


class Cancellable(Protocol):
    """Scheduled call that can be cancelled."""

    def cancel(self) -> None:
        """Cancel the call."""


class Waker:
    """Wakes the supervisor's event loop; without effect before `connect`. Owner: the core."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: Callable[[], object] = _nothing

    def connect(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], object]) -> None:
        """Connect to the event loop. From now on `wake` is called when messages are to be sent."""
        self._loop, self._wake = loop, wake

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop that runs the supervisor."""
        assert self._loop is not None, "nothing runs yet"
        return self._loop

    def disconnect(self) -> None:
        """Stop waking the event loop."""
        self._wake = _nothing

    def wake(self) -> None:
        """Schedule a wake after other pending events."""
        self._wake()

    def later(self, seconds: float, function: Callable[[], None]) -> Cancellable:
        """Call a function after some seconds."""
        return self.loop.call_later(seconds, function)


def _nothing() -> None:
    """Do nothing."""
