from collections.abc import Callable

from sluice.router.ring.region import Region
from sluice.router.table.table import AddressTap

class UnfinishedCopy: ...

class Tap(AddressTap):
    def __init__(
        self,
        number: int,
        key: str,
        pattern: str,
        required: bool,
        region: Region,
        worker: int,
        counters: int,
        on_missed: Callable[[Tap], object] | None = None,
    ) -> None: ...
    def take_missed(self) -> dict[str, int]: ...
    def check_starved(self) -> int: ...
