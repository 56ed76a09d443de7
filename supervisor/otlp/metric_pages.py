"""Pages of metrics for the export process, at an interval: the metrics of /metrics, also without an HTTP listener."""

import asyncio
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Protocol

from sluice.router.log import CRITICAL, ProcessLog, place
from sluice.supervisor.children.json_messages import Message
from sluice.supervisor.telemetry.sliced_work import AGE_PER_COST, SlicedWork

# Name, kind and description of a metric, and samples: name, labels and value.
Piece = tuple[str, str, str, list[tuple[str, dict[str, str], float]]]


class MetricSource(Protocol):
    """Source of the metrics."""

    def page(self) -> AsyncIterator[Piece]:
        """Yield all metrics of the present state. Some metrics have several pieces, which follow each other."""


# Return the source, whose libraries are loaded in a thread. The argument is awaited between slices.
MakeSource = Callable[[Callable[[], Awaitable[None]]], Awaitable[MetricSource]]


class MetricPages:
    """Pages of metrics at an interval. Owner: the export."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        make: MakeSource,
        send: Callable[[Message], bool],
        count: Callable[[int, bool], None],
        log: ProcessLog,
    ) -> None:
        """send: returns False if the message does not reach the process. count(points, sent): counts a page."""
        self._loop: Final = loop
        self._make: Final = make
        self._send: Final = send
        self._count: Final = count
        self._log: Final = log
        self._work: Final = SlicedWork()
        self._source: MetricSource | None = None
        self._seconds: int | None = None
        self._task: asyncio.Task[None] | None = None
        self._complete = False  # True: the process has all messages of the present page so far

    def use(self, seconds: int | None) -> None:
        """Send a page at once, and then every `seconds`; None: none."""
        if seconds == self._seconds:
            return
        self._seconds = seconds
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if seconds is not None:
            self._task = self._loop.create_task(self._run(seconds))

    async def finish(self) -> None:
        """Send a last page if pages are sent, and end."""
        task = self._task
        if task is not None:
            self.use(None)
            await asyncio.gather(task, return_exceptions=True)
            await self._try_page()

    def interrupt(self) -> None:
        """Drop the page that is being sent, because the process was lost."""
        self._complete = False

    async def _run(self, seconds: int) -> None:
        while True:
            await self._try_page()
            await asyncio.sleep(max(seconds, AGE_PER_COST * self._work.cost))

    async def _try_page(self) -> None:
        try:
            if self._source is None:
                self._source = await self._make(self._work.pause)
            await self._work.run(self._send_page)
        except Exception as error:  # noqa: BLE001 - logged with its trace; later pages are sent all the same
            text = f"Internal error while collecting metrics\n{''.join(traceback.format_exception(error)).rstrip()}"
            self._log.repeated(CRITICAL, "SERVER", place(error), text)

    async def _send_page(self) -> None:
        """Send the metrics of the present state. A page that does not reach the process completely is dropped."""
        assert self._source is not None
        points = 0
        self._complete = self._send({"page": None})
        async for piece in self._source.page():
            points += 1 if piece[1] == "histogram" else len(piece[3])
            self._complete = self._complete and self._send({"family": piece})
        self._count(points, self._complete and self._send({"page": time.time_ns()}))
