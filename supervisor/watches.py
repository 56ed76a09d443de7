"""Who is told the frames of which connection while it runs (operation TRACE). No input or output here."""

import time
from collections.abc import Callable
from typing import Any, Final

from router.ipc.control import WATCH, Message
from supervisor.connections import Connection

MAX_WATCHES: Final = 16  # at a time: each costs the worker of its connection time for every frame
_MS: Final = 1000

Lines = list[list[Any]]  # [seconds since the epoch, text]
# Takes lines, none when it is all over; False: nobody is there to hear of it any more.
Hear = Callable[[Lines], bool]


class WatchesFullError(Exception):
    """There are MAX_WATCHES already."""


class _Watch:
    """One listener. Owner: the watches."""

    __slots__ = ("connection", "deadline", "hear", "left")

    def __init__(self, connection: Connection, hear: Hear, seconds: float | None, lines: int | None) -> None:
        self.connection = connection
        self.hear = hear
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self.left = lines  # None: no limit

    def tell(self, lines: Lines) -> bool:
        """Pass lines on; False: that were the last ones."""
        if self.left is not None:
            lines = lines[: self.left]
            self.left -= len(lines)
        if lines and not self.hear(lines):
            return False
        if self.left == 0 or (self.deadline is not None and time.monotonic() >= self.deadline):
            self.hear([])
            return False
        return True


class Watches:
    """All that are watched now. Owner: the core."""

    def __init__(self, tell: Callable[[Connection, Message], None]) -> None:
        """tell(connection, message): sends a message to the worker of a connection."""
        self._tell = tell
        self._watches: dict[int, list[_Watch]] = {}  # by number of the connection

    def __len__(self) -> int:
        return sum(len(watches) for watches in self._watches.values())

    def add(self, connection: Connection, hear: Hear, seconds: float | None = None, lines: int | None = None) -> None:
        """Tell `hear` the frames of a connection, for so long or so many lines. Raises WatchesFullError."""
        if len(self) >= MAX_WATCHES:
            raise WatchesFullError
        self._watches.setdefault(connection.number, []).append(_Watch(connection, hear, seconds, lines))
        message: Message = {"t": WATCH, "conn": connection.number, "on": True}
        if seconds is not None:
            message["due_ms"] = int(seconds * _MS)
        self._tell(connection, message)

    def told(self, message: Message) -> None:
        """React to `traced`."""
        lines: Lines = message["lines"]
        if message["lost"]:
            text = f"({message['lost']} more lines left out: there were too many)"
            lines = [*lines, [lines[-1][0] if lines else time.time(), text]]
        number = message["conn"]
        watches = self._watches.get(number, [])
        staying = [watch for watch in watches if watch.tell(lines)]
        if staying:
            self._watches[number] = staying
        elif watches:
            self._watches.pop(number)
            self._tell(watches[0].connection, {"t": WATCH, "conn": number, "on": False})
        if message["ended"]:
            self.gone(number)

    def gone(self, number: int) -> None:
        """The connection has ended and nothing more will be told of it."""
        for watch in self._watches.pop(number, []):
            watch.hear([])
