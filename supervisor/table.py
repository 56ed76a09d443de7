"""The address table: records, who uses them, and the changes that workers have to hear of.

No input or output here: events come in as method calls, changes go out as ops (control protocol, "Deltas").
"""
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from router.ipc.control import OP_REMOTE, OP_REMOTE_GONE
from router.routing.address import FALLBACK_PHASE, MOBILE, key, too_long
from router.routing.settings import BALANCED, Setting

Op = list[Any]

FIRST_ID: Final = 1  # 0 stands for "no address" in a link's slot

# A consumer as one number, the key of a record's consumers: worker, link slot, generation of the slot.
_SLOT_BITS: Final = 20
_GENERATION_BITS: Final = 32
_WORKER_SHIFT: Final = _SLOT_BITS + _GENERATION_BITS
_PRIMARY: Final = key(MOBILE, "", 0)

_SLOT_MASK: Final = (1 << _SLOT_BITS) - 1
_GENERATION_MASK: Final = (1 << _GENERATION_BITS) - 1


class TableFullError(Exception):
    """There is no id left for another address record."""


class AddressTooLongError(TableFullError):
    """There is room for another address record, but not for one with this key."""


class Record:
    """An address: how it is treated and who uses it. Owner: the table."""

    __slots__ = (
        "consumers",
        "epoch",
        "exchange",
        "fallback",
        "fixed",
        "hint",
        "holders",
        "id",
        "inproc",
        "key",
        "overflow",
        "primary",
        "priority",
        "producers",
        "rejects",
        "remotes",
        "treatment",
    )

    def __init__(self, number: int, record_key: str, treatment: str, priority: int | None, overflow: str) -> None:
        self.id = number
        self.key = record_key
        self.treatment = treatment
        self.priority = priority
        self.overflow = overflow
        self.inproc = False
        self.rejects = False  # what comes for the router itself: an endpoint for tests
        self.fixed = False  # treated as it was created, whatever the settings say
        self.hint: str | None = None  # treatment that another router told, in force where no setting says another
        self.exchange: int | None = None
        self.fallback: Record | None = None  # the fallback instance, of a primary one
        self.primary: Record | None = None  # the primary instance, of a fallback one
        self.consumers: dict[int, int] | None = None  # capacity by consumer, in order of arrival
        self.remotes: dict[int, int] | None = None  # id of counters by index of a router that has destinations
        self.producers = 0  # links
        self.holders = 0  # configuration objects and in-process users
        self.epoch = 0  # that announced it as it is now

    def unused(self) -> bool:
        return not self.consumers and not self.producers and not self.holders and not self.remotes

    @property
    def local(self) -> bool:
        """Whether messages to it have somewhere to go here; in-process users do not count."""
        return bool(self.consumers) or self.exchange is not None

    def op(self) -> Op:
        """The op that announces this record."""
        attributes = {
            "treatment": self.treatment,
            "priority": self.priority,
            "fallback": None if self.fallback is None else self.fallback.id,
            "overflow": self.overflow,
            "inproc": self.inproc,
            "exchange": self.exchange,
        }
        if self.rejects:
            attributes["rejects"] = True
        return ["addr", self.id, self.key, attributes]

    def consumer_ops(self) -> Iterator[Op]:
        """The ops that announce its consumers, in order of arrival."""
        for consumer, capacity in (self.consumers or {}).items():
            slot = consumer >> _GENERATION_BITS & _SLOT_MASK
            yield ["+c", self.id, consumer >> _WORKER_SHIFT, slot, consumer & _GENERATION_MASK, capacity]

    def remote_ops(self) -> Iterator[Op]:
        """The ops that announce the routers that have destinations."""
        for index, counters in (self.remotes or {}).items():
            yield [OP_REMOTE, self.id, index, counters]


def _consumer(worker: int, slot: int, generation: int) -> int:
    return worker << _WORKER_SHIFT | slot << _GENERATION_BITS | generation


