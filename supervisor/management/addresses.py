"""Type router.address: one row for each address in the table (management specification 6.3)."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from supervisor.linkroutes import LinkAddress
from supervisor.management import values
from supervisor.management.core_type import PREFIX, Column, CoreType, constant
from supervisor.management.response import NOT_FOUND, StatusError
from supervisor.table import Record


class Row(NamedTuple):
    """An address with its counters as they are now."""

    record: Record
    counters: Mapping[str, int]
    containers: int  # connections that serve an address of link routes


# Links of link routes are not deliveries of an address.
_NOTHING: Final = dict.fromkeys(
    ("ingress", "egress", "transit", "to_container", "from_container", "redirected", "ingress_container",
     "egress_container"), 0,
)  # fmt: skip


def _link_record(address: LinkAddress) -> Record:
    return Record(0, address.key, "linkBalanced", None, "")


def _counter(name: str) -> Column:
    return lambda row: values.ulong(row.counters[name])


def _key(row: Any) -> bytes:
    return values.string(row.record.key)


class Addresses(CoreType):
    """Addresses in order of creation. This router is alone: nothing is remote."""

    name = PREFIX + "router.address"
    columns: ClassVar[Mapping[str, Column]] = {
        "name": _key,
        "identity": _key,
        "type": constant(values.string(name)),
        "key": _key,
        "distribution": lambda row: values.string(row.record.treatment),
        "inProcess": lambda row: values.uint(int(row.record.inproc)),
        "subscriberCount": lambda row: values.uint(len(row.record.consumers or ())),
        "remoteCount": constant(values.uint(0)),
        "containerCount": lambda row: values.uint(row.containers),
        "remoteHostRouters": constant(values.strings(())),
        "deliveriesIngress": _counter("ingress"),
        "deliveriesEgress": _counter("egress"),
        "deliveriesTransit": _counter("transit"),
        "deliveriesToContainer": _counter("to_container"),
        "deliveriesFromContainer": _counter("from_container"),
        "deliveriesEgressRouteContainer": _counter("egress_container"),
        "deliveriesIngressRouteContainer": _counter("ingress_container"),
        "transitOutstanding": constant(values.NULL),
        "trackedDeliveries": constant(values.long(0)),
        "priority": lambda row: values.int32(-1 if row.record.priority is None else row.record.priority),
        "deliveriesRedirectedToFallback": _counter("redirected"),
    }

    def rows(self) -> Iterable[Record | LinkAddress]:
        """All addresses, those of link routes last."""
        core = self.context.core
        return [*core.table.records.values(), *core.link_routes.addresses()]

    def row(self, item: Record | LinkAddress) -> Row | None:
        """The address's counters, added up over the workers; None when it is gone."""
        if isinstance(item, LinkAddress):
            return Row(_link_record(item), _NOTHING, item.containers) if item.routes else None
        if self.context.core.table.records.get(item.key) is not item:
            return None
        return Row(item, self.context.region.address_totals(item.id), 0)

    def find(self, identity: str | None, name: str | None) -> Record | LinkAddress:
        """By key."""
        wanted = identity if identity is not None else name or ""
        record = self.context.core.table.records.get(wanted)
        if record is not None:
            return record
        for address in self.context.core.link_routes.addresses():
            if address.key == wanted:
                return address
        raise StatusError(NOT_FOUND)
