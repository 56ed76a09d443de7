"""Address settings at run time: what is in force, and the changes that are on their way to records and workers.

A change is in force for the supervisor's decisions at once. Address records that exist get their new treatment, and the
workers hear of both, in epochs of at most OPS_AN_EPOCH ops, each after all have acknowledged the one before: a worker
applies them between two wakes, and clients must not feel the pause. A pattern and its addresses change in the same
epoch unless there are more of them.

This goes in rounds: a look through all records for those that the changes concern, then the epochs. A round that is
under way goes on whatever changes meanwhile; a further one follows for that. So changes that never stop cannot keep
each other from being announced. No input or output here.
"""
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from router.ipc.control import OP_DEFAULT, OP_SETTING, OP_SETTINGS
from router.routing.address import FALLBACK_PHASE, MOBILE
from router.routing.settings import BALANCED, AddressSettings, Setting, setting_from
from supervisor.epochs import Epochs
from supervisor.table import Op, Record, Table

Attributes = Mapping[str, Any]  # of a pattern, as in the `settings` op

# Measured with 1,000 changed patterns (loadtests/reload.py): a worker is busy for 0.3 ms with an epoch of this many.
OPS_AN_EPOCH: Final = 100
# Records looked at in one turn of the supervisor; 3 to 5 microseconds each. So many times as fast are those passed over
# whose names begin otherwise than all changed patterns.
RECORDS_A_TURN: Final = 250
PASSED_FOR_ONE: Final = 16
# Beginnings of patterns that names are compared with; with more, all records are looked at.
MOST_BEGINNINGS: Final = 32

_SEPARATORS: Final = (".", "/")
NAME_AT: Final = 2  # in the key of a mobile address, behind class and phase


