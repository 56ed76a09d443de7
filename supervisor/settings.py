"""Address settings at run time: what is in force, and the changes that are on their way to records and workers.

A change is in force for the supervisor's decisions at once. Address records that exist get their new treatment, and the
workers hear of both, in epochs of at most OPS_AN_EPOCH ops, each after all have acknowledged the one before: a worker
applies them between two wakes, and clients must not feel the pause. A pattern and its addresses change in the same
epoch unless there are more of them. No input or output here.
"""
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

from router.ipc.control import OP_DEFAULT, OP_SETTING, OP_SETTINGS
from router.routing.address import FALLBACK_PHASE, MOBILE
from router.routing.settings import BALANCED, AddressSettings, Setting, setting_from
from supervisor.epochs import Epochs
from supervisor.table import Op, Record, Table

Attributes = Mapping[str, Any]  # of a pattern, as in the `settings` op

# Measured with 1,000 changed patterns (loadtests/reload.py): a worker is busy for 0.3 ms with an epoch of this many.
OPS_AN_EPOCH: Final = 100
# Records looked at in one turn of the supervisor; 3 to 5 microseconds each.
RECORDS_A_TURN: Final = 250


class Settings:
    """The address settings of the router. Owner: supervisor."""

    def __init__(self, table: Table, entries: Mapping[str, Attributes], default: str) -> None:
        """entries: attributes by canonical pattern."""
        self.current: Final = AddressSettings(entries.items(), default)
        self._table = table
        self._entries: dict[str, Attributes] = dict(entries)
        self._changed: dict[str, None] = {}  # patterns that the workers have to hear of, in order
        self._default_changed = False
        self._begins = False  # to look for records that changes concern
        self._scan: Iterator[Record] | None = None
        self._found: list[tuple[Setting, Record]] = []  # records that are treated otherwise than they should be
        self._waiting: deque[list[Record | Op | str]] = deque()  # to be announced, in groups that belong together
        self._sent = 0  # epoch of the last part

    def op(self) -> Op:
        """All settings, for a snapshot."""
        return [OP_SETTINGS, list(self._entries.items()), self.current.default.distribution]

    def attributes(self, pattern: str) -> Attributes | None:
        """What is said about a canonical pattern, or None."""
        return self._entries.get(pattern)

    def put(self, pattern: str, attributes: Attributes) -> None:
        """Add a pattern, or change what is said about it. The pattern is canonical."""
        if self._entries.get(pattern) != attributes:
            self._entries[pattern] = attributes
            self.current.put(pattern, setting_from(attributes))
            self._begin([pattern])

    def drop(self, pattern: str) -> None:
        """Remove a pattern that is there."""
        del self._entries[pattern]
        self.current.drop(pattern)
        self._begin([pattern])

    def set_default(self, distribution: str) -> None:
        """Change what applies to addresses that no pattern matches."""
        if distribution != self.current.default.distribution:
            self.current.set_default(distribution)
            self._default_changed = True
            self._begin([])

    def replace(self, entries: Mapping[str, Attributes], prepared: AddressSettings) -> None:
        """Change everything at once. prepared: the same entries, and the default, ready to be looked up."""
        before = self._entries
        changed = [pattern for pattern, attributes in entries.items() if before.get(pattern) != attributes]
        changed += [pattern for pattern in before if pattern not in entries]
        self._default_changed |= prepared.default.distribution != self.current.default.distribution
        if changed or self._default_changed:
            self._entries = dict(entries)
            self.current.become(prepared)
            self._begin(changed)

    def _begin(self, changed: list[str]) -> None:
        """Something has changed: look, from the beginning, for records that it concerns."""
        self._changed.update(dict.fromkeys(changed))
        self._begins = True
        self._waiting.clear()
        self._found = []

    # Bringing changes to records and workers

    def waiting(self, epochs: "Epochs[Any]") -> bool:
        """Whether `step` has something to do now."""
        return self._begins or self._scan is not None or self._may_send(epochs)

    @property
    def settled(self) -> bool:
        """Whether all changes are on their way."""
        return not self._begins and self._scan is None and not self._waiting

    def _may_send(self, epochs: "Epochs[Any]") -> bool:
        """Whether there is something to send, and all workers have what was sent before."""
        return bool(self._waiting) and epochs.settled(self._table.epoch) >= self._sent

    def step(self, epochs: "Epochs[Any]") -> None:
        """Go on, for about a millisecond. Call it in each wake, and again when others have had their turn."""
        if self._begins:
            self._begins = False
            self._scan = iter(list(self._table.records.values()))
        if self._scan is not None:
            self._look(self._scan)
        if self._scan is None and self._may_send(epochs):
            self._announce_some()

    def _look(self, scan: Iterator[Record]) -> None:
        for _ in range(RECORDS_A_TURN):
            record = next(scan, None)
            if record is None:
                self._scan = None
                self._group()
                return
            setting = self._setting(record)
            if setting is not None and not _as_set(record, setting):
                self._found.append((setting, record))

    def _setting(self, record: Record) -> Setting | None:
        """What is said about the address of a record; None where that does not matter."""
        if record.fixed or record.inproc:
            return None
        return self.current.lookup(record.key[2:]) if record.key[0] == MOBILE else self.current.default

    def _group(self) -> None:
        """Put what is to be announced into an order: each changed pattern with its addresses."""
        changed = {id(self.current.get(pattern)): pattern for pattern in self._changed if pattern in self._entries}
        groups: dict[str, list[Record | Op | str]] = {pattern: [pattern] for pattern in changed.values()}
        rest: list[Record | Op | str] = [pattern for pattern in self._changed if pattern not in self._entries]
        if self._default_changed:
            rest.append([OP_DEFAULT, self.current.default.distribution])
            self._default_changed = False
        for setting, record in self._found:
            groups.get(changed.get(id(setting), ""), rest).append(record)
        self._found = []
        self._waiting = deque(group for group in (rest, *groups.values()) if group)

    def _announce_some(self) -> None:
        count = 0
        while self._waiting and (not count or count + len(self._waiting[0]) <= OPS_AN_EPOCH):
            group = self._waiting[0]
            for item in group[:OPS_AN_EPOCH]:
                self._announce(item)
            count += len(group[:OPS_AN_EPOCH])
            del group[:OPS_AN_EPOCH]
            if not group:
                self._waiting.popleft()
        self._sent = self._table.next_epoch

    def _announce(self, item: Record | Op | str) -> None:
        if isinstance(item, str):
            del self._changed[item]
            self._table.change([OP_SETTING, item, self._entries.get(item)])
        elif isinstance(item, list):
            self._table.change(item)
        elif self._table.records.get(item.key) is item and (setting := self._setting(item)) is not None:
            self._treat(item, setting)

    def _treat(self, record: Record, setting: Setting) -> None:
        """Make a record what its setting says."""
        record.treatment = _treatment(record, setting)
        record.priority, record.overflow = setting.priority, setting.overflow
        self._table.set_fallback(record, setting)


def _treatment(record: Record, setting: Setting) -> str:
    fallback = record.key[0] == MOBILE and record.key[1] == FALLBACK_PHASE
    return BALANCED if fallback else setting.distribution


def _as_set(record: Record, setting: Setting) -> bool:
    """Whether a record is what its setting says."""
    same = record.treatment == _treatment(record, setting)
    same = same and record.priority == setting.priority and record.overflow == setting.overflow
    return same and (record.key[:2] != "M0" or setting.fallback is (record.fallback is not None))
