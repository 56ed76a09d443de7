"""The record that a message to an address goes to."""

from router.addressing.address import EDGE_MODE, LOCAL, MOBILE, UPLINK, classify, key, normalise
from router.addressing.settings import AddressSettings
from supervisor.addresses.record import Record
from supervisor.addresses.table import Table


class Lookup:
    """Finds records by the texts of addresses. Owner: the core."""

    __slots__ = ("_mode", "_router_id", "_settings", "_table")

    def __init__(self, router_id: str, mode: str, settings: AddressSettings, table: Table) -> None:
        self._router_id = router_id
        self._mode = mode
        self._settings = settings
        self._table = table

    def find(self, text: str) -> Record | None:
        """The record for an address, None when there is none."""
        cls, name = classify(normalise(text), self._router_id, self._mode)
        phase = self._settings.lookup(name).ingress_phase if cls == MOBILE else 0
        found = self._table.records.get(key(cls, name, phase))
        if found is None and cls == MOBILE and self._mode == EDGE_MODE:
            return self._table.records.get(key(LOCAL, UPLINK))  # perhaps it is beyond
        return found
