"""Attempts to log in, by the host that they come from: how many are looked at, in which order, and how late the answers
to failed ones are.

A host may have AT_ONCE attempts that failed or may fail, and one more each PACE_SECONDS. An attempt counts from the
moment it is looked at, so that guessing in parallel is no faster; one that does not fail counts no more. Further
attempts wait. Those that wait take turns by what they claim, so that the owner of a password does not wait behind all
who guess the passwords of others from the same address.

The answer to a failed attempt is delayed, longer with each. Nobody else waits for that. Failures fade with time; a
success does not clear them, for an attacker may have an account of its own.
"""

import asyncio
import contextlib
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from itertools import islice
from typing import Final

from msgspec import Struct, field

from supervisor.runtime.remote_hosts import remote_host

MOST_HOSTS: Final = 10_000  # that are remembered; the one that failed longest ago makes room
FIRST_DELAY: Final = 0.1  # seconds, of the answer to the first failure
MOST_DELAY: Final = 3.0
FADE_SECONDS: Final = 15.0  # in which one failure is forgotten
MOST_FAILURES: Final = 8.0  # that count; more would only take longer to fade
AT_ONCE: Final = 8
PACE_SECONDS: Final = 1.0
MOST_QUEUED: Final = 100  # attempts of one host that wait for their turn
WARN_SECONDS: Final = 60.0  # between two warnings about one host


class TooManyAttempts(Exception):
    """Of this host so many attempts wait that this one is refused."""


_Turn = asyncio.Future[None]


class _Host(Struct):
    failures: float = 0.0  # by which answers are delayed
    since: float = 0.0  # when `failures` was right
    spent: float = 0.0  # failed attempts that are not paid back by PACE_SECONDS each
    spent_at: float = 0.0  # when `spent` was right
    looked_at: int = 0  # attempts in work
    waiting: OrderedDict[str, deque[_Turn]] = field(default_factory=OrderedDict)  # by claim, in the order of turns
    queued: int = 0  # in all of these
    timer: asyncio.TimerHandle | None = None
    warned: float = float("-inf")

    def count(self, now: float) -> float:
        return max(0.0, self.failures - (now - self.since) / FADE_SECONDS)

    def debt(self, now: float) -> float:
        return max(0.0, self.spent - (now - self.spent_at) / PACE_SECONDS)

    def idle(self) -> bool:
        return not self.looked_at and not self.queued


class Attempts:
    """The table of hosts. Owner: the authentication process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = MOST_HOSTS) -> None:
        self._clock: Final = clock
        self._most: Final = most
        self._hosts: OrderedDict[str, _Host] = OrderedDict()  # who failed last is at the end
        self.total = 0

    def __len__(self) -> int:
        return len(self._hosts)

    def failures(self, host: str) -> float:
        """How many count at present."""
        found = self._hosts.get(remote_host(host))
        return 0.0 if found is None else found.count(self._clock())

    def guesses(self, host: str) -> bool:
        """Whether a host has failed so often that its attempts wait now; true once in WARN_SECONDS."""
        found, now = self._hosts.get(remote_host(host)), self._clock()
        if found is None or found.debt(now) <= AT_ONCE - 1 or now - found.warned < WARN_SECONDS:
            return False
        found.warned = now
        return True

    @contextlib.asynccontextmanager
    async def turn(self, host: str, claim: str = "") -> AsyncIterator[None]:
        """The attempt is looked at in here. claim: the mechanism, and the user that the client says it is.

        Raises TooManyAttempts.
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
        """Count a failure, within `turn`; return how many seconds its answer is to be delayed."""
        now = self._clock()
        self.total += 1
        where = remote_host(host)
        found = self._hosts.setdefault(where, _Host())
        self._hosts.move_to_end(where)
        found.spent, found.spent_at = found.debt(now) + 1, now
        found.failures, found.since = min(MOST_FAILURES, found.count(now) + 1), now
        for each in list(islice(self._hosts, max(0, len(self._hosts) - self._most))):
            if self._hosts[each].idle():
                del self._hosts[each]
        return float(min(MOST_DELAY, FIRST_DELAY * 2 ** (found.failures - 1)))

    # Turns

    def _may(self, host: _Host) -> bool:
        return host.debt(self._clock()) + host.looked_at + 1 <= AT_ONCE

    async def _wait(self, host: _Host, claim: str) -> None:
        """Wait until an attempt counts as looked at."""
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
        except asyncio.CancelledError:  # its client is gone
            if turn.cancelled():
                self._remove(host, claim, turn)
            elif turn.exception() is None:
                host.looked_at -= 1  # it was its turn just now
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
        """Let as many of those that wait go on as may."""
        while host.queued and self._may(host):
            claim, turns = host.waiting.popitem(last=False)
            turn = turns.popleft()
            host.queued -= 1
            if turns:
                host.waiting[claim] = turns
            if not turn.done():  # else its client is gone
                host.looked_at += 1
                turn.set_result(None)
        self._wake_later(host)

    def _wake_later(self, host: _Host) -> None:
        """Look again when the next one of those that wait may go on."""
        if host.timer is not None:
            host.timer.cancel()
            host.timer = None
        debt = host.debt(self._clock())
        if host.queued and debt:
            over = debt + host.looked_at + 1 - AT_ONCE
            host.timer = asyncio.get_running_loop().call_later(max(0.0, over * PACE_SECONDS), self._next, host)

    def _forget(self, where: str, host: _Host) -> None:
        """A host without failures is not remembered."""
        if host.idle() and not host.spent and self._hosts.get(where) is host:
            del self._hosts[where]
