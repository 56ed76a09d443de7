"""Remembered bindings: addresses of plain attaches, as a decision has resolved them.

Most clients attach to addresses that others have attached to before. A binding depends on the address, the direction
and the patterns of address settings and link routes, and on nothing that the client is or may do.
"""

from typing import Final, NamedTuple

from sluice.router.addressing.settings import AddressSetting
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.addresses.table import AddressTable

MOST_BINDINGS: Final = 1024  # remembered addresses for each direction; further ones replace all
MOST_LENGTH: Final = 256  # characters of a remembered address


class AddressBinding(NamedTuple):
    """Mobile address that an attach names, without tenant and capabilities."""

    key: str  # of its record
    name: str  # normalised
    phase: int
    setting: AddressSetting

    def record_in(self, table: AddressTable) -> AddressRecord:
        """Return the record; create it if it does not exist. Raises TableFullError."""
        return table.records.get(self.key) or table.open_mobile(self.name, self.phase, self.setting)


class AddressBindings:
    """Bindings by address as clients write it. Owner: the attach decider."""

    __slots__ = ("consumers", "producers")

    def __init__(self) -> None:
        self.consumers: Final[dict[str, AddressBinding]] = {}
        self.producers: Final[dict[str, AddressBinding]] = {}

    def remember(self, address: str, consumer: bool, binding: AddressBinding) -> None:
        """Remember the binding of an address, unless it is long."""
        if len(address) > MOST_LENGTH:
            return
        found = self.consumers if consumer else self.producers
        if len(found) >= MOST_BINDINGS:
            found.clear()
        found[address] = binding

    def forget(self) -> None:
        """Forget all bindings, because what they depend on has changed."""
        self.consumers.clear()
        self.producers.clear()
