from router.delivery.producer_handler import ProducerHandler
from router.delivery.producer_origin import ProducerOrigin
from router.table.table import Table

class AnonymousHandler(ProducerHandler):
    def __init__(self, table: Table, origin: ProducerOrigin) -> None: ...
