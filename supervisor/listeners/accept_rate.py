"""Limit of the accept rate during connection bursts while established clients are active.

Admission of a client costs the supervisor and the workers some tenths of a millisecond. On few cores, two thousand
clients at once would delay every message for a second. During a burst the supervisor therefore spends only the share
of `router/pacing/admission_share.pyx` of its time on connecting clients, as workers do for admission steps
(docs/internals/engine.md). A client that connects alone never waits.
"""

import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Final

from sluice.router.pacing.admission_share import share_divisor
from sluice.router.pacing.token_bucket import TokenBucket

BURST_CONNECTIONS: Final = 8  # length of the accept queue above which a burst is assumed
BURST_PAUSE_NS: Final = 1_000_000_000  # time without a burst, after which the next one counts as new
CORES: Final = 2  # cores that the divisors are for; more cores reduce the divisors
AT_ONCE: Final = 4  # connections accepted in one event
# Larger than in a worker: the supervisor does other work as well, and looks at its own CPU time between events only.
MOST_SAVED_NS: Final = 5_000_000
MOST_DEFICIT_NS: Final = 20_000_000
LEAST_PAUSE: Final = 0.001  # seconds
_NS_A_MS: Final = 1_000_000
_NS_A_SECOND: Final = 1_000_000_000
_UNACKED: Final = 24  # offset in struct tcp_info; for a listening socket: length of its accept queue
_TCP_INFO_OCTETS: Final = 28


def accept_queue_length(opened: socket.socket) -> int:
    """Return the number of connections that wait to be accepted."""
    info = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_OCTETS)
    return int.from_bytes(info[_UNACKED:], sys.byteorder)


class AcceptRateLimiter:
    """Accept-rate limiter for connection bursts: a token bucket of working time. Owner: the acceptor."""

    def __init__(
        self,
        heard: Callable[[], bool],
        cores: int | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        work: Callable[[], int] = time.process_time_ns,
    ) -> None:
        """heard: returns whether established clients are active. work: CPU time of the supervisor. Times are in ns."""
        self._clients_active = heard
        self._cores = cores or len(os.sched_getaffinity(0))
        self._clock = clock
        self._work = work
        self._began = self._seen = -BURST_PAUSE_NS  # start of the burst, and time it was last seen
        self._bucket = TokenBucket(MOST_SAVED_NS, MOST_DEFICIT_NS)
        self._worked = 0  # CPU time at the last refill of the bucket

    def room(self, crowd: int, most: int) -> int:
        """Return the number of connections to accept now from a queue of `crowd`; 0: none for `rest` seconds.

        most: limit if the rate is not restricted.
        """
        if crowd <= BURST_CONNECTIONS or not self._clients_active():
            return most
        now, worked = self._clock(), self._work()
        if now - self._seen > BURST_PAUSE_NS:
            self._began = now
            self._worked = worked
            self._bucket.fill(now)
        self._seen = now
        divisor = self._divisor(now)
        if divisor == 1:
            return most
        self._bucket.refill(now, divisor, worked - self._worked)
        self._worked = worked
        return AT_ONCE if self._bucket.tokens > 0 else 0

    def rest(self) -> float:
        """Return the seconds until a connection may be accepted again."""
        return max(LEAST_PAUSE, self._bucket.delay(self._divisor(self._seen)) / _NS_A_SECOND)

    def _divisor(self, now: int) -> int:
        """Return the divisor of the supervisor's time for connecting clients; 1: no limit."""
        return max(1, share_divisor((now - self._began) // _NS_A_MS) * CORES // self._cores)
