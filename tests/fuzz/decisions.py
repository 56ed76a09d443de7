"""Random generator that reads its numbers from octets: changing an octet changes one decision.

The octets are divided into slices of equal size. The first slice is used until `steps` begins; each further slice is
used for one step. Decisions beyond the end of a slice follow from a checksum of the slice, so each step depends only
on its own slice.
"""

from collections.abc import Iterator
from random import Random
from typing import Final
from zlib import crc32

SLICE: Final = 48  # octets; the same as in libfuzzer/slices.c


class Decisions(Random):
    """Generator of decisions. Reads `octets` once from start to end."""

    def __init__(self, octets: bytes) -> None:
        super().__init__(0)
        self._octets = octets
        self._use_slice(0)

    def steps(self) -> Iterator[int]:
        """Yield the number of each step, with its slice in use."""
        for number in range(1, len(self._octets) // SLICE):
            self._use_slice(number)
            yield number

    def _use_slice(self, number: int) -> None:
        self._slice = self._octets[number * SLICE : (number + 1) * SLICE]
        self._at = 0
        self._beyond: Random | None = None

    def _octet(self) -> int:
        if self._at < len(self._slice):
            self._at += 1
            return self._slice[self._at - 1]
        if self._beyond is None:
            self._beyond = Random(crc32(self._slice))
        return self._beyond.getrandbits(8)

    # -- sources of all methods of Random ------------------------------------------------------------------------------

    def random(self) -> float:
        return (self._octet() << 8 | self._octet()) / 65536

    def getrandbits(self, k: int) -> int:
        number = 0
        for _ in range((k + 7) // 8):
            number = number << 8 | self._octet()
        return number & ((1 << k) - 1)

    def _randbelow(self, n: int) -> int:
        # Random's own method retries while a number is too large, which may take any number of octets.
        return self.getrandbits(max(8, (n - 1).bit_length())) % n
