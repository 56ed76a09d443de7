"""Addresses that an edge router announces to other routers. No I/O here."""

from typing import Final

from sluice.router.addressing.address import FALLBACK_PHASE, MOBILE
from sluice.router.addressing.settings import LOCAL, NETWORK, AddressSetting
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.addresses.settings import Settings
from sluice.supervisor.addresses.table import AddressTable
from sluice.supervisor.links.attach import FALLBACK_CAPABILITY, WAYPOINT_CAPABILITY

# Mobile addresses that every router serves itself.
_OWN: Final = ("$management",)
_SERVICES: Final = "_$qd."


class AnnouncedAddresses:
    """Addresses, by key, that interior routers may know. Owner: the core."""

    def __init__(self, table: AddressTable, settings: Settings) -> None:
        self._table: Final = table
        self._settings: Final = settings

    def __contains__(self, key: str) -> bool:
        return is_announceable(key) and self._may_leave(key, self._table.records.get(key))

    def _may_leave(self, key: str, record: AddressRecord | None) -> bool:
        """Return whether the record and the settings of an announceable address permit its announcement."""
        return (record is None or not record.inproc) and self.scope(key[2:]) == NETWORK

    def setting(self, name: str) -> AddressSetting:
        """Return the settings of a mobile address."""
        return self._settings.current.lookup(name)

    def scope(self, name: str) -> str:
        """Return the configured scope of a mobile address."""
        return self.setting(name).scope

    def capability(self, key: str, *, outgoing: bool) -> str | None:
        """Return the capability that names the phase of an address to another router (brokers-and-edge.md ED-11).

        None: the default phase. outgoing: the link is a sender.
        """
        phase, setting = key[1], self.setting(key[2:])
        if phase == FALLBACK_PHASE:
            return FALLBACK_CAPABILITY
        number, first, last = int(phase), setting.ingress_phase, setting.egress_phase
        if number == (first if outgoing else last):
            return None
        return f"{WAYPOINT_CAPABILITY}.{number if outgoing else number + 1}"


class PeerAddresses(AnnouncedAddresses):
    """Addresses, by key, that other edge routers may know. Owner: the edge peers.

    An exchange forwards only messages that entered at its own router, so its address is not announced.
    """

    def _may_leave(self, key: str, record: AddressRecord | None) -> bool:
        if record is not None and (record.inproc or record.exchange is not None):
            return False
        return self.scope(key[2:]) != LOCAL


def is_announceable(key: str) -> bool:
    """Return whether an address may be announced to other routers."""
    name = key[2:]
    return key[0] == MOBILE and name not in _OWN and not name.startswith(_SERVICES)
