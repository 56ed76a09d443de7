"""Work of the supervisor in slices, between which other events are handled."""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

_Result = TypeVar("_Result")

# Work for others, however many they are, is repeated only after this multiple of the CPU time that it took. So it never
# uses more than a tenth of the supervisor's time.
AGE_PER_COST: Final = 10.0


class SlicedWork:
    """Meter of the CPU time of work in slices. Owner: the object whose work it is, once at a time."""

    def __init__(self) -> None:
        self.cost = 0.0  # CPU time of the last work that was done, seconds
        self._since = 0.0
        self._spent = 0.0

    async def pause(self) -> None:
        """Yield to other events. Their time is not counted as cost."""
        self._spent += time.thread_time() - self._since
        await asyncio.sleep(0)
        self._since = time.thread_time()

    async def run(self, work: Callable[[], Awaitable[_Result]]) -> _Result:
        """Do the work and measure it. It calls `pause` between its slices.

        Collecting metrics creates thousands of objects without cycles, all freed a moment later. A garbage collection
        meanwhile would traverse all connections and links, which takes longer than the work.
        """
        self._spent, self._since = 0.0, time.thread_time()
        collecting = gc.isenabled()
        gc.disable()
        try:
            result = await work()
            self.cost = self._spent + time.thread_time() - self._since
        finally:
            if collecting:
                gc.enable()
        return result
