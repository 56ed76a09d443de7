from collections.abc import Callable, Iterable
from typing import Any

from router.ring.region import Region

class TenantQuota:
    def __init__(
        self,
        region: Region,
        worker: int,
        clock: Any,
        call_at: Callable[[int, Callable[[], None]], object],
        scopes: Iterable[tuple[int, int, int, int]],
    ) -> None: ...
    def join(self, connection: Any) -> None: ...
    def leave(self, connection: Any) -> None: ...
    def look(self) -> None: ...
