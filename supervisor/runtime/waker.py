"""Wakes the event loop, for code that is created before it."""

import asyncio
from collections.abc import Callable
from typing import Protocol


class Cancellable(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Cancel it."""


class Waker:
    """Wakes the supervisor. Owner: the core. Does nothing before `connect`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: Callable[[], object] = _nothing

    def connect(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], object]) -> None:
        """There is an event loop. From now on `wake` is called when there is something to send."""
        self._loop, self._wake = loop, wake

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop, in which everything runs."""
        assert self._loop is not None, "nothing runs yet"
        return self._loop

    def disconnect(self) -> None:
        """Stop waking."""
        self._wake = _nothing

    def wake(self) -> None:
        """Schedule a wake, after other events."""
        self._wake()

    def later(self, seconds: float, function: Callable[[], None]) -> Cancellable:
        """Call a function after some seconds."""
        return self.loop.call_later(seconds, function)


def _nothing() -> None:
    """Does nothing."""
