"""Periodic check of all links for stuck deliveries and for lack of credit (management.md 7.4, 7.5).

Unlike in 1.19, the age of the delivery counts and not that of the link, so that reading counters hides nothing. The
timer runs only while the worker has links.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sluice.workers.links.record import LinkRecord
    from sluice.workers.links.routed import RoutedEnd
    from sluice.workers.worker import WorkerRuntime

SECOND_MS: Final = 1000
SECOND_NS: Final = 1_000_000_000
# Most link slots checked at once, which bounds the time of a wake while messages wait.
SLOTS_PER_CHECK: Final = 2048
STEP_MS: Final = 1


class StuckScan:
    """Periodic check of one worker's links. Owner: the worker. routing-semantics.md O-2, O-3."""

    __slots__ = ("_age", "_armed", "_interval", "_worker")

    def __init__(self, worker: "WorkerRuntime") -> None:
        self._worker = worker
        self._interval: int = worker.router.stuck_scan_seconds
        self._age: int = worker.router.stuck_age_seconds
        self._armed = False

    def wanted(self) -> None:
        """Start the timer unless it runs; called when a link is attached."""
        if not self._armed:
            self._armed = True
            self._arm()

    def _arm(self) -> None:
        loop = self._worker.loop
        loop.call_at(loop.scheduler.now + self._interval * SECOND_MS, self._begin)

    def _begin(self) -> None:
        if self._worker.slots.used:
            self._look(0)
        else:
            self._armed = False

    def _look(self, start: int) -> None:
        loop = self._worker.loop
        following, found = self._worker.slots.look(start, SLOTS_PER_CHECK, loop.scheduler.now_ns, self._age * SECOND_NS)
        for link, seconds in found:
            self._report(link.context, seconds)
        if following:
            loop.call_at(loop.scheduler.now + STEP_MS, lambda: self._look(following))
        else:
            self._arm()

    def _report(self, record: "LinkRecord | RoutedEnd", seconds: int) -> None:
        """Report a link. seconds: time without credit, or 0 for the first stuck delivery of the link."""
        if seconds:
            text = f"Link blocked with zero credit for {seconds} seconds"
        else:
            text = (
                "Stuck delivery: At least one delivery on this link has been undelivered/unsettled for more than "
                f"{self._age} seconds"
            )
        self._worker.send_log("info", "ROUTER_CORE", f"[C{record.client.number}][L{record.identity}] {text}")
