from sluice.router.delivery.producer_handler import ProducerHandler
from sluice.router.delivery.producer_origin import ProducerOrigin
from sluice.router.table.table import Table

class AnonymousHandler(ProducerHandler):
    def __init__(self, table: Table, origin: ProducerOrigin) -> None: ...
