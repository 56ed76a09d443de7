from sluice.router.links.producer_link import DeliveryHandler
from sluice.router.table.table import Table

class ProducerHandler(DeliveryHandler):
    @property
    def table(self) -> Table: ...
    @property
    def honour(self) -> bool: ...
    @property
    def edge(self) -> int: ...
