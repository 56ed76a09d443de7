"""Lines of the log on their way to the export process, a tenth of a second together."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from sluice.router.log import LogEntry

SEND_AFTER: Final = 0.1  # seconds
LINES_OF_MESSAGE: Final = 200  # lines of one message, with texts of 10 KiB each at the most
MOST_LINES: Final = 10_000  # lines that wait for SEND_AFTER; further ones are dropped

# Fields of an entry, after the number of the worker that wrote it; None: the supervisor.
Line = tuple[str | int | None, ...]


class LogLines:
    """Lines that wait to be sent. Owner: the export."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, send: Callable[[list[Line]], None], drop: Callable[[int], None]
    ) -> None:
        """drop: called with the number of lines that are not sent."""
        self._loop: Final = loop
        self._send: Final = send
        self._drop: Final = drop
        self._lines: list[Line] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, entries: Iterable[LogEntry], worker: int | None, missing: int) -> None:
        """Add entries. missing: number of entries that the worker has left out."""
        lines = [(worker, *entry) for entry in entries]
        room = MOST_LINES - len(self._lines)
        self._lines += lines[:room]
        dropped = max(len(lines) - room, 0) + missing
        if dropped:
            self._drop(dropped)
        if self._timer is None and self._lines:
            self._timer = self._loop.call_later(SEND_AFTER, self.flush)

    def flush(self) -> None:
        """Send what waits at once."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lines, self._lines = self._lines, []
        for start in range(0, len(lines), LINES_OF_MESSAGE):
            self._send(lines[start : start + LINES_OF_MESSAGE])
