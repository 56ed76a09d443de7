"""The periodic check of all links for stalls (docs/internals/credit.md). The timer runs only while there are links."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from workers.worker import Worker

INTERVAL_MS: Final = 1000
# Link slots checked at once: the bound for a wake while messages wait.
SLOTS_A_STEP: Final = 2048
STEP_MS: Final = 1


class StallScan:
    """Checks the links of one worker. Owner: the worker."""

    __slots__ = ("_armed", "_worker")

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker
        self._armed = False

    def wanted(self) -> None:
        """A link was attached."""
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
        following = self._worker.slots.check_stalls(start, SLOTS_A_STEP, loop.scheduler.now_ns)
        if following:
            loop.call_at(loop.scheduler.now + STEP_MS, lambda: self._check(following))
        else:
            self._arm()
