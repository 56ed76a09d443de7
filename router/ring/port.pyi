from collections.abc import Callable

from router.amqp.connection import Connection
from router.amqp.scheduler import Scheduler
from router.ring.link_table import LinkTable
from router.ring.outbox import Outbox
from router.ring.port_out import PortOut
from router.ring.port_work import PortWork
from router.ring.region import Region
from router.routed.routed_link import RoutedLink

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
