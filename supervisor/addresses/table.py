"""The address table: records, their users, and the changes for workers.

No input or output here: events come in as method calls, changes go out as ops (control protocol, "Deltas").
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from router.addressing.address import FALLBACK_PHASE, MOBILE, key, too_long
from router.addressing.settings import BALANCED, NETWORK, Setting
from router.control.ops import AddressGone, AddressOp, ConsumerGone, ConsumerOp, Op, RemoteGone, RemoteOp
from supervisor.addresses.record import HERE, Record, Way, consumer_number, worker_of
from supervisor.subsystem import Subsystem

FIRST_ID: Final = 1  # 0 stands for "no address" in a link's slot

_PRIMARY: Final = key(MOBILE, "", 0)


class TableFullError(Exception):
    """There is no id left for another address record."""


class AddressTooLongError(TableFullError):
    """There is room for another address record, but not with this key."""


class Table(Subsystem):
    """All address records, and the changes since the last delta. Owner: the core."""

    __slots__ = (
        "_free", "_idle", "_limit", "_local_changed", "_next", "_ops", "_retiring", "_users_changed", "epoch",
        "records",
    )  # fmt: skip

    def __init__(self, limit: int) -> None:
        """`limit`: number of counter slots in shared memory, ids are below it."""
        self.records: dict[str, Record] = {}
        self.epoch = 0  # of the last delta
        self._limit = limit
        self._next = FIRST_ID
        self._free: list[int] = []
        self._retiring: deque[tuple[int, int]] = deque()  # epoch of the removal, id
        self._ops: list[Op] = []
        self._idle: list[Record] = []  # perhaps without users since the last delta
        self._local_changed: list[Callable[[Record], None]] = []
        self._users_changed: list[Callable[[Record], None]] = []

    @property
    def ids_used(self) -> int:
        """Number of ids ever used."""
        return self._next - FIRST_ID

    @property
    def next_epoch(self) -> int:
        """The epoch that will announce what changes now."""
        return self.epoch + 1

    @property
    def ids(self) -> int:
        """All ids ever used are below this one."""
        return self._next

    @property
    def limit(self) -> int:
        """Ids are below this one."""
        return self._limit

    def change(self, op: Op) -> int:
        """Add an op about something that is not an address to the next delta; returns its epoch."""
        self._ops.append(op)
        return self.epoch + 1

    @property
    def pending_epoch(self) -> int:
        """The epoch that contains, or will contain, all changes so far."""
        return self.epoch + 1 if self._ops else self.epoch

    def watch_local(self, changed: Callable[[Record], None]) -> None:
        """Call `changed` when `local` of a record may have changed."""
        self._local_changed.append(changed)

    def watch_users(self, changed: Callable[[Record], None]) -> None:
        """Call `changed` when consumers or producers of a record have come or gone, here or at other routers."""
        self._users_changed.append(changed)

    def _user_changed(self, record: Record) -> None:
        for changed in self._users_changed:
            changed(record)

    def scope_changed(self, record: Record) -> None:
        """It is known elsewhere now, or not any more."""
        self._user_changed(record)

    def local_changed(self, record: Record) -> None:
        """Call the watchers: `local` of a record may have changed."""
        for changed in self._local_changed:
            changed(record)

    def create(
        self,
        record_key: str,
        treatment: str,
        priority: int | None,
        overflow: str,
        fallback: Record | None = None,
        scope: str = NETWORK,
    ) -> Record:
        """Make a record. The key must not be in the table. Raises TableFullError."""
        if too_long(record_key):
            raise AddressTooLongError
        record = Record(self.take_id(), record_key, treatment, priority, overflow)
        record.scope = scope
        self.records[record_key] = record
        self._idle.append(record)  # in case it gets no user
        if fallback is not None:
            record.fallback = fallback
            fallback.primary = record
        self.announce(record)
        return record

    def take_id(self) -> int:
        """An id, for a record or for counters alone. Raises TableFullError."""
        if self._free:
            return self._free.pop()
        if self._next < self._limit:
            self._next += 1
            return self._next - 1
        raise TableFullError

    def give_id_back(self, number: int) -> None:
        """The id becomes free with the next delta, which must announce that."""
        self._retiring.append((self.epoch + 1, number))

    def announce(self, record: Record) -> None:
        """Announce the present state of the record to the workers."""
        record.epoch = self.epoch + 1
        self._ops.append(record.op())

    def open_mobile(self, name: str, phase: int | str, setting: Setting) -> Record:
        """The record of a mobile address, made if it is not there. Raises TableFullError.

        With `fallback` the primary and the fallback instance exist together: a message that finds one finds the other.
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

    def _primary(self, name: str, setting: Setting, fallback: Record) -> Record:
        """The primary instance that uses `fallback`, made if it is not there."""
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

    def set_fallback(self, record: Record, setting: Setting) -> None:
        """Announce a record; `setting` decides whether a primary one has its fallback instance."""
        if record.key.startswith(_PRIMARY):
            if setting.fallback and record.fallback is None:
                try:
                    self._begin_fallback(record, setting)
                except TableFullError:
                    record.fallback = None  # as for an attach: what has no record cannot be used
            elif not setting.fallback and record.fallback is not None:
                self._idle += (record, record.fallback)
                record.fallback.primary = None
                record.fallback = None
        self.announce(record)

    def _begin_fallback(self, record: Record, setting: Setting) -> None:
        fallback_key = key(MOBILE, record.key[len(_PRIMARY) :], FALLBACK_PHASE)
        fallback = self.records.get(fallback_key)
        if fallback is None:
            fallback = self.create(fallback_key, BALANCED, setting.priority, setting.overflow, scope=setting.scope)
        record.fallback = fallback
        fallback.primary = record

    @staticmethod
    def has_consumer(record: Record, worker: int, slot: int, generation: int) -> bool:
        """Whether this consumer is there."""
        return record.consumers is not None and consumer_number(worker, slot, generation) in record.consumers

    def add_consumer(
        self, record: Record, worker: int, slot: int, generation: int, capacity: int, way: Way = HERE
    ) -> int:
        """Add a new consumer; returns the epoch that announces it. way: the edge connection that it is on."""
        first = record.consumers is None
        if record.consumers is None:
            record.consumers = {}
        consumer = consumer_number(worker, slot, generation)
        record.consumers[consumer] = capacity
        if way.edge:
            record.edges = record.edges or {}
            record.edges[consumer] = way
        self._ops.append(ConsumerOp(record.id, worker, slot, generation, capacity, *way))
        record.users_epoch = self.epoch + 1
        if first:
            self.local_changed(record)
        self._user_changed(record)
        return self.epoch + 1

    def remove_consumer(self, record: Record, worker: int, slot: int, generation: int) -> None:
        """Remove a consumer. Raises KeyError when it is not there."""
        consumers = record.consumers
        consumer = consumer_number(worker, slot, generation)
        if consumers is None:
            raise KeyError(consumer)
        del consumers[consumer]
        if record.edges is not None:
            record.edges.pop(consumer, None)
            record.edges = record.edges or None
        self._ops.append(ConsumerGone(record.id, worker, slot, generation))
        record.users_epoch = self.epoch + 1
        if not consumers:
            record.consumers = None
            self._idle.append(record)
            self.local_changed(record)
        self._user_changed(record)

    def add_remote(self, record: Record, index: int) -> None:
        """Another router has destinations for the record now. Raises TableFullError."""
        counters = self.take_id()
        if record.remotes is None:
            record.remotes = {}
        record.remotes[index] = counters
        self._ops.append(RemoteOp(record.id, index, counters))
        record.users_epoch = self.epoch + 1
        self._user_changed(record)

    def remove_remote(self, record: Record, index: int) -> None:
        """That router has no destinations any more. Raises KeyError when it had none."""
        remotes = record.remotes
        if remotes is None:
            raise KeyError(index)
        self.give_id_back(remotes.pop(index))
        self._ops.append(RemoteGone(record.id, index))
        record.users_epoch = self.epoch + 1
        if not remotes:
            record.remotes = None
            self._idle.append(record)
        self._user_changed(record)

    @staticmethod
    def consumer_workers(record: Record) -> Iterator[int]:
        """The worker of each consumer, in order of arrival."""
        return (worker_of(consumer) for consumer in record.consumers or ())

    def add_producer(self, record: Record, *, edge: bool = False) -> None:
        """edge: it is on an edge connection."""
        record.producers += 1
        record.edge_producers += edge
        self._user_changed(record)

    def remove_producer(self, record: Record, *, edge: bool = False) -> None:
        """The counterpart of add_producer."""
        record.producers -= 1
        record.edge_producers -= edge
        if not record.producers:
            self._idle.append(record)
        self._user_changed(record)

    def hold(self, record: Record) -> None:
        """A configuration object or in-process user keeps the record."""
        record.holders += 1

    def release(self, record: Record) -> None:
        """The counterpart of hold."""
        record.holders -= 1
        if not record.holders:
            self._idle.append(record)

    def take_delta(self) -> tuple[int, list[Op]] | None:
        """The changes since the last delta with their epoch, or None when there are none.

        It also removes unused records, after all other changes.
        """
        if self._idle:
            idle, self._idle = self._idle, []
            for record in idle:
                self._remove_if_unused(record)
        if not self._ops:
            return None
        self.epoch += 1
        ops, self._ops = self._ops, []
        return self.epoch, ops

    def _remove_if_unused(self, record: Record) -> None:
        """Remove a record, with the other one of its pair, if both are unused."""
        pair = [member for member in (record.primary, record, record.fallback) if member is not None]
        if self.records.get(record.key) is not record or not all(member.unused() for member in pair):
            return
        for member in pair:
            del self.records[member.key]
            self._ops.append(AddressGone(member.id))
            self.give_id_back(member.id)

    def reclaim(self, settled: int, reset: Callable[[int], None]) -> None:
        """Free the ids of removed records; all workers have acknowledged the epochs up to `settled`.

        `reset` is called with each id before it can be used again.
        """
        while self._retiring and self._retiring[0][0] <= settled:
            number = self._retiring.popleft()[1]
            reset(number)
            self._free.append(number)

    def snapshot_ops(self) -> Iterator[AddressOp]:
        """All records as ops, fallback instances first: the records that name them come later."""
        records: Iterable[Record] = self.records.values()
        yield from (record.op() for record in records if record.primary is not None)
        yield from (record.op() for record in records if record.primary is None)

    def consumer_ops(self) -> Iterator[Op]:
        """All consumers, here and at other routers, as ops."""
        for record in self.records.values():
            if record.consumers:
                yield from record.consumer_ops()
            if record.remotes:
                yield from record.remote_ops()
