"""Refusals: counted by vhost, group and reason for metrics, and logged at a limited rate.

Labels contain only names from the configuration, so that clients cannot create new ones.
"""

import math
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from sluice.router.log import INFO, ProcessLog

LOGGED_A_SECOND: Final = 20  # limit of log lines per second for one kind
MODULE: Final = "POLICY"
NO_VHOST: Final = ""  # vhost label for clients that request an unknown vhost
ROUTER_CONNECTIONS: Final = "router_connections"  # reason: the limit of all connections (counted elsewhere)
# Limit of counted kinds. Later kinds count as `other`, so that a page of metrics stays readable.
MOST_KINDS: Final = 1000
OTHER: Final = "other"


class DenialKind(NamedTuple):
    """Labels that refusals are counted by. The group is empty if there is none."""

    vhost: str
    group: str
    reason: str


class _DenialLines:
    """Number of lines of one kind within a second, logged and left out."""

    __slots__ = ("began", "left_out", "logged")

    def __init__(self, began: float) -> None:
        self.began = began
        self.logged = 0
        self.left_out = 0


class Denials:
    """All refusals. Owner: the policy."""

    def __init__(self, log: ProcessLog, clock: Callable[[], float] = time.monotonic) -> None:
        self.counts: dict[DenialKind, int] = {}
        self._refused: Callable[[str | None, int], None] | None = None
        self._log = log
        self._clock = clock
        self._lines: dict[DenialKind, _DenialLines] = {}  # of kinds refused within the last second

    def when_refused(self, call: Callable[[str | None, int], None]) -> None:
        """Call `call` with the user (None: anonymous) and the number of refusals, for refusals of clients."""
        self._refused = call

    def add_of_user(self, user: str | None, kind: DenialKind, *texts: str, count: int = 1) -> None:
        """Count a refusal of a client, and log the given lines."""
        if self._refused is not None:
            self._refused(user, count)
        self.add(kind, *texts, count=count)

    def add(self, kind: DenialKind, *texts: str, count: int = 1) -> None:
        """Count a refusal, and log the given lines."""
        counted = kind
        if kind not in self.counts and len(self.counts) >= MOST_KINDS:
            counted = DenialKind(OTHER, OTHER, kind.reason)
        self.counts[counted] = self.counts.get(counted, 0) + count
        if not texts or not self._log.enabled(MODULE, INFO):
            return
        self.flush()
        line = self._lines.get(kind)
        if line is None:
            line = self._lines[kind] = _DenialLines(self._clock())
        if line.logged >= LOGGED_A_SECOND:
            line.left_out += 1
            return
        line.logged += 1
        for text in texts:
            self._log.info(MODULE, text)

    def flush(self) -> None:
        """Log the number of lines left out, for seconds that have passed."""
        if not self._lines:
            return
        now = self._clock()
        for kind, line in [(kind, line) for kind, line in self._lines.items() if now >= line.began + 1]:
            del self._lines[kind]
            if line.left_out:
                where = f"vhost '{kind.vhost}', group '{kind.group}', reason {kind.reason}"
                self._log.info(MODULE, f"DENY {line.left_out} more refusals within one second, not logged: {where}")

    @property
    def deadline(self) -> float:
        """Return the time at which `flush` next has a line to log."""
        if not self._lines:
            return math.inf
        return min((line.began + 1 for line in self._lines.values() if line.left_out), default=math.inf)
