"""Rate limit for login attempts of each remote host, and delays for the answers to failed attempts.

Rate limit: a host may have AT_ONCE attempts that failed or may still fail, and one more each PACE_SECONDS. An attempt
counts from the moment its check begins, so that guessing in parallel is no faster; an attempt that does not fail is
not counted afterwards. Further attempts wait. Waiting attempts are served round robin by their claim (mechanism and
user name), so that the owner of a password does not wait behind attackers who guess other users' passwords from the
same address.

Delay: the answer to a failed attempt is delayed, longer with each failure. Other clients do not wait for that.
Failures fade with time. A success does not clear them, because an attacker may have an account of its own.
"""

import asyncio
import contextlib
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from itertools import islice
from typing import Final

from msgspec import Struct, field

from sluice.supervisor.runtime.remote_hosts import remote_host

MOST_HOSTS: Final = 10_000  # maximum number of remembered hosts; the one that failed longest ago is evicted
FIRST_DELAY: Final = 0.1  # seconds of delay after the first failure; doubled with each further one
MOST_DELAY: Final = 3.0  # maximum delay in seconds
FADE_SECONDS: Final = 15.0  # time after which one failure is forgotten
MOST_FAILURES: Final = 8.0  # maximum number of counted failures; more would only take longer to fade
AT_ONCE: Final = 8  # burst size of the rate limit, in attempts
PACE_SECONDS: Final = 1.0  # time after which the rate limit allows one more attempt
MOST_QUEUED: Final = 100  # maximum number of waiting attempts of one host
WARN_SECONDS: Final = 60.0  # minimum time between two warnings about one host


class TooManyAttempts(Exception):
    """Raised when an attempt is refused because too many attempts of its host wait."""


_Turn = asyncio.Future[None]  # completes when a waiting attempt may begin


class _Host(Struct):
    """State of one remote host. All times are those of the clock of `Attempts`."""

    failures: float = 0.0  # failures that determine the delay, as of `since`; they fade with FADE_SECONDS
    since: float = 0.0
    spent: float = 0.0  # deficit of the rate limit in attempts, as of `deficit_at`; it shrinks by one each PACE_SECONDS
    deficit_at: float = 0.0
    looked_at: int = 0  # number of attempts being checked
    waiting: OrderedDict[str, deque[_Turn]] = field(default_factory=OrderedDict)  # by claim, in round-robin order
    queued: int = 0  # number of waiting attempts of all claims
    timer: asyncio.TimerHandle | None = None  # due when the next waiting attempt may begin
    warned: float = float("-inf")  # time of the last warning

    def count(self, now: float) -> float:
        """Return the number of failures that have not faded at `now`."""
        return max(0.0, self.failures - (now - self.since) / FADE_SECONDS)

    def rate_deficit(self, now: float) -> float:
        """Return the deficit of the rate limit at `now`."""
        return max(0.0, self.spent - (now - self.deficit_at) / PACE_SECONDS)

    def idle(self) -> bool:
        """True if the host has no attempt being checked or waiting."""
        return not self.looked_at and not self.queued


