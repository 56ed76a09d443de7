from sluice.router.ring.port_work import PortWork
from sluice.router.ring.region import Region

class Outbox:
    def __init__(self, work: PortWork, region: Region, worker: int, peer: int, peer_eventfd: int) -> None: ...
    @property
    def waits(self) -> bool: ...