class Table:
    """All address records, and the changes since the last delta. Owner: supervisor."""

    __slots__ = ("_free", "_idle", "_limit", "_next", "_ops", "_retiring", "epoch", "local_changed", "records")

    def __init__(self, limit: int) -> None:
        """`limit`: number of counter slots in shared memory, ids are below it."""
        self.records: dict[str, Record] = {}
        self.epoch = 0  # of the last delta
        self._limit = limit
        self._next = FIRST_ID
        self._free: list[int] = []
        self._retiring: deque[tuple[int, int]] = deque()  # epoch of the removal, id
        self._ops: list[Op] = []
        self._idle: list[Record] = []  # may have lost their last user since the last delta
        # Called when `local` of a record may have changed; the network of routers hears of it.
        self.local_changed: Callable[[Record], None] = _nothing

    @property
    def ids_used(self) -> int:
        """Number of ids that some record has ever had."""
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
        """The epoch that everything changed so far is, or will be, part of."""
        return self.epoch + 1 if self._ops else self.epoch

    def create(
        self, record_key: str, treatment: str, priority: int | None, overflow: str, fallback: Record | None = None
    ) -> Record:
        """Make a record. The key must not be in the table. Raises TableFullError."""
        if too_long(record_key):
            raise AddressTooLongError
        record = Record(self.take_id(), record_key, treatment, priority, overflow)
        self.records[record_key] = record
        self._idle.append(record)  # in case that nobody uses it after all
        if fallback is not None:
            record.fallback = fallback
            fallback.primary = record
        self.announce(record)
        return record

    def take_id(self) -> int:
        """An id, for a record or for the counters alone that go with it. Raises TableFullError."""
        if self._free:
            return self._free.pop()
        if self._next < self._limit:
            self._next += 1
            return self._next - 1
        raise TableFullError

    def give_id_back(self, number: int) -> None:
        """The id is used no more, from the next delta on; that has to tell the workers so."""
        self._retiring.append((self.epoch + 1, number))

    def announce(self, record: Record) -> None:
        """Tell the workers what the record is now."""
        record.epoch = self.epoch + 1
        self._ops.append(record.op())

    def open_mobile(self, name: str, phase: int | str, setting: Setting) -> Record:
        """The record of a mobile address, made if it is not there. Raises TableFullError.

        With `fallback` set the primary and the fallback instance live and die together, so that a message that
        finds the one finds the other.
        """
        record_key = key(MOBILE, name, phase)
        record = self.records.get(record_key)
        if record is not None:
            return record
        if phase == FALLBACK_PHASE or (setting.fallback and phase == 0):
            fallback_key = key(MOBILE, name, FALLBACK_PHASE)
            fallback = self.records.get(fallback_key)
            if fallback is None:
                fallback = self.create(fallback_key, BALANCED, setting.priority, setting.overflow)
            if not setting.fallback:
                return fallback
            primary = self._primary(name, setting, fallback)
            return fallback if phase == FALLBACK_PHASE else primary
        return self.create(record_key, setting.distribution, setting.priority, setting.overflow)

    def _primary(self, name: str, setting: Setting, fallback: Record) -> Record:
        """The primary instance that uses `fallback`, made if it is not there."""
        record_key = key(MOBILE, name, 0)
        primary = self.records.get(record_key)
        if primary is None:
            return self.create(record_key, setting.distribution, setting.priority, setting.overflow, fallback)
        primary.fallback = fallback
        fallback.primary = primary
        self.announce(primary)
        return primary

    def set_fallback(self, record: Record, setting: Setting) -> None:
        """Announce a record, a primary one with or without its fallback instance as `setting` says."""
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
            fallback = self.create(fallback_key, BALANCED, setting.priority, setting.overflow)
        record.fallback = fallback
        fallback.primary = record

    @staticmethod
    def has_consumer(record: Record, worker: int, slot: int, generation: int) -> bool:
        """Whether this consumer is there."""
        return record.consumers is not None and _consumer(worker, slot, generation) in record.consumers

    def add_consumer(self, record: Record, worker: int, slot: int, generation: int, capacity: int) -> int:
        """Add a consumer that is not there yet; returns the epoch that announces it."""
        first = record.consumers is None
        if record.consumers is None:
            record.consumers = {}
        record.consumers[_consumer(worker, slot, generation)] = capacity
        self._ops.append(["+c", record.id, worker, slot, generation, capacity])
        if first:
            self.local_changed(record)
        return self.epoch + 1

    def remove_consumer(self, record: Record, worker: int, slot: int, generation: int) -> None:
        """Remove a consumer. Raises KeyError when it is not there."""
        consumers = record.consumers
        consumer = _consumer(worker, slot, generation)
        if consumers is None:
            raise KeyError(consumer)
        del consumers[consumer]
        self._ops.append(["-c", record.id, worker, slot, generation])
        if not consumers:
            record.consumers = None
            self._idle.append(record)
            self.local_changed(record)

    def add_remote(self, record: Record, index: int) -> None:
        """A router that is not known to have destinations has some. Raises TableFullError."""
        counters = self.take_id()
        if record.remotes is None:
            record.remotes = {}
        record.remotes[index] = counters
        self._ops.append([OP_REMOTE, record.id, index, counters])

    def remove_remote(self, record: Record, index: int) -> None:
        """It has none any more. Raises KeyError when it had none."""
        remotes = record.remotes
        if remotes is None:
            raise KeyError(index)
        self.give_id_back(remotes.pop(index))
        self._ops.append([OP_REMOTE_GONE, record.id, index])
        if not remotes:
            record.remotes = None
            self._idle.append(record)

    @staticmethod
    def consumer_workers(record: Record) -> Iterator[int]:
        """The worker of each consumer, in order of arrival."""
        return (consumer >> _WORKER_SHIFT for consumer in record.consumers or ())

    def add_producer(self, record: Record) -> None:
        record.producers += 1

    def remove_producer(self, record: Record) -> None:
        record.producers -= 1
        if not record.producers:
            self._idle.append(record)

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

        Records that nobody uses any more go with it, behind all other changes.
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
            self._ops.append(["-addr", member.id])
            self.give_id_back(member.id)

    def reclaim(self, settled: int, reset: Callable[[int], None]) -> None:
        """Make the ids of records usable again whose removal all workers know: epochs up to `settled`.

        `reset` is called with each id before it can be used again.
        """
        while self._retiring and self._retiring[0][0] <= settled:
            number = self._retiring.popleft()[1]
            reset(number)
            self._free.append(number)

    def address_ops(self) -> Iterator[Op]:
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


def _nothing(record: Record) -> None:
    """In the place of a callback where nobody is to hear of it."""
