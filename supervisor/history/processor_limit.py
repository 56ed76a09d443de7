"""Watch of the processor time that a control group, such as a container's, lets the router use.

The kernel stops all processes of a group that has used its time in a period, mostly until the next tenth of a second.
No worker looks busy then, because none gets a whole core, and only latency shows it.
"""

from pathlib import Path
from typing import Final

from sluice.router.cgroup import CgroupLimit, CgroupThrottling, read_throttling
from sluice.router.log import NOTICE, WARNING, ProcessLog

SHARE: Final = 0.25  # share of periods from which on the log says that the group is stopped too often
READINGS: Final = 6  # successive readings, of 5 seconds, until the log says that it is, or no longer is


class ProcessorLimit:
    """Processor time of the router's control group, as far as the kernel limits it. Owner: the history."""

    def __init__(self, limit: CgroupLimit | None, log: ProcessLog, root: Path = Path("/")) -> None:
        """limit: in cores, with the file that sets it; None: there is none. root: see `read_throttling`."""
        self._limit: Final = limit
        self._root: Final = root
        self._log: Final = log
        self.counts: CgroupThrottling | None = None if limit is None else read_throttling(limit, root)
        self.share = 0.0  # share of the periods before the last reading in which the kernel stopped the group
        self._reported = False  # the log says that the group is stopped too often
        self._against = 0  # successive readings that contradict `_reported`

    @property
    def text(self) -> str:
        """Describe the limit, and how often it was reached before the last reading."""
        assert self._limit is not None
        cores = f"{self._limit.value:.3g} {'core' if self._limit.value == 1 else 'cores'}"
        return (
            f"The control group may use {cores} ({self._limit.file}) and was stopped in {self.share:.0%} of its periods"
        )

    def take(self) -> str | None:
        """Take a reading. Returns the text of an event if the group has begun, or ceased, to be stopped too often."""
        before = self.counts
        if self._limit is None or before is None:
            return None
        now = self.counts = read_throttling(self._limit, self._root) or before
        periods = now.periods - before.periods
        self.share = (now.throttled - before.throttled) / periods if periods > 0 else 0.0
        self._against = self._against + 1 if (self.share >= SHARE) is not self._reported else 0
        if self._against < READINGS:
            return None
        self._reported, self._against = not self._reported, 0
        if self._reported:
            self._log.write(WARNING, "SERVER", f"{self.text}: all clients wait meanwhile")
            return "The control group stops the router too often"
        self._log.write(NOTICE, "SERVER", "The control group has stopped the router less often for 30 seconds")
        return "The control group stops the router less often"
