"""Sums of the use of the router by vhost, collected when somebody wants them."""

import asyncio
import time
from collections.abc import Iterator
from typing import Final

from sluice.router.ring.region import Region
from sluice.supervisor.composition import RouterCore
from sluice.supervisor.telemetry.linked import linked
from sluice.supervisor.telemetry.sliced_work import AGE_PER_COST, SlicedWork
from sluice.supervisor.telemetry.usage import Usage, UsageRow, UsageSums

MIN_AGE: Final = 0.5  # seconds; `sluice top` never reads more often


class UsageMeter:
    """Collector of usage, once for all requests at a time, and again only after a time. Owner: the router service.

    Collecting reads the counters of all links, in slices. It is repeated only after AGE_PER_COST times the CPU time
    that it took, so that requests, however many there are, take at most a tenth of the supervisor's time.
    """

    def __init__(self, core: RouterCore, region: Region, usage: Usage) -> None:
        self._core: Final = core
        self._region: Final = region
        self._usage: Final = usage
        self._work: Final = SlicedWork()
        self._ended: float | None = None  # time at which the last collection ended
        self._collecting: asyncio.Task[None] | None = None

    def refresh(self) -> "asyncio.Future[None] | None":
        """Begin to collect. Returns None if the sums are recent, else what is done when they are."""
        if self._collecting is not None:
            return self._collecting
        age = None if self._ended is None else time.monotonic() - self._ended
        if age is not None and age < max(MIN_AGE, AGE_PER_COST * self._work.cost):
            return None
        self._collecting = asyncio.get_running_loop().create_task(self._work.run(self._collect))
        self._collecting.add_done_callback(self._finish)
        return self._collecting

    def vhosts(self) -> Iterator[tuple[str, UsageRow]]:
        """Yield the rows of vhosts, as of the last collection; the last row is that of all other vhosts."""
        return self._usage.vhosts.rows()

    async def _collect(self) -> None:
        sums = UsageSums(self._usage, self._region)
        async for worker, found in linked(self._core, self._work.pause):
            for connection, links in found:
                sums.take(connection, links)
            sums.add(worker)
        sums.finish()

    def _finish(self, task: "asyncio.Task[None]") -> None:
        self._collecting = None
        if not task.cancelled() and task.exception() is None:
            self._ended = time.monotonic()
