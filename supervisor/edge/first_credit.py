"""First credit of producers at an edge router, held until the destinations behind the uplink are known. No I/O here.

A message sent earlier would miss destinations: copies of a multicast message would not go up, and an address with a
fallback would use the fallback although it has consumers of its own.
"""

import math
import time
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from sluice.router.addressing.settings import MULTICAST
from sluice.supervisor.addresses.record import AddressRecord

TIMEOUT: Final = 3.0  # seconds; the same as for a look-up
NEVER: Final = math.inf


class WaitingProducer(Struct):
    """Producer that waits for its first credit. Owner: the list of its address."""

    record: AddressRecord
    due: float
    go_on: Callable[[], None]


class FirstCredit:
    """All producers that wait for their first credit. Owner: the uplink."""

    def __init__(self, known: Callable[[AddressRecord], bool]) -> None:
        """known(record): returns False if the interior router may still report destinations of the address."""
        self._known = known
        self._waiting: dict[str, list[WaitingProducer]] = {}  # by key of the address, in order of the first one's time

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def wait(self, record: AddressRecord, go_on: Callable[[], None]) -> bool:
        """Call `go_on` once a producer of an address may have credit; return False if it may have credit now."""
        if not needs_all_destinations(record) or self._is_known(record):
            return False
        self._waiting.setdefault(record.key, []).append(WaitingProducer(record, time.monotonic() + TIMEOUT, go_on))
        return True

    @staticmethod
    def epoch(record: AddressRecord) -> int:
        """Return the epoch in which a worker knows all consumers of an address that the supervisor knows."""
        if not needs_all_destinations(record):
            return record.epoch
        fallback = 0 if record.fallback is None else record.fallback.users_epoch
        return max(record.epoch, record.users_epoch, fallback)

    def _is_known(self, record: AddressRecord) -> bool:
        return self._known(record) and (record.fallback is None or self._known(record.fallback))

    def heard(self, record: AddressRecord) -> None:
        """Give the producers of an address their credit if its destinations behind the uplink are known now."""
        for each in (record, record.primary):
            if each is not None and each.key in self._waiting and self._is_known(each):
                self._release(self._waiting.pop(each.key))

    def give_up(self) -> None:
        """Give all waiting producers their credit: no interior router can report destinations now."""
        waiting, self._waiting = self._waiting, {}
        for each in waiting.values():
            self._release(each)

    @staticmethod
    def _release(waiting: list[WaitingProducer]) -> None:
        for each in waiting:
            each.go_on()

    @property
    def deadline(self) -> float:
        """Monotonic time at which the longest waiting producer has waited for TIMEOUT."""
        first = next(iter(self._waiting.values()), None)
        return NEVER if first is None else first[0].due

    def step(self) -> None:
        """Give credit to producers that have waited for TIMEOUT."""
        now = time.monotonic()
        while self.deadline <= now:
            self._release(self._waiting.pop(next(iter(self._waiting))))


def needs_all_destinations(record: AddressRecord) -> bool:
    """Return whether a message to an address could miss destinations that are not known yet: each of them gets a copy
    (multicast), or consumers are preferred to a fallback."""
    return record.treatment == MULTICAST or record.fallback is not None or record.primary is not None
