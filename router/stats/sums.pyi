"""Types of the Python interface of sums.pyx."""

from array import array

from sluice.router.ring.region import Region

LINK_SUMS: tuple[str, ...]
TRAFFIC_SUMS: tuple[str, ...]
ADDRESS_SUMS: tuple[str, ...]

def add_links(
    region: Region,
    worker: int,
    slots: array[int],
    groups: array[int],
    addresses: array[int],
    sums: array[int],
    undelivered: array[int],
) -> None: ...
def add_traffic(
    region: Region,
    worker: int,
    slots: array[int],
    generations: array[int],
    groups: array[int],
    sums: array[int],
    stalls: array[int],
) -> None: ...
def traffic_of(region: Region, worker: int, slot: int, generation: int) -> tuple[int, int] | None: ...

class AddressCounters:
    def __init__(self, region: Region) -> None: ...
    def reset(self, address: int) -> None: ...
    def removed_totals(self) -> list[int]: ...
    def of(self, address: int) -> list[int]: ...
    def add(self, start: int, stop: int, sums: array[int], traffic: array[int]) -> None: ...
