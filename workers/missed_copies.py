"""Reports of the messages that taps have missed, by address (docs/user/tap.md). The timer runs only after misses."""

from typing import TYPE_CHECKING, Final

from sluice.router.control.messages import CopiesMissed

if TYPE_CHECKING:
    from sluice.router.table.tap import Tap
    from sluice.workers.worker import WorkerRuntime

# Misses of this time are reported together, so that a flood of them costs the supervisor no more than a few.
INTERVAL_MS: Final = 500


class MissedCopies:
    """Taps of one worker that have missed messages since their last report. Owner: the worker."""

    __slots__ = ("_taps", "_worker")

    def __init__(self, worker: "WorkerRuntime") -> None:
        self._worker = worker
        self._taps: list[Tap] = []

    def add(self, tap: "Tap") -> None:
        """Report the misses of a tap after INTERVAL_MS; called at the first since its last report."""
        if not self._taps:
            loop = self._worker.loop
            loop.call_at(loop.scheduler.now + INTERVAL_MS, self._report)
        self._taps.append(tap)

    def _report(self) -> None:
        taps, self._taps = self._taps, []
        for tap in taps:
            self._worker.control.send_event(CopiesMissed(tap.id, tap.take_missed()))
