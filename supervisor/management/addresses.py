"""Type router.address: one row for each address in the table (management.md 6.3)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from sluice.router.addressing.address import CONTROL_KEYS, FLOODED_KEYS, TOPOLOGICAL
from sluice.router.addressing.settings import BALANCED
from sluice.router.policy.management import SERVED_KEYS
from sluice.supervisor.addresses.record import AddressRecord
from sluice.supervisor.linkroutes.local import LinkAddress
from sluice.supervisor.linkroutes.remote import RemoteLinkAddress
from sluice.supervisor.management import values
from sluice.supervisor.management.context import AgentContext
from sluice.supervisor.management.core_type import PREFIX, Column, CoreType, constant
from sluice.supervisor.management.response import NOT_FOUND, StatusError


class LinkKey(NamedTuple):
    """Link-route address, with its local and its remote part."""

    key: str
    here: LinkAddress | None
    there: RemoteLinkAddress | None


class AddressCoreRow(NamedTuple):
    """Address with its present counters."""

    record: AddressRecord
    counters: Mapping[str, int]
    containers: int  # connections that serve a link-route address
    remotes: Sequence[int]  # indexes of reachable routers with destinations
    context: AgentContext


# Deliveries on routed links do not count for an address.
_NOTHING: Final = dict.fromkeys(
    ("ingress", "egress", "transit", "to_container", "from_container", "redirected", "ingress_container",
     "egress_container"), 0,
)  # fmt: skip


def _link_record(key: str) -> AddressRecord:
    return AddressRecord(0, key, "linkBalanced", None, "")


def _in_process(row: AddressCoreRow) -> bytes:
    """Return whether an address is in-process, including those of the protocol between routers."""
    routers = row.context.core.routers
    return values.uint(int(row.record.inproc or (routers is not None and row.record.key in CONTROL_KEYS)))


def _remote_ids(row: AddressCoreRow) -> bytes:
    routers = row.context.core.routers
    found = [] if routers is None else [routers.id_of(index) for index in row.remotes]
    return values.strings(sorted(each for each in found if each is not None))


def _outstanding(row: AddressCoreRow) -> dict[int, int] | None:
    """Return unsettled deliveries to other routers by bit of the inter-router connection; None if none are counted."""
    routers = row.context.core.routers
    if routers is None or row.record.treatment != BALANCED or not row.record.remotes:
        return None
    found: dict[int, int] = {}
    for index, counters in row.record.remotes.items():
        links = routers.links_of(index)
        bit = routers.bit(links[0]) if links else None
        if bit is not None:
            found[bit] = found.get(bit, 0) + row.context.region.remote_unsettled(counters)
    return found


def _transit(row: AddressCoreRow) -> bytes:
    """Return the counts by mask bit. Null until the address is used, as in 1.19.

    Trailing zeros are left out, because there may be very many addresses.
    """
    found = _outstanding(row)
    if not found or not (row.counters["transit"] or any(found.values())):
        return values.NULL
    return values.value([found.get(bit, 0) for bit in range(max(found) + 1)])


def _tracked(row: AddressCoreRow) -> bytes:
    return values.long(sum((_outstanding(row) or {}).values()))


def _counter(name: str) -> Column:
    return lambda row: values.ulong(row.counters[name])


def _key(row: Any) -> bytes:
    return values.string(row.record.key)


class AddressCoreType(CoreType):
    """Addresses in order of creation."""

    name = PREFIX + "router.address"
    columns: ClassVar[Mapping[str, Column]] = {
        "name": _key,
        "identity": _key,
        "type": constant(values.string(name)),
        "key": _key,
        "distribution": lambda row: values.string("flood" if row.record.key in FLOODED_KEYS else row.record.treatment),
        "inProcess": _in_process,
        "subscriberCount": lambda row: values.uint(len(row.record.consumers or ())),
        "remoteCount": lambda row: values.uint(len(row.remotes)),
        "containerCount": lambda row: values.uint(row.containers),
        "remoteHostRouters": _remote_ids,
        "deliveriesIngress": _counter("ingress"),
        "deliveriesEgress": _counter("egress"),
        "deliveriesTransit": _counter("transit"),
        "deliveriesToContainer": _counter("to_container"),
        "deliveriesFromContainer": _counter("from_container"),
        "deliveriesEgressRouteContainer": _counter("egress_container"),
        "deliveriesIngressRouteContainer": _counter("ingress_container"),
        "transitOutstanding": _transit,
        "trackedDeliveries": _tracked,
        "priority": lambda row: values.int32(-1 if row.record.priority is None else row.record.priority),
        "deliveriesRedirectedToFallback": _counter("redirected"),
    }

    def rows(self) -> Iterable[AddressRecord | LinkKey]:
        """Return all addresses, those of link routes last."""
        records = self.context.core.table.records
        return [*(record for key, record in records.items() if key not in SERVED_KEYS), *self._link_keys().values()]

    def _link_keys(self) -> dict[str, LinkKey]:
        """Return the link-route addresses by key, those of other routers last."""
        core = self.context.core
        found = {address.key: LinkKey(address.key, address, None) for address in core.link_routes.addresses()}
        if core.routers is not None:
            for address in core.routers.link_routes:
                here = found.get(address.key)
                found[address.key] = LinkKey(address.key, None if here is None else here.here, address)
        return found

    def row(self, item: AddressRecord | LinkKey) -> AddressCoreRow | None:
        """Return the row of an address with the sums over all workers, or None if the address is gone."""
        if isinstance(item, LinkKey):
            here, there = item.here, item.there
            containers = 0 if here is None else here.containers
            remotes = () if there is None else tuple(there.routers)
            reachable = self._reachable(remotes)
            if not remotes and (here is None or not here.routes):
                return None
            return AddressCoreRow(_link_record(item.key), _NOTHING, containers, reachable, self.context)
        if self.context.core.table.records.get(item.key) is not item:
            return None
        remotes = self._reachable(item.remotes or ())
        if item.key[0] == TOPOLOGICAL and item.key in CONTROL_KEYS and self.context.core.routers is not None:
            remotes = self._reachable(self.context.core.routers.indexes())
        return AddressCoreRow(item, self.context.region.address_totals(item.id), 0, remotes, self.context)

    def _reachable(self, remotes: Iterable[int]) -> tuple[int, ...]:
        """Return the routers to which there is a path."""
        routers = self.context.core.routers
        return () if routers is None else tuple(index for index in remotes if routers.links_of(index))

    def find(self, identity: str | None, name: str | None) -> AddressRecord | LinkKey:
        """Return the address with this key."""
        wanted = identity if identity is not None else name or ""
        found = self.context.core.table.records.get(wanted) or self._link_keys().get(wanted)
        if found is None:
            raise StatusError(NOT_FOUND)
        return found
