"""Refusals: counted by vhost, group and reason for metrics, and logged, at most so many of a kind in a second.

Kinds have names of the configuration only: what clients send makes no new ones.
"""

import math
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from router.log import INFO, Log

LOGGED_A_SECOND: Final = 20  # lines of a kind
MODULE: Final = "POLICY"
NO_VHOST: Final = ""  # of clients that ask for a vhost that is not there
ROUTER_CONNECTIONS: Final = "router_connections"  # reason: the limit of all connections (counted elsewhere)
# Kinds that are counted; those that come up later count as `other`. So a page of metrics stays readable.
MOST_KINDS: Final = 1000
OTHER: Final = "other"


class Kind(NamedTuple):
    """What refusals are counted by; the group is empty where there is none."""

    vhost: str
    group: str
    reason: str


class _Line:
    """Lines of one kind in this second."""

    __slots__ = ("began", "left_out", "logged")

    def __init__(self, began: float) -> None:
        self.began = began
        self.logged = 0
        self.left_out = 0


class Denials:
    """All refusals. Owner: the policy."""

    def __init__(self, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        self.counts: dict[Kind, int] = {}
        self._log = log
        self._clock = clock
        self._lines: dict[Kind, _Line] = {}  # of kinds that came up in the last second

    def add(self, kind: Kind, *texts: str, count: int = 1) -> None:
        """Count a refusal, and log it in these lines."""
        counted = kind
        if kind not in self.counts and len(self.counts) >= MOST_KINDS:
            counted = Kind(OTHER, OTHER, kind.reason)
        self.counts[counted] = self.counts.get(counted, 0) + count
        if not texts or not self._log.enabled(MODULE, INFO):
            return
        self.flush()
        line = self._lines.get(kind)
        if line is None:
            line = self._lines[kind] = _Line(self._clock())
        if line.logged >= LOGGED_A_SECOND:
            line.left_out += 1
            return
        line.logged += 1
        for text in texts:
            self._log.info(MODULE, text)

    def flush(self) -> None:
        """Say what was left out in seconds that are over."""
        if not self._lines:
            return
        now = self._clock()
        for kind, line in [(kind, line) for kind, line in self._lines.items() if now >= line.began + 1]:
            del self._lines[kind]
            if line.left_out:
                where = f"vhost '{kind.vhost}', group '{kind.group}', reason {kind.reason}"
                self._log.info(MODULE, f"DENY {line.left_out} more in one second that are not logged: {where}")

    @property
    def deadline(self) -> float:
        """When `flush` has something to say."""
        if not self._lines:
            return math.inf
        return min((line.began + 1 for line in self._lines.values() if line.left_out), default=math.inf)