class Settings:
    """The address settings of the router. Owner: supervisor."""

    def __init__(self, table: Table, entries: Mapping[str, Attributes], default: str) -> None:
        """entries: attributes by canonical pattern."""
        self.current: Final = AddressSettings(entries.items(), default)
        self._table = table
        self._entries: dict[str, Attributes] = dict(entries)
        # What the next round is to be about: patterns, in order, and whether there is one at all.
        self._changed: dict[str, None] = {}
        self._default_changed = False
        self._again = False
        # The present round: the look, until it has come to its end; then the patterns that are to be announced.
        self._scan: Iterator[Record] | None = None
        self._beginnings: tuple[str, ...] | None = None  # of names
        self._round: dict[str, None] = {}
        self._round_default = False
        self._announcing = False
        # Records that are treated otherwise than they should be, by the id of the setting that applies to them; it is
        # kept beside them, so that the id remains its own.
        self._found: dict[int, tuple[Setting, list[Record]]] = {}
        self._waiting: deque[Op | Record] = deque()  # to be announced next
        self._sent = 0  # epoch of the last part
        self._begun = 0  # rounds
        self._ended = 0

    def op(self) -> Op:
        """All settings, for a snapshot."""
        return [OP_SETTINGS, list(self._entries.items()), self.current.default.distribution]

    def attributes(self, pattern: str) -> Attributes | None:
        """What is said about a canonical pattern, or None."""
        return self._entries.get(pattern)

    def patterns(self) -> Iterable[str]:
        """All canonical patterns."""
        return self._entries.keys()

    def put(self, pattern: str, attributes: Attributes) -> None:
        """Add a pattern, or change what is said about it. The pattern is canonical."""
        if self._entries.get(pattern) != attributes:
            self._entries[pattern] = attributes
            self.current.put(pattern, setting_from(attributes))
            self._note([pattern])

    def drop(self, pattern: str) -> None:
        """Remove a pattern that is there."""
        del self._entries[pattern]
        self.current.drop(pattern)
        self._note([pattern])

    def set_default(self, distribution: str) -> None:
        """Change what applies to addresses that no pattern matches."""
        if distribution != self.current.default.distribution:
            self.current.set_default(distribution)
            self._default_changed = True
            self._note([])

    def replace(self, entries: Mapping[str, Attributes], prepared: AddressSettings, changed: Iterable[str]) -> None:
        """Change everything at once.

        prepared: the same entries, and the default, ready to be looked up. changed: patterns that differ from before.
        """
        changed = list(changed)
        self._default_changed |= prepared.default.distribution != self.current.default.distribution
        if changed or self._default_changed:
            self._entries = dict(entries)
            self.current.become(prepared)
            self._note(changed)

    def _note(self, changed: Iterable[str]) -> None:
        """Something has changed: a round has to follow."""
        self._changed.update(dict.fromkeys(changed))
        self._again = True

    # Bringing changes to records and workers

    @property
    def settled(self) -> bool:
        """Whether all changes are on their way."""
        return not self._again and not self._under_way

    @property
    def _under_way(self) -> bool:
        return self._scan is not None or self._announcing

    @property
    def last_round(self) -> int:
        """The round after which all changes made so far are on their way; see `through`."""
        return self._begun + self._again

    def through(self, number: int) -> bool:
        """Whether a round has come to its end."""
        return number <= self._ended

    def waiting(self, epochs: "Epochs[Any]") -> bool:
        """Whether `step` has something to do now."""
        return not self.settled and (not self._announcing or self._may_send(epochs))

    def _may_send(self, epochs: "Epochs[Any]") -> bool:
        """Whether all workers have what was sent before."""
        return epochs.settled(self._table.epoch) >= self._sent

    def step(self, epochs: "Epochs[Any]") -> None:
        """Go on, for about a millisecond. Call it in each wake, and again when others have had their turn."""
        if self._again and not self._under_way:
            self._begin()
        if self._scan is not None:
            self._look(self._scan)
        if self._announcing and self._may_send(epochs):
            self._announce_some()

    def _begin(self) -> None:
        """A round begins: it is about all that has changed so far."""
        self._round, self._changed = self._changed, {}
        self._round_default, self._default_changed = self._default_changed, False
        self._again = False
        self._begun += 1
        self._beginnings = self._concerned()
        self._scan = iter(list(self._table.records.values()))

    def _concerned(self) -> tuple[str, ...] | None:
        """How the names of all records begin that the round can concern; None: however they do."""
        firsts = {pattern.partition("/")[0] for pattern in self._round}
        if self._round_default or len(firsts) > MOST_BEGINNINGS or not firsts.isdisjoint("*#"):
            return None
        return (*firsts, *_SEPARATORS)

    def _look(self, scan: Iterator[Record]) -> None:
        left = RECORDS_A_TURN * PASSED_FOR_ONE
        while left > 0:
            record = next(scan, None)
            if record is None:
                self._scan = None
                self._announcing = True
                return
            left -= 1
            if self._beginnings is not None and not record.key.startswith(self._beginnings, NAME_AT):
                continue
            left -= PASSED_FOR_ONE - 1
            setting = self._setting(record)
            if setting is not None and not self._as_set(record, setting):
                self._found.setdefault(id(setting), (setting, []))[1].append(record)

    def _setting(self, record: Record) -> Setting | None:
        """What is said about the address of a record; None where that does not matter."""
        if record.fixed or record.inproc:
            return None
        return self.current.lookup(record.key[NAME_AT:]) if record.key[0] == MOBILE else self.current.default

    def _announce_some(self) -> None:
        """Fill an epoch: with what is left of a pattern, then with further ones as long as they fit."""
        count = 0
        while count < OPS_AN_EPOCH and (self._waiting or self._collect()):
            if count and count + len(self._waiting) > OPS_AN_EPOCH:
                break
            while self._waiting and count < OPS_AN_EPOCH:
                self._announce(self._waiting.popleft())
                count += 1
        if count:
            self._sent = self._table.next_epoch
        else:
            self._announcing = False
            self._ended = self._begun

    def _collect(self) -> bool:
        """Take the next changed pattern with its addresses, at last those whose pattern is gone; False: nothing is."""
        if self._round:
            pattern = next(iter(self._round))
            del self._round[pattern]
            self._waiting.append([OP_SETTING, pattern, self._entries.get(pattern)])
            setting = self.current.get(pattern)
            if setting is not None and id(setting) in self._found:
                self._waiting += self._found.pop(id(setting))[1]
            return True
        if self._round_default:
            self._round_default = False
            self._waiting.append([OP_DEFAULT, self.current.default.distribution])
        if self._found:
            self._waiting += self._found.pop(next(iter(self._found)))[1]
        return bool(self._waiting)

    def _announce(self, item: Op | Record) -> None:
        if isinstance(item, list):
            self._table.change(item)
        elif self._table.records.get(item.key) is item and (setting := self._setting(item)) is not None:
            self._treat(item, setting)

    def _treat(self, record: Record, setting: Setting) -> None:
        """Make a record what its setting says."""
        record.treatment = self._treatment(record, setting)
        record.priority, record.overflow = setting.priority, setting.overflow
        self._table.set_fallback(record, setting)

    def _treatment(self, record: Record, setting: Setting) -> str:
        """What a record is to be treated as."""
        if record.key[0] == MOBILE and record.key[1] == FALLBACK_PHASE:
            return BALANCED
        if record.hint is not None and setting is self.current.default:
            return record.hint
        return setting.distribution

    def _as_set(self, record: Record, setting: Setting) -> bool:
        """Whether a record is what its setting says."""
        same = record.treatment == self._treatment(record, setting)
        same = same and record.priority == setting.priority and record.overflow == setting.overflow
        return same and (record.key[:2] != "M0" or setting.fallback is (record.fallback is not None))
