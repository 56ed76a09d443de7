from sluice.router.delivery.producer_handler import ProducerHandler
from sluice.router.table.table import Table

class RouterHandler(ProducerHandler):
    def __init__(self, table: Table, conn: int = 0, *, streaming: bool = False, checks: bool = False) -> None: ...
    @property
    def conn(self) -> int: ...
