"""Type router.address: one row for each address in the table (management specification 6.3)."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from supervisor.management import values
from supervisor.management.core_type import PREFIX, Column, CoreType, constant
from supervisor.management.response import NOT_FOUND, StatusError
from supervisor.table import Record


class Row(NamedTuple):
    """An address with its counters as they are now."""

    record: Record
    counters: dict[str, int]


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
        "containerCount": constant(values.uint(0)),
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

    def rows(self) -> Iterable[Record]:
        """All addresses."""
        return self.context.core.table.records.values()

    def row(self, item: Record) -> Row | None:
        """The address's counters, added up over the workers; None when it is gone."""
        if self.context.core.table.records.get(item.key) is not item:
            return None
        return Row(item, self.context.region.address_totals(item.id))

    def find(self, identity: str | None, name: str | None) -> Record:
        """By key."""
        record = self.context.core.table.records.get(identity if identity is not None else name or "")
        if record is None:
            raise StatusError(NOT_FOUND)
        return record
