"""Address for messages to addresses that an edge router does not know: they go to the uplink. No I/O here."""

from typing import Final

from sluice.router.addressing.address import LOCAL, UPLINK, key
from sluice.router.addressing.settings import CLOSEST, DEFAULT_OVERFLOW
from sluice.supervisor.addresses.table import AddressTable
from sluice.supervisor.connections.connections import RegisteredLink
from sluice.supervisor.edge.absence import UplinkAbsence

UPLINK_KEY: Final = key(LOCAL, UPLINK)


class UplinkAddress:
    """Record of the address, whose consumers are anonymous links to interior routers. Owner: the attachments."""

    def __init__(self, table: AddressTable, absence: UplinkAbsence) -> None:
        self.absence: Final = absence
        self._table: Final = table
        self._record: Final = table.create(UPLINK_KEY, CLOSEST, None, DEFAULT_OVERFLOW)
        self._record.fixed = True
        table.hold(self._record)

    def use(self, link: RegisteredLink, wanted: bool) -> None:
        """Add an anonymous link to the consumers of the address if wanted, or remove it."""
        if link.closed or wanted == (link.record is not None):
            return
        place = (link.worker, link.slot, link.generation)
        if wanted:
            link.record = self._record
            connection = link.connection
            self._table.add_consumer(self._record, *place, connection.origin.link_capacity, connection.way)
            self.absence.resume(self._record, link)
        else:
            link.record = None
            self._table.remove_consumer(self._record, *place)
