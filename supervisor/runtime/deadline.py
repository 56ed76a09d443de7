"""Timeouts that ignore time in which the supervisor did not run: stopped, frozen, or starved of the processor."""

import asyncio
from collections.abc import Callable
from typing import Final

HELD_UP: Final = 0.5  # seconds of delay beyond which the supervisor counts as not having run


class Deadline:
    """Timer that calls `action` after some seconds, and starts again if the timer itself fires late.

    Owner: its creator.
    """

    __slots__ = ("_action", "_loop", "_seconds", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, action: Callable[[], object]) -> None:
        self._loop = loop
        self._seconds = seconds
        self._action = action
        self._timer = loop.call_later(seconds, self._due)

    def cancel(self) -> None:
        self._timer.cancel()

    def _due(self) -> None:
        if self._loop.time() - self._timer.when() > HELD_UP:
            self._timer = self._loop.call_later(self._seconds, self._due)
        else:
            self._action()
