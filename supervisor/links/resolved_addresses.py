"""Resolved addresses: what a decision has found for the address of a plain attach.

Most clients attach to addresses that others have attached to before. What is found depends on the address, the
direction and the patterns of address settings and link routes, and on nothing that the client is or may do.
"""

from typing import Final, NamedTuple

from sluice.router.addressing.settings import AddressSetting
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.addresses.table import AddressTable

MOST_RESOLVED: Final = 1024  # remembered addresses for each direction; further ones replace all
MOST_LENGTH: Final = 256  # characters of a remembered address


class ResolvedAddress(NamedTuple):
    """Mobile address that an attach names, without tenant and capabilities."""

    key: str  # of its record
    name: str  # normalised
    phase: int
    setting: AddressSetting

    def record_in(self, table: AddressTable) -> AddressRecord:
        """Return the record; create it if it does not exist. Raises TableFullError."""
        return table.records.get(self.key) or table.open_mobile(self.name, self.phase, self.setting)


class ResolvedAddresses:
    """Resolved addresses by the address as clients write it. Owner: the attach decider."""

    __slots__ = ("consumers", "producers")

    def __init__(self) -> None:
        self.consumers: Final[dict[str, ResolvedAddress]] = {}
        self.producers: Final[dict[str, ResolvedAddress]] = {}

    def remember(self, address: str, consumer: bool, resolved: ResolvedAddress) -> None:
        """Remember what an address is resolved to, unless it is long."""
        if len(address) > MOST_LENGTH:
            return
        found = self.consumers if consumer else self.producers
        if len(found) >= MOST_RESOLVED:
            found.clear()
        found[address] = resolved

    def forget(self) -> None:
        """Forget all, because what they depend on has changed."""
        self.consumers.clear()
        self.producers.clear()
