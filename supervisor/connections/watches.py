"""Watches: pass the frames of connections to requesters (operation TRACE). No input or output here."""

import time
from collections.abc import Callable
from typing import Final

from sluice.router.control.handlers import HandlerTable
from sluice.router.control.messages import Order, Traced, Watch
from sluice.supervisor.children.worker import WorkerProcess
from sluice.supervisor.connections.connections import RegisteredConnection
from sluice.supervisor.subsystem import Subsystem

MAX_WATCHES: Final = 16  # maximum number of watches at a time, because each costs a worker time for every frame
_MS: Final = 1000

Lines = list[tuple[float, str]]  # [seconds since the epoch, text]
# Callback for lines; called with an empty list at the end. Returns False if the requester is gone.
OnLines = Callable[[Lines], bool]


class WatchesFullError(Exception):
    """Raised when there are MAX_WATCHES watches already."""


class _Watch:
    """Watch of one connection's frames for one requester. Owner: the watches."""

    __slots__ = ("connection", "deadline", "left", "on_lines")

    def __init__(
        self, connection: RegisteredConnection, on_lines: OnLines, seconds: float | None, lines: int | None
    ) -> None:
        self.connection = connection
        self.on_lines = on_lines
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self.left = lines  # number of lines still to be passed on; None: no limit

    def pass_on(self, lines: Lines) -> bool:
        """Pass lines to the requester. Returns False if the watch has ended."""
        if self.left is not None:
            lines = lines[: self.left]
            self.left -= len(lines)
        if lines and not self.on_lines(lines):
            return False
        if self.left == 0 or (self.deadline is not None and time.monotonic() >= self.deadline):
            self.on_lines([])
            return False
        return True


class Watches(Subsystem):
    """Subsystem that passes the frames of watched connections to requesters. Owner: the core."""

    def __init__(self, send: Callable[[RegisteredConnection, Order], None]) -> None:
        """send: send a message to the worker of a connection."""
        self._send = send
        self._watches: dict[int, list[_Watch]] = {}  # by number of the connection

    def __len__(self) -> int:
        return sum(len(watches) for watches in self._watches.values())

    def add(
        self,
        connection: RegisteredConnection,
        on_lines: OnLines,
        seconds: float | None = None,
        lines: int | None = None,
    ) -> None:
        """Pass the frames of a connection to `on_lines`, for `seconds` or up to `lines`. Raises WatchesFullError."""
        if len(self) >= MAX_WATCHES:
            raise WatchesFullError
        self._watches.setdefault(connection.number, []).append(_Watch(connection, on_lines, seconds, lines))
        self._send(connection, Watch(connection.number, True, None if seconds is None else int(seconds * _MS)))

    def messages(self, handlers: HandlerTable[WorkerProcess]) -> None:
        handlers.on(Traced, self._traced)

    def worker_lost(self, worker: WorkerProcess) -> None:
        for number in worker.connections:
            self.gone(number)

    def _traced(self, worker: WorkerProcess, message: Traced) -> None:
        del worker
        lines = message.lines
        if message.lost:
            text = f"({message.lost} more lines dropped: there were too many at once)"
            lines = [*lines, (lines[-1][0] if lines else time.time(), text)]
        number = message.conn
        watches = self._watches.get(number, [])
        staying = [watch for watch in watches if watch.pass_on(lines)]
        if staying:
            self._watches[number] = staying
        elif watches:
            self._watches.pop(number)
            self._send(watches[0].connection, Watch(number, False))
        if message.ended:
            self.gone(number)

    def gone(self, number: int) -> None:
        """End the watches of a connection that has ended."""
        for watch in self._watches.pop(number, []):
            watch.on_lines([])
