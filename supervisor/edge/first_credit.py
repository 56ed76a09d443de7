"""Producers of an edge router that wait for their first credit until it is known who is beyond. No I/O here.

What a producer sends before that would miss destinations: copies of a multicast message do not go up, and an address
with a fallback uses it although its own consumers are there.
"""

import math
import time
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from supervisor.addresses.record import Record
from supervisor.edge.proxies import choosy

TIMEOUT: Final = 3.0  # seconds, as for a look-up
NEVER: Final = math.inf


class Waiting(Struct):
    """A producer without credit. Owner: its record's list."""

    record: Record
    due: float
    go_on: Callable[[], None]


class FirstCredit:
    """All producers that wait. Owner: the uplink."""

    def __init__(self, known: Callable[[Record], bool]) -> None:
        """known(record): whether it is known who is beyond for an address, or there is nobody to say so."""
        self._known = known
        self._waiting: dict[str, list[Waiting]] = {}  # by key of the address, in order of the first one's time

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def wait(self, record: Record, go_on: Callable[[], None]) -> bool:
        """Call `go_on` once a producer of an address may have credit. False: it may now."""
        if not choosy(record) or self._is_known(record):
            return False
        self._waiting.setdefault(record.key, []).append(Waiting(record, time.monotonic() + TIMEOUT, go_on))
        return True

    @staticmethod
    def epoch(record: Record) -> int:
        """The epoch in which a worker knows of everybody who is known for an address."""
        if not choosy(record):
            return record.epoch
        fallback = 0 if record.fallback is None else record.fallback.users_epoch
        return max(record.epoch, record.users_epoch, fallback)

    def _is_known(self, record: Record) -> bool:
        return self._known(record) and (record.fallback is None or self._known(record.fallback))

    def heard(self, record: Record) -> None:
        """Let the producers of an address go on, if it is known who is beyond."""
        for each in (record, record.primary):
            if each is not None and each.key in self._waiting and self._is_known(each):
                self._release(self._waiting.pop(each.key))

    def give_up(self) -> None:
        """Let all go on: nobody says who is beyond any more."""
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            self._release(each)

    @staticmethod
    def _release(waiting: list[Waiting]) -> None:
        for each in waiting:
            each.go_on()

    @property
    def deadline(self) -> float:
        """When the first one has waited for too long."""
        first = next(iter(self._waiting.values()), None)
        return NEVER if first is None else first[0].due

    def step(self) -> None:
        """Let those go on that have waited for too long."""
        now = time.monotonic()
        while self.deadline <= now:
            self._release(self._waiting.pop(next(iter(self._waiting))))
