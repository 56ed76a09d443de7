from collections.abc import Callable

from sluice.router.links.producer_link import DeliveryHandler
from sluice.router.table.table import Table

class ControlHandler(DeliveryHandler):
    def __init__(self, table: Table, key: str, too_long: Callable[[], object]) -> None: ...
