"""Periodic check of all links for stalls (docs/internals/credit.md). The timer runs only while there are links."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sluice.workers.worker import WorkerRuntime

INTERVAL_MS: Final = 1000
# Most link slots checked at once, which bounds the time of a wake while messages wait.
SLOTS_PER_CHECK: Final = 2048
STEP_MS: Final = 1


class StallScan:
    """Periodic stall check of one worker's links. Owner: the worker."""

    __slots__ = ("_armed", "_worker")

    def __init__(self, worker: "WorkerRuntime") -> None:
        self._worker = worker
        self._armed = False

    def wanted(self) -> None:
        """Start the timer unless it runs; called when a link is attached."""
        if not self._armed:
            self._armed = True
            self._arm()

    def _arm(self) -> None:
        loop = self._worker.loop
        loop.call_at(loop.scheduler.now + INTERVAL_MS, self._begin)

    def _begin(self) -> None:
        if self._worker.slots.used:
            self._check(0)
        else:
            self._armed = False

    def _check(self, start: int) -> None:
        loop = self._worker.loop
        following = self._worker.slots.check_stalls(start, SLOTS_PER_CHECK, loop.scheduler.now_ns)
        if following:
            loop.call_at(loop.scheduler.now + STEP_MS, lambda: self._check(following))
        else:
            self._arm()
