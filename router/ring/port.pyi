from collections.abc import Callable

from sluice.router.amqp.connection import Connection
from sluice.router.amqp.scheduler import Scheduler
from sluice.router.ring.link_table import LinkTable
from sluice.router.ring.outbox import Outbox
from sluice.router.ring.port_out import PortOut
from sluice.router.ring.port_work import PortWork
from sluice.router.ring.region import Region
from sluice.router.routed.routed_link import RoutedLink

class WorkerPort:
    on_closed: Callable[[WorkerPort, Exception], object] | None
    routed: dict[int, RoutedLink]
    def __init__(
        self,
        region: Region,
        worker: int,
        peer: int,
        peer_eventfd: int,
        links: LinkTable,
        scheduler: Scheduler,
        work: PortWork,
    ) -> None: ...
    @property
    def peer(self) -> int: ...
    @property
    def worker(self) -> int: ...
    @property
    def alive(self) -> bool: ...
    @property
    def closed(self) -> bool: ...
    @property
    def generation(self) -> int: ...
    @property
    def outbox(self) -> Outbox: ...
    @property
    def outgoing(self) -> PortOut: ...
    def up(self, generation: int) -> None: ...
    def down(self) -> None: ...
    def throttle(self, connection: Connection) -> None: ...