class Attempts:
    """Login attempts of all remote hosts. Owner: the authentication process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = MOST_HOSTS) -> None:
        """Create without hosts. clock: seconds. most: maximum number of remembered hosts."""
        self._clock: Final = clock
        self._most: Final = most
        self._hosts: OrderedDict[str, _Host] = OrderedDict()  # in order of their last failure, the latest at the end
        self.total = 0  # number of failures since the start

    def __len__(self) -> int:
        return len(self._hosts)

    def failures(self, host: str) -> float:
        """Return the number of failures of a host that have not faded."""
        found = self._hosts.get(remote_host(host))
        return 0.0 if found is None else found.count(self._clock())

    def guesses(self, host: str) -> bool:
        """True if a host has failed so often that its attempts must wait. True at most once in WARN_SECONDS."""
        found, now = self._hosts.get(remote_host(host)), self._clock()
        if found is None or found.rate_deficit(now) <= AT_ONCE - 1 or now - found.warned < WARN_SECONDS:
            return False
        found.warned = now
        return True

    @contextlib.asynccontextmanager
    async def turn(self, host: str, claim: str = "") -> AsyncIterator[None]:
        """Wait until the rate limit allows an attempt, which the caller then checks within this context.

        claim: the mechanism and the user name that the client gives. Raises TooManyAttempts.
        """
        where = remote_host(host)
        found = self._hosts.setdefault(where, _Host())
        self._next(found)
        if found.queued or not self._may(found):
            await self._wait(found, claim)
        else:
            found.looked_at += 1
        try:
            yield
        finally:
            found.looked_at -= 1
            self._next(found)
            self._forget(where, found)

    def failed(self, host: str) -> float:
        """Count a failed attempt, within `turn`. Returns the delay for its answer in seconds."""
        now = self._clock()
        self.total += 1
        where = remote_host(host)
        found = self._hosts.setdefault(where, _Host())
        self._hosts.move_to_end(where)
        found.spent, found.deficit_at = found.rate_deficit(now) + 1, now
        found.failures, found.since = min(MOST_FAILURES, found.count(now) + 1), now
        for each in list(islice(self._hosts, max(0, len(self._hosts) - self._most))):
            if self._hosts[each].idle():
                del self._hosts[each]
        return float(min(MOST_DELAY, FIRST_DELAY * 2 ** (found.failures - 1)))

    # Waiting

    def _may(self, host: _Host) -> bool:
        """True if the rate limit allows another attempt of this host now."""
        return host.rate_deficit(self._clock()) + host.looked_at + 1 <= AT_ONCE

    async def _wait(self, host: _Host, claim: str) -> None:
        """Wait until the attempt may begin, and count it as being checked.

        Each claim of a host has a queue. If the host has MOST_QUEUED attempts in queues, the last attempt in its
        longest queue is refused, or the new attempt if its queue would become as long.
        """
        turns = host.waiting.get(claim)
        if host.queued >= MOST_QUEUED:
            longest = max(host.waiting.values(), key=len)
            if len(longest) <= (0 if turns is None else len(turns)) + 1:
                raise TooManyAttempts
            refused = longest.pop()
            host.queued -= 1
            if not refused.done():
                refused.set_exception(TooManyAttempts())
        if turns is None:
            turns = host.waiting[claim] = deque()
        turn: _Turn = asyncio.get_running_loop().create_future()
        turns.append(turn)
        host.queued += 1
        self._wake_later(host)
        try:
            await turn
        except asyncio.CancelledError:  # the client has left
            if turn.cancelled():
                self._remove(host, claim, turn)
            elif turn.exception() is None:
                host.looked_at -= 1  # `_next` had let it begin already
                self._next(host)
            raise

    @staticmethod
    def _remove(host: _Host, claim: str, turn: _Turn) -> None:
        turns = host.waiting.get(claim)
        if turns is not None and turn in turns:
            turns.remove(turn)
            host.queued -= 1
            if not turns:
                del host.waiting[claim]

    def _next(self, host: _Host) -> None:
        """Let as many waiting attempts begin as the rate limit allows."""
        while host.queued and self._may(host):
            claim, turns = host.waiting.popitem(last=False)
            turn = turns.popleft()
            host.queued -= 1
            if turns:
                host.waiting[claim] = turns
            if not turn.done():  # otherwise the client has left
                host.looked_at += 1
                turn.set_result(None)
        self._wake_later(host)

    def _wake_later(self, host: _Host) -> None:
        """Set the timer to the time at which the next waiting attempt may begin."""
        if host.timer is not None:
            host.timer.cancel()
            host.timer = None
        rate_deficit = host.rate_deficit(self._clock())
        if host.queued and rate_deficit:
            over = rate_deficit + host.looked_at + 1 - AT_ONCE
            host.timer = asyncio.get_running_loop().call_later(max(0.0, over * PACE_SECONDS), self._next, host)

    def _forget(self, where: str, host: _Host) -> None:
        """Forget a host that has no attempts in progress and has never failed."""
        if host.idle() and not host.spent and self._hosts.get(where) is host:
            del self._hosts[where]
