"""Search for the record that receives messages to an address."""

from sluice.router.addressing.address import EDGE_MODE, LOCAL, MOBILE, UPLINK, classify, key, normalise
from sluice.router.addressing.settings import AddressSettings
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.addresses.table import AddressTable


class RecordFinder:
    """Search for address records by address text. Owner: the core."""

    __slots__ = ("_mode", "_router_id", "_settings", "_table")

    def __init__(self, router_id: str, mode: str, settings: AddressSettings, table: AddressTable) -> None:
        self._router_id = router_id
        self._mode = mode
        self._settings = settings
        self._table = table

    def find(self, text: str) -> AddressRecord | None:
        """Return the record for an address text; None if there is none.

        An edge router without a record for a mobile address returns the record of its uplink.
        """
        cls, name = classify(normalise(text), self._router_id, self._mode)
        phase = self._settings.lookup(name).ingress_phase if cls == MOBILE else 0
        found = self._table.records.get(key(cls, name, phase))
        if found is None and cls == MOBILE and self._mode == EDGE_MODE:
            return self._table.records.get(key(LOCAL, UPLINK))  # the interior router may know the address
        return found
