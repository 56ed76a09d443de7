"""Address table of the supervisor: records, their consumers and producers. No input or output here."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from sluice.router.addressing.address import FALLBACK_PHASE, MOBILE, key, too_long
from sluice.router.addressing.settings import BALANCED, NETWORK, AddressSetting
from sluice.router.control.ops import AddressGone, AddressOp, ConsumerGone, ConsumerOp, Op, RemoteGone, RemoteOp
from sluice.supervisor.addresses.counter_slots import CounterSlots
from sluice.supervisor.addresses.record import NOT_ON_EDGE, AddressRecord, ConsumerEdge, consumer_number, worker_of
from sluice.supervisor.addresses.tap_patterns import TapPatterns
from sluice.supervisor.journal.journal import Journal
from sluice.supervisor.subsystem import Subsystem

_PRIMARY: Final = key(MOBILE, "", 0)


class TableFullError(Exception):
    """Raised when no counter slot is left for another address record."""


class AddressTooLongError(TableFullError):
    """Raised when the key of a new address record is too long."""


class AddressTable(Subsystem):
    """Address records; the journal announces their changes to the workers. Owner: the core."""

    __slots__ = ("_idle", "_journal", "_local_changed", "_slots", "_users_changed", "records", "taps")

    def __init__(self, journal: Journal, slots: CounterSlots) -> None:
        self.records: dict[str, AddressRecord] = {}  # by key
        self.taps: Final = TapPatterns()
        self._journal = journal
        self._slots = slots
        self._idle: list[AddressRecord] = []  # records that may have lost their last user since the last delta
        self._local_changed: list[Callable[[AddressRecord], None]] = []
        self._users_changed: list[Callable[[AddressRecord], None]] = []

    def watch_local(self, changed: Callable[[AddressRecord], None]) -> None:
        """Call `changed` whenever `local` of a record may have changed."""
        self._local_changed.append(changed)

    def watch_users(self, changed: Callable[[AddressRecord], None]) -> None:
        """Call `changed` whenever local or remote consumers or producers of a record were added or removed."""
        self._users_changed.append(changed)

    def notify_scope_changed(self, record: AddressRecord) -> None:
        """Notify the watchers of users: other routers may have to announce or withdraw the address."""
        for changed in self._users_changed:
            changed(record)

    def local_changed(self, record: AddressRecord) -> None:
        """Notify the watchers of `local` that it may have changed for this record."""
        for changed in self._local_changed:
            changed(record)

    def create(
        self,
        record_key: str,
        treatment: str,
        priority: int | None,
        overflow: str,
        fallback: AddressRecord | None = None,
        scope: str = NETWORK,
    ) -> AddressRecord:
        """Create a record. The key must not be in the table. Raises TableFullError."""
        if too_long(record_key):
            raise AddressTooLongError
        record = AddressRecord(self._allocate_id(), record_key, treatment, priority, overflow)
        record.scope = scope
        record.taps = self.taps.matching(record_key)
        self.records[record_key] = record
        self._idle.append(record)  # before_delta removes the record if it has no user by then
        if fallback is not None:
            record.fallback = fallback
            fallback.primary = record
        self.announce(record)
        return record

    def _allocate_id(self) -> int:
        number = self._slots.allocate()
        if number is None:
            raise TableFullError
        return number

    def announce(self, record: AddressRecord) -> None:
        """Announce the present state of the record to the workers."""
        record.epoch = self._journal.append(record.op())

    def open_mobile(self, name: str, phase: int | str, setting: AddressSetting) -> AddressRecord:
        """Return the record of a mobile address; create it if it does not exist. Raises TableFullError.

        If the setting has `fallback`, the primary and the fallback instance exist together, so that a message that
        finds one finds the other.
        """
        record_key = key(MOBILE, name, phase)
        record = self.records.get(record_key)
        if record is not None:
            return record
        if phase == FALLBACK_PHASE or (setting.fallback and phase == 0):
            fallback_key = key(MOBILE, name, FALLBACK_PHASE)
            fallback = self.records.get(fallback_key)
            if fallback is None:
                fallback = self.create(fallback_key, BALANCED, setting.priority, setting.overflow, scope=setting.scope)
            if not setting.fallback:
                return fallback
            primary = self._primary(name, setting, fallback)
            return fallback if phase == FALLBACK_PHASE else primary
        return self.create(record_key, setting.distribution, setting.priority, setting.overflow, scope=setting.scope)

    def _primary(self, name: str, setting: AddressSetting, fallback: AddressRecord) -> AddressRecord:
        """Return the primary instance that uses `fallback`; create it if it does not exist."""
        record_key = key(MOBILE, name, 0)
        primary = self.records.get(record_key)
        if primary is None:
            return self.create(
                record_key, setting.distribution, setting.priority, setting.overflow, fallback, setting.scope
            )
        primary.fallback = fallback
        fallback.primary = primary
        self.announce(primary)
        return primary

    def set_fallback(self, record: AddressRecord, setting: AddressSetting) -> None:
        """Announce a record, after a primary instance has got or lost its fallback instance as `setting` requires."""
        if record.key.startswith(_PRIMARY):
            if setting.fallback and record.fallback is None:
                try:
                    self._join_fallback(record, setting)
                except TableFullError:
                    record.fallback = None  # without a record the fallback cannot be used, as after a failed attach
            elif not setting.fallback and record.fallback is not None:
                self._idle += (record, record.fallback)
                record.fallback.primary = None
                record.fallback = None
        self.announce(record)

    def _join_fallback(self, record: AddressRecord, setting: AddressSetting) -> None:
        """Connect a primary instance with its fallback instance. Raises TableFullError."""
        fallback_key = key(MOBILE, record.key[len(_PRIMARY) :], FALLBACK_PHASE)
        fallback = self.records.get(fallback_key)
        if fallback is None:
            fallback = self.create(fallback_key, BALANCED, setting.priority, setting.overflow, scope=setting.scope)
        record.fallback = fallback
        fallback.primary = record

    @staticmethod
    def has_consumer(record: AddressRecord, worker: int, slot: int, generation: int) -> bool:
        """True if the table has this consumer."""
        return record.consumers is not None and consumer_number(worker, slot, generation) in record.consumers

    def add_consumer(
        self,
        record: AddressRecord,
        worker: int,
        slot: int,
        generation: int,
        capacity: int,
        way: ConsumerEdge = NOT_ON_EDGE,
    ) -> int:
        """Add a new consumer. Returns the epoch that announces it.

        capacity: the consumer's link capacity. way: the edge connection that its link is on.
        """
        first = record.consumers is None
        if record.consumers is None:
            record.consumers = {}
        consumer = consumer_number(worker, slot, generation)
        record.consumers[consumer] = capacity
        if way.edge:
            record.edges = record.edges or {}
            record.edges[consumer] = way
        record.users_epoch = self._journal.append(ConsumerOp(record.id, worker, slot, generation, capacity, *way))
        if first:
            self.local_changed(record)
        for changed in self._users_changed:
            changed(record)
        return record.users_epoch

    def suspend_consumer(self, record: AddressRecord, worker: int, slot: int, generation: int) -> None:
        """Mark the only consumer of a record as one whose peer is lost and awaited."""
        record.suspended = consumer_number(worker, slot, generation)
        for op in record.consumer_ops():
            record.users_epoch = self._journal.append(op)

    def remove_consumer(self, record: AddressRecord, worker: int, slot: int, generation: int) -> None:
        """Remove a consumer. Raises KeyError if it does not exist."""
        consumers = record.consumers
        consumer = consumer_number(worker, slot, generation)
        if consumers is None:
            raise KeyError(consumer)
        del consumers[consumer]
        if record.suspended == consumer:
            record.suspended = None
        if record.edges is not None:
            record.edges.pop(consumer, None)
            record.edges = record.edges or None
        record.users_epoch = self._journal.append(ConsumerGone(record.id, worker, slot, generation))
        if not consumers:
            record.consumers = None
            self._idle.append(record)
            self.local_changed(record)
        for changed in self._users_changed:
            changed(record)

    def add_remote(self, record: AddressRecord, index: int) -> None:
        """Add the router with number `index` to the routers with destinations. Raises TableFullError."""
        counters = self._allocate_id()
        if record.remotes is None:
            record.remotes = {}
        record.remotes[index] = counters
        record.users_epoch = self._journal.append(RemoteOp(record.id, index, counters))
        for changed in self._users_changed:
            changed(record)

    def remove_remote(self, record: AddressRecord, index: int) -> None:
        """Remove the router with number `index` from the routers with destinations. Raises KeyError if it had none."""
        remotes = record.remotes
        if remotes is None:
            raise KeyError(index)
        self._slots.release(remotes.pop(index))
        record.users_epoch = self._journal.append(RemoteGone(record.id, index))
        if not remotes:
            record.remotes = None
            self._idle.append(record)
        for changed in self._users_changed:
            changed(record)

    @staticmethod
    def consumer_workers(record: AddressRecord) -> Iterator[int]:
        """Yield the worker of each consumer, in order of arrival."""
        return (worker_of(consumer) for consumer in record.consumers or ())

    def add_producer(self, record: AddressRecord, *, edge: bool = False) -> None:
        """Count a producer link. edge: it is on an edge connection."""
        record.producers += 1
        record.edge_producers += edge
        for changed in self._users_changed:
            changed(record)

    def remove_producer(self, record: AddressRecord, *, edge: bool = False) -> None:
        """Undo `add_producer`."""
        record.producers -= 1
        record.edge_producers -= edge
        if not record.producers:
            self._idle.append(record)
        for changed in self._users_changed:
            changed(record)

    def hold(self, record: AddressRecord) -> None:
        """Keep the record for a configuration object or an in-process user."""
        record.holders += 1

    def release(self, record: AddressRecord) -> None:
        """Undo `hold`."""
        record.holders -= 1
        if not record.holders:
            self._idle.append(record)

    def before_delta(self) -> None:
        """Remove the records that have become unused, in the delta that announces the end of their last user."""
        if self._idle:
            idle, self._idle = self._idle, []
            for record in idle:
                if record.consumers or record.producers or record.holders or record.remotes:
                    continue
                if record.primary is not None or record.fallback is not None:
                    self._remove_pair_if_unused(record)
                elif self.records.get(record.key) is record:
                    self._remove(record)

    def _remove(self, record: AddressRecord) -> None:
        del self.records[record.key]
        self._journal.append(AddressGone(record.id))
        self._slots.release(record.id)

    def _remove_pair_if_unused(self, record: AddressRecord) -> None:
        """Remove a record with its primary or fallback instance, if both are unused."""
        pair = [member for member in (record.primary, record, record.fallback) if member is not None]
        if self.records.get(record.key) is not record or not all(member.unused() for member in pair):
            return
        for member in pair:
            self._remove(member)

    def snapshot_ops(self) -> Iterator[AddressOp]:
        """Yield the ops of all records. Fallback instances come first, because primary instances refer to them."""
        records: Iterable[AddressRecord] = self.records.values()
        yield from (record.op() for record in records if record.primary is not None)
        yield from (record.op() for record in records if record.primary is None)

    def consumer_ops(self) -> Iterator[Op]:
        """Yield the ops of all local and remote consumers."""
        for record in self.records.values():
            if record.consumers:
                yield from record.consumer_ops()
            if record.remotes:
                yield from record.remote_ops()
