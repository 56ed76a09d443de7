"""Failed attempts, counted by the host that they came from, and how long the next ones take.

The answer to a failed attempt is delayed, longer with each. A host with many failures has its attempts looked at one
after another, each when the one before was answered: opening many connections does not make guessing faster. Counts
fade with time; a success does not clear them, for an attacker may have an account of its own.
"""

import asyncio
import contextlib
import ipaddress
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import Final

from msgspec import Struct, field

MOST_HOSTS: Final = 10_000  # that are remembered; the one that failed longest ago makes room
FIRST_DELAY: Final = 0.1  # seconds, of the answer to the first failure
MOST_DELAY: Final = 3.0
FADE_SECONDS: Final = 15.0  # in which one failure is forgotten
ONE_BY_ONE_FROM: Final = 8  # failures
MOST_QUEUED: Final = 100  # attempts of one host that wait for their turn
IPV6_BITS: Final = 64


def place(host: str) -> str:
    """What counts as one host: of IPv6 a network of 64 bits, for whoever has one address there has all."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.strip("[]").partition("%")[0])
    return str(ipaddress.IPv6Network((address, IPV6_BITS), strict=False))


class TooManyAttempts(Exception):
    """Of this host so many attempts wait that this one is refused."""


class _Host(Struct):
    failures: float = 0.0
    since: float = 0.0  # when `failures` was right
    queued: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def count(self, now: float) -> float:
        return max(0.0, self.failures - (now - self.since) / FADE_SECONDS)


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
        found = self._hosts.get(place(host))
        return 0.0 if found is None else found.count(self._clock())

    def guesses(self, host: str) -> bool:
        """Whether the last failure has made a host one that guesses."""
        count = self.failures(host)
        return ONE_BY_ONE_FROM <= count < ONE_BY_ONE_FROM + 1

    @contextlib.asynccontextmanager
    async def turn(self, host: str) -> AsyncIterator[None]:
        """The attempt is looked at, and answered, in here. Raises TooManyAttempts."""
        found = self._hosts.get(place(host))
        if found is None or found.count(self._clock()) < ONE_BY_ONE_FROM:
            yield
            return
        if found.queued >= MOST_QUEUED:
            raise TooManyAttempts
        found.queued += 1
        try:
            async with found.turn:
                yield
        finally:
            found.queued -= 1

    def failed(self, host: str) -> float:
        """Count a failure; returns how many seconds its answer is to be delayed."""
        now = self._clock()
        self.total += 1
        where = place(host)
        found = self._hosts.setdefault(where, _Host())
        self._hosts.move_to_end(where)
        found.failures, found.since = found.count(now) + 1, now
        while len(self._hosts) > self._most:
            self._hosts.popitem(last=False)
        return float(min(MOST_DELAY, FIRST_DELAY * 2 ** min(found.failures - 1, 10)))
