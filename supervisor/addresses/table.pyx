"""Address table of the supervisor: records, their consumers and producers. No input or output here.

Compiled with the records and the journal: each attach and each end of a link changes them.
"""
from libc.stdint cimport int64_t

from sluice.supervisor.addresses.record cimport AddressRecord, number_of
from sluice.supervisor.journal.journal cimport Journal

from sluice.router.addressing.address import FALLBACK_PHASE, MOBILE, key, too_long
from sluice.router.addressing.settings import BALANCED, NETWORK
from sluice.router.control.ops import AddressGone, ConsumerGone, ConsumerOp, RemoteGone, RemoteOp
from sluice.supervisor.addresses.consumer_edge import NOT_ON_EDGE
from sluice.supervisor.addresses.record import worker_of
from sluice.supervisor.addresses.tap_patterns import TapPatterns
from sluice.supervisor.subsystem import Subsystem

cdef str PRIMARY = key(MOBILE, "", 0)


class TableFullError(Exception):
    """Raised when no counter slot is left for another address record."""


class AddressTooLongError(TableFullError):
    """Raised when the key of a new address record is too long."""


cdef class AddressRecords:
    """Address records; the journal announces their changes to the workers. Base class of the address table."""
    cdef readonly dict records         # by key
    cdef readonly object taps
    cdef Journal journal
    cdef object slots                  # CounterSlots
    cdef list idle                     # records that may have lost their last user since the last delta
    cdef list local_watchers
    cdef list user_watchers

    def __init__(self, Journal journal not None, slots):
        self.records = {}
        self.taps = TapPatterns()
        self.journal = journal
        self.slots = slots
        self.idle = []
        self.local_watchers = []
        self.user_watchers = []

    def watch_local(self, changed):
        """Call `changed` whenever `local` of a record may have changed."""
        self.local_watchers.append(changed)

    def watch_users(self, changed):
        """Call `changed` whenever local or remote consumers or producers of a record were added or removed."""
        self.user_watchers.append(changed)

    def notify_scope_changed(self, AddressRecord record not None):
        """Notify the watchers of users: other routers may have to announce or withdraw the address."""
        for changed in self.user_watchers:
            changed(record)

    def local_changed(self, AddressRecord record not None):
        """Notify the watchers of `local` that it may have changed for this record."""
        for changed in self.local_watchers:
            changed(record)

    def create(
        self, str record_key not None, str treatment, priority, str overflow, AddressRecord fallback=None,
        str scope=NETWORK,
    ):
        """Create a record. The key must not be in the table. Raises TableFullError."""
        cdef AddressRecord record
        if too_long(record_key):
            raise AddressTooLongError
        record = AddressRecord(self.allocate_id(), record_key, treatment, priority, overflow)
        record.scope = scope
        record.taps = self.taps.matching(record_key)
        self.records[record_key] = record
        self.idle.append(record)  # before_delta removes the record if it has no user by then
        if fallback is not None:
            record.fallback = fallback
            fallback.primary = record
        self.announce(record)
        return record

    cdef int allocate_id(self) except -1:
        number = self.slots.allocate()
        if number is None:
            raise TableFullError
        return number

    cpdef int announce(self, AddressRecord record) except -1:
        """Announce the present state of the record to the workers."""
        record.epoch = self.journal.append(record.op())
        return 0

    def open_mobile(self, str name, phase, setting):
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
            primary = self.primary_of(name, setting, fallback)
            return fallback if phase == FALLBACK_PHASE else primary
        return self.create(record_key, setting.distribution, setting.priority, setting.overflow, scope=setting.scope)

    cdef AddressRecord primary_of(self, str name, setting, AddressRecord fallback):
        """Return the primary instance that uses `fallback`; create it if it does not exist."""
        cdef AddressRecord primary
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

    def set_fallback(self, AddressRecord record not None, setting):
        """Announce a record, after a primary instance has got or lost its fallback instance as `setting` requires."""
        if record.key.startswith(PRIMARY):
            if setting.fallback and record.fallback is None:
                try:
                    self.join_fallback(record, setting)
                except TableFullError:
                    record.fallback = None  # without a record the fallback cannot be used, as after a failed attach
            elif not setting.fallback and record.fallback is not None:
                self.idle += (record, record.fallback)
                record.fallback.primary = None
                record.fallback = None
        self.announce(record)

    cdef int join_fallback(self, AddressRecord record, setting) except -1:
        """Connect a primary instance with its fallback instance. Raises TableFullError."""
        cdef AddressRecord fallback
        fallback_key = key(MOBILE, record.key[len(PRIMARY) :], FALLBACK_PHASE)
        fallback = self.records.get(fallback_key)
        if fallback is None:
            fallback = self.create(fallback_key, BALANCED, setting.priority, setting.overflow, scope=setting.scope)
        record.fallback = fallback
        fallback.primary = record
        return 0

    @staticmethod
    def has_consumer(AddressRecord record not None, int64_t worker, int64_t slot, int64_t generation):
        """True if the table has this consumer."""
        return record.consumers is not None and number_of(worker, slot, generation) in record.consumers

    def add_consumer(
        self, AddressRecord record not None, worker, slot, generation, capacity, way=NOT_ON_EDGE,
    ):
        """Add a new consumer. Returns the epoch that announces it.

        capacity: the consumer's link capacity. way: the edge connection that its link is on.
        """
        cdef bint first = record.consumers is None
        if record.consumers is None:
            record.consumers = {}
        consumer = number_of(worker, slot, generation)
        record.consumers[consumer] = capacity
        if way is not NOT_ON_EDGE and way.edge:
            record.edges = record.edges or {}
            record.edges[consumer] = way
        if way is NOT_ON_EDGE:
            op = ConsumerOp(record.id, worker, slot, generation, capacity)
        else:
            op = ConsumerOp(record.id, worker, slot, generation, capacity, *way)
        record.users_epoch = self.journal.append(op)
        if first:
            self.local_changed(record)
        for changed in self.user_watchers:
            changed(record)
        return record.users_epoch

    def suspend_consumer(self, AddressRecord record not None, int64_t worker, int64_t slot, int64_t generation):
        """Mark the only consumer of a record as one whose peer is lost and awaited."""
        record.suspended = number_of(worker, slot, generation)
        for op in record.consumer_ops():
            record.users_epoch = self.journal.append(op)

    def remove_consumer(self, AddressRecord record not None, worker, slot, generation):
        """Remove a consumer. Raises KeyError if it does not exist."""
        cdef dict consumers = record.consumers
        consumer = number_of(worker, slot, generation)
        if consumers is None:
            raise KeyError(consumer)
        del consumers[consumer]
        if record.suspended is not None and record.suspended == consumer:
            record.suspended = None
        if record.edges is not None:
            record.edges.pop(consumer, None)
            record.edges = record.edges or None
        record.users_epoch = self.journal.append(ConsumerGone(record.id, worker, slot, generation))
        if not consumers:
            record.consumers = None
            self.idle.append(record)
            self.local_changed(record)
        for changed in self.user_watchers:
            changed(record)

    def add_remote(self, AddressRecord record not None, index):
        """Add the router with number `index` to the routers with destinations. Raises TableFullError."""
        counters = self.allocate_id()
        if record.remotes is None:
            record.remotes = {}
        record.remotes[index] = counters
        record.users_epoch = self.journal.append(RemoteOp(record.id, index, counters))
        for changed in self.user_watchers:
            changed(record)

    def remove_remote(self, AddressRecord record not None, index):
        """Remove the router with number `index` from the routers with destinations. Raises KeyError if it had none."""
        remotes = record.remotes
        if remotes is None:
            raise KeyError(index)
        self.slots.release(remotes.pop(index))
        record.users_epoch = self.journal.append(RemoteGone(record.id, index))
        if not remotes:
            record.remotes = None
            self.idle.append(record)
        for changed in self.user_watchers:
            changed(record)

    @staticmethod
    def consumer_workers(AddressRecord record not None):
        """Yield the worker of each consumer, in order of arrival."""
        return (worker_of(consumer) for consumer in record.consumers or ())

    def add_producer(self, AddressRecord record not None, *, bint edge=False):
        """Count a producer link. edge: it is on an edge connection."""
        record.producers += 1
        record.edge_producers += edge
        for changed in self.user_watchers:
            changed(record)

    def remove_producer(self, AddressRecord record not None, *, bint edge=False):
        """Undo `add_producer`."""
        record.producers -= 1
        record.edge_producers -= edge
        if not record.producers:
            self.idle.append(record)
        for changed in self.user_watchers:
            changed(record)

    def hold(self, AddressRecord record not None):
        """Keep the record for a configuration object or an in-process user."""
        record.holders += 1

    def release(self, AddressRecord record not None):
        """Undo `hold`."""
        record.holders -= 1
        if not record.holders:
            self.idle.append(record)

    def before_delta(self):
        """Remove the records that have become unused, in the delta that announces the end of their last user."""
        cdef AddressRecord record
        if self.idle:
            idle, self.idle = self.idle, []
            for record in idle:
                if record.consumers or record.producers or record.holders or record.remotes:
                    continue
                if record.primary is not None or record.fallback is not None:
                    self.remove_pair_if_unused(record)
                elif self.records.get(record.key) is record:
                    self.remove(record)

    cdef int remove(self, AddressRecord record) except -1:
        """Remove an unused record."""
        del self.records[record.key]
        self.journal.append(AddressGone(record.id))
        self.slots.release(record.id)
        return 0

    cdef int remove_pair_if_unused(self, AddressRecord record) except -1:
        """Remove a record with its primary or fallback instance, if both are unused."""
        pair = [member for member in (record.primary, record, record.fallback) if member is not None]
        if self.records.get(record.key) is not record or not all([member.unused() for member in pair]):
            return 0
        for member in pair:
            self.remove(member)
        return 0

    def snapshot_ops(self):
        """Yield the ops of all records. Fallback instances come first, because primary instances refer to them."""
        for has_primary in (True, False):
            for record in self.records.values():
                if (record.primary is not None) is has_primary:
                    yield record.op()

    def consumer_ops(self):
        """Yield the ops of all local and remote consumers."""
        for record in self.records.values():
            if record.consumers:
                yield from record.consumer_ops()
            if record.remotes:
                yield from record.remote_ops()


class AddressTable(AddressRecords, Subsystem):
    """Address records as a subsystem. Owner: the core."""

    __slots__ = ()
