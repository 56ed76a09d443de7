"""How fast clients are taken from a crowd that wants to come in while others are heard that are in already.

To let a client in costs the supervisor and the workers some tenths of a millisecond. Where cores are few, two thousand
at once would delay every message for a second. Then the supervisor has one part in PARTS of its time for them, one in
FEW_PARTS when the crowd has been there for long, and all when it has been there for twice as long. Workers do the same
with the steps of those that come in (docs/internals/engine.md). A client that comes alone never waits.
"""

import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Final

CROWD: Final = 8  # connections that wait in the kernel's queue: more are a crowd
PARTS: Final = 16
FEW_PARTS: Final = 4
LONG_WAIT: Final = 2.0  # seconds that a crowd has been there
HEARD: Final = 0.1  # seconds for which a client counts as heard after it was read
LULL: Final = 1.0  # seconds without one, after which the next is another
CORES: Final = 2  # for which the parts are; with more cores they are larger
AT_ONCE: Final = 4  # connections taken in one turn
MOST_ALLOWED: Final = 0.005  # seconds of work, that may be saved up
MOST_OWED: Final = 0.02
_UNACKED: Final = 24  # place in struct tcp_info; of a socket that listens: connections in its queue
_TCP_INFO_OCTETS: Final = 28


def waiting(opened: socket.socket) -> int:
    """How many connections wait to be accepted."""
    info = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_OCTETS)
    return int.from_bytes(info[_UNACKED:], sys.byteorder)


class Pace:
    """Owner: the acceptor."""

    def __init__(
        self,
        heard: Callable[[], bool],
        cores: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        work: Callable[[], float] = time.process_time,
    ) -> None:
        """heard: whether clients are heard that are in. work: seconds that the supervisor has computed."""
        self._heard = heard
        self._cores = cores or len(os.sched_getaffinity(0))
        self._clock = clock
        self._work = work
        self._began = self._seen = -LULL  # when the crowd came, and was last seen
        self._looked = 0.0  # when the allowance was last counted …
        self._worked = 0.0  # … and the work until then
        self._allowance = 0.0  # seconds of work

    def room(self, crowd: int, most: int) -> int:
        """How many connections of a crowd may be accepted now; 0: none for `rest` seconds."""
        if crowd <= CROWD or not self._heard():
            return most
        now, worked = self._clock(), self._work()
        if now - self._seen > LULL:
            self._began = now
            self._looked, self._worked, self._allowance = now, worked, MOST_ALLOWED
        self._seen = now
        parts = self._parts(now)
        if parts == 1:
            return most
        grown = self._allowance + (now - self._looked) / parts - (worked - self._worked)
        self._allowance = max(-MOST_OWED, min(MOST_ALLOWED, grown))
        self._looked, self._worked = now, worked
        return AT_ONCE if self._allowance > 0 else 0

    def rest(self) -> float:
        """Seconds until one may be accepted again."""
        return max(0.001, -self._allowance * self._parts(self._seen))

    def _parts(self, now: float) -> int:
        there = now - self._began
        parts = PARTS if there <= LONG_WAIT else FEW_PARTS if there <= 2 * LONG_WAIT else 1
        return max(1, parts * CORES // self._cores)
