from collections.abc import Callable, Iterable

from sluice.router.amqp.clock import Clock
from sluice.router.amqp.connection import Connection
from sluice.router.amqp.quota import Quota
from sluice.router.ring.region import Region

class TenantQuota(Quota):
    def __init__(
        self,
        region: Region,
        worker: int,
        clock: Clock,
        call_at: Callable[[int, Callable[[], None]], object],
        scopes: Iterable[tuple[int, int, int, int]],
    ) -> None: ...
    def join(self, connection: Connection) -> None: ...
    def leave(self, connection: Connection) -> None: ...
    def look(self) -> None: ...
