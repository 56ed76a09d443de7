"""Types of the Python interface of snapshot.pyx."""

from sluice.router.ring.region import Region

LINK_COUNTERS: tuple[str, ...]

# Slot, generation, present, incoming, address id, capacity, credit, unsettled, undelivered, stuck, without credit since
# (ns), increase of LINK_COUNTERS, increase of `taken` by worker, increase of latencies by bucket, round trip (µs).
LinkRow = tuple[int, int, bool, bool, int, int, int, int, int, int, int, list[int], list[int], list[int], int]

# Time (ns), octets, slot, generation, latency (µs), settle (µs), kind, every.
SampleRow = tuple[int, int, int, int, int | None, int | None, int, int]

class LinkReader:
    def __init__(self, region: Region, worker: int, known: bytes = b"") -> None: ...
    @property
    def state(self) -> bytes: ...
    def look(self) -> list[LinkRow]: ...

class SampleReader:
    def __init__(self, region: Region, worker: int, seen: int = 0) -> None: ...
    @property
    def seen(self) -> int: ...
    def look(self) -> list[SampleRow]: ...
