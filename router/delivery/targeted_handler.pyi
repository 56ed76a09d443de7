from sluice.router.delivery.producer_handler import ProducerHandler
from sluice.router.delivery.producer_origin import ProducerOrigin
from sluice.router.links.producer_link import ProducerLink
from sluice.router.table.table import ForwardingAddress, Table

class TargetedHandler(ProducerHandler):
    def __init__(
        self,
        table: Table,
        address: ForwardingAddress,
        origin: ProducerOrigin,
        *,
        to: str | None = None,
        phase: int = 0,
        from_fallback: bool = False,
    ) -> None: ...
    @property
    def address(self) -> ForwardingAddress: ...
    def rebind(self, address: ForwardingAddress, link: ProducerLink) -> None: ...
