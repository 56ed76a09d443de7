"""Limit of the accept rate during connection bursts while established clients are active.

Admission of a client costs the supervisor and the workers some tenths of a millisecond. On few cores, two thousand
clients at once would delay every message for a second. During a burst the supervisor therefore spends 1/TIME_DIVISOR
of its time on connecting clients. After LONG_WAIT seconds this becomes 1/LONG_BURST_DIVISOR, and after twice that
time the limit ends. Workers limit their admission steps likewise (docs/internals/engine.md). A client that connects
alone never waits.
"""

import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Final

BURST_CONNECTIONS: Final = 8  # length of the accept queue above which a burst is assumed
TIME_DIVISOR: Final = 16  # share of the time for connecting clients, as a divisor
LONG_BURST_DIVISOR: Final = 4  # divisor of time for a long burst
LONG_WAIT: Final = 2.0  # seconds
ACTIVE_SECONDS: Final = 0.1  # seconds for which a client counts as active after it was read
BURST_PAUSE: Final = 1.0  # seconds without a burst, after which the next one counts as new
CORES: Final = 2  # cores that the divisors are for; more cores reduce the divisors
AT_ONCE: Final = 4  # connections accepted in one event
MOST_SAVED_WORK: Final = 0.005  # limit of saved-up work in seconds
MOST_OVERDRAWN_WORK: Final = 0.02  # limit of overdrawn work in seconds
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
        clock: Callable[[], float] = time.monotonic,
        work: Callable[[], float] = time.process_time,
    ) -> None:
        """heard: returns whether established clients are active. work: CPU time of the supervisor, seconds."""
        self._clients_active = heard
        self._cores = cores or len(os.sched_getaffinity(0))
        self._clock = clock
        self._work = work
        self._began = self._seen = -BURST_PAUSE  # start of the burst, and time it was last seen
        # Time of the last refill, CPU time at that moment, and seconds of work left in the bucket.
        self._looked = 0.0
        self._worked = 0.0
        self._allowance = 0.0

    def room(self, crowd: int, most: int) -> int:
        """Return the number of connections to accept now from a queue of `crowd`; 0: none for `rest` seconds.

        most: limit if the rate is not restricted.
        """
        if crowd <= BURST_CONNECTIONS or not self._clients_active():
            return most
        now, worked = self._clock(), self._work()
        if now - self._seen > BURST_PAUSE:
            self._began = now
            self._looked, self._worked, self._allowance = now, worked, MOST_SAVED_WORK
        self._seen = now
        parts = self._parts(now)
        if parts == 1:
            return most
        grown = self._allowance + (now - self._looked) / parts - (worked - self._worked)
        self._allowance = max(-MOST_OVERDRAWN_WORK, min(MOST_SAVED_WORK, grown))
        self._looked, self._worked = now, worked
        return AT_ONCE if self._allowance > 0 else 0

    def rest(self) -> float:
        """Return the seconds until a connection may be accepted again."""
        return max(0.001, -self._allowance * self._parts(self._seen))

    def _parts(self, now: float) -> int:
        there = now - self._began
        parts = TIME_DIVISOR if there <= LONG_WAIT else LONG_BURST_DIVISOR if there <= 2 * LONG_WAIT else 1
        return max(1, parts * CORES // self._cores)
